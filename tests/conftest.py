"""What holds for every test: one thread for each worker, and PyTorch for the laboratory's alone."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from tests.sampled import SAMPLED

os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers share the cores; PyTorch reads it when it is imported
os.environ.setdefault("LEDGER_SEARCH", "0")  # commands search a plan's other layouts only in tests that ask for it
LABORATORY = Path(__file__).parent / "lab"
PYTORCH = ("torch", "transformers", "megatron", "transformer_engine")


@pytest.hookimpl(tryfirst=True)  # before what is marked as long is deselected
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Marks as long what SAMPLED leaves out of `make test`."""
    of_test: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        path = item.path.relative_to(LABORATORY.parent).as_posix()
        name = f"{path}::{getattr(item, 'originalname', item.name)}"
        for key in {path, name} & SAMPLED.keys():
            of_test[key].append(item)
    for key, cases in of_test.items():
        chosen = {place * len(cases) // SAMPLED[key] for place in range(SAMPLED[key])} if SAMPLED[key] else set()
        for place, item in enumerate(cases):
            if place not in chosen:
                item.add_marker(pytest.mark.long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """To core tests and their fixtures PyTorch is not installed: the compiler, its reports and its course need none."""
    if LABORATORY in item.path.parents:
        return (yield)
    loaded = {name: sys.modules[name] for name in PYTORCH if name in sys.modules}
    sys.modules.update(dict.fromkeys(PYTORCH))  # type: ignore[arg-type]  # None is what Python takes for not there
    try:
        return (yield)
    finally:
        for name in PYTORCH:
            del sys.modules[name]
        sys.modules.update(loaded)
