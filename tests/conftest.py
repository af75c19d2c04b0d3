"""What holds for every test: one thread for each worker, and PyTorch for the laboratory's alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers share the cores; PyTorch reads it when it is imported
os.environ.setdefault("LEDGER_SEARCH", "0")  # commands search a plan's other layouts only in tests that ask for it
LABORATORY = Path(__file__).parent / "lab"
PYTORCH = ("torch", "transformers", "megatron", "transformer_engine")


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
