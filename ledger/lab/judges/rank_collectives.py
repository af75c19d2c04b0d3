"""Collectives of a framework's rank by kind, axis and phase, with what is known of them beforehand.

Imports torch at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ledger.lab.observed.collective_log import OPERATORS, CollectiveLog, group_name

APART = ("model", "other")  # groups in which ranks agree on norms, overflows, maxima and counts
NUMBERS = 64  # bytes: what they agree on in other groups is a few numbers


class RankCollectives(CollectiveLog):
    """Counts as `CollectiveLog` does; a phase that is given holds while it is, and agreements are counted apart."""

    def __init__(self, axes: Mapping[str, str], phase: Callable[[], str]) -> None:
        super().__init__(axes, lambda: self.given or phase())
        self.given = ""
        self.agreements = 0
        self.agreeing = False

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Within, what is sent belongs to `phase`."""
        before, self.given = self.given, phase
        try:
            yield
        finally:
            self.given = before

    @contextmanager
    def agreement(self) -> Iterator[None]:
        """Within, ranks agree on numbers, however many."""
        self.agreeing = True
        try:
            yield
        finally:
            self.agreeing = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = func.__name__.split(".")[0] in OPERATORS
        if (self.agreeing and named) or (func.namespace == "c10d" and self._agrees(func, args)):
            self.agreements += 1
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _agrees(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether a collective is about numbers, not about tensors of the model."""
        if func.__name__.startswith(("recv", "send", "wait", "barrier")):
            return False
        size = sum(int(leaf.nbytes) for leaf in tree_leaves(args[0]) if isinstance(leaf, Tensor))
        return size <= NUMBERS or self.axes[group_name(args)] in APART
