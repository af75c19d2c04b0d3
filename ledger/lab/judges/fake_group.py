"""A fake process group, with answers to what ranks ask of each other. Imports torch at its top."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore


class Coalesced:
    """Collectives that run one by one, where a framework has them run as one."""

    def append(self, *_: Any) -> None:
        """The collective has run."""

    def wait(self) -> None:
        """Nothing is waited for."""


@contextmanager
def _one_by_one(*_: Any, **__: Any) -> Iterator[Coalesced]:
    yield Coalesced()


def _all_alike(results: list[Any], mine: Any, *_: Any, **__: Any) -> None:
    """Every rank says what this one says."""
    results[:] = [mine] * len(results)


ANSWERS = {
    "_coalescing_manager": _one_by_one,  # the operators that it calls have no kernel for fake tensors
    "all_gather_object": _all_alike,
    "broadcast_object_list": lambda *_, **__: None,
}


@contextmanager
def fake_group(size: int, place: int) -> Iterator[None]:
    """Within, this process is rank `place` of `size`; the others are alike, and what they send is not looked at."""
    with ExitStack() as patched:
        for name, answer in ANSWERS.items():
            for module in (distributed, distributed.distributed_c10d):
                patched.enter_context(mock.patch.object(module, name, answer))
        distributed.init_process_group("fake", store=FakeStore(), rank=place, world_size=size)
        yield
