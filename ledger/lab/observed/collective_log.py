"""Collectives as they are called, counted by kind, axis and phase. Imports torch at its top."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, distributed
from torch.utils._python_dispatch import TorchDispatchMode

from ledger.lab.observed.device_step import CollectiveCalls
from ledger.lab.observed.storage_meter import wraps_tensors

# Operator -> (kind, whether its first tensor argument is the output, as in c10d, or the input).
OPERATORS = {
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "allreduce_": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce": "all_reduce",
    "allgather_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "alltoall_base_": "all_to_all",
    "send": "send",
}


class CollectiveLog(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not followed
    """Counts collectives and their bytes by kind, axis and phase."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled, and what keeps a compiler out would take a tenth of each operator's time."""
        return False

    def __init__(self, axes: Mapping[str, str], phase: Callable[[], str]) -> None:
        super().__init__()
        self.axes = axes  # process group name -> axis
        self.phase = phase
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.bytes: Counter[tuple[str, str, str]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if wraps_tensors(types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        kind = OPERATORS.get(func.__name__.split(".")[0])
        if kind is not None and func.namespace in ("c10d", "_c10d_functional"):
            key = (_kind_of_call(kind, args), self.axes[group_name(args)], self.phase())
            self.counts[key] += 1
            # the larger side: a gather's output, a reduction's input; of a list of parts, all of them
            self.bytes[key] += max(_bytes(side) for side in (*args, result))
        return result

    def collectives(self) -> tuple[CollectiveCalls, ...]:
        """The collectives that were counted, sorted by kind, axis and phase."""
        return tuple(CollectiveCalls(*key, self.counts[key], self.bytes[key]) for key in sorted(self.counts))


def _kind_of_call(kind: str, args: tuple[Any, ...]) -> str:
    """An all-to-all in which a rank has something for one other alone is a send (`permute_tensor`)."""
    splits = [argument for argument in args if isinstance(argument, list)]
    one_receiver = kind == "all_to_all" and splits and sum(map(bool, splits[-1])) == 1 < len(splits[-1])
    return "send" if one_receiver else kind


def group_name(args: tuple[Any, ...]) -> str:
    """The name of the process group among a collective's arguments; functional ones carry it as their last text."""
    for argument in args:
        if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):  # noqa: SLF001
            return str(distributed.ProcessGroup.unbox(argument).group_name)
    return str([argument for argument in args if isinstance(argument, str)][-1])


def _bytes(side: Any) -> int:
    leaves = torch.utils._pytree.tree_leaves(side)  # noqa: SLF001  # has no public name
    return sum(int(leaf.nbytes) for leaf in leaves if isinstance(leaf, Tensor))
