"""Layouts: which named dim is cut over which mesh axis, in weights, inside operations, and in the residual stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.model.dims import Dim
from ledger.model.tensors import Split, Tensor
from ledger.spec.parallelism import AXES
from ledger.spec.plan import Parallelism


@dataclass(frozen=True)
class Layout:
    """`splits` maps dim names to axes; `stream` is how the residual stream is held between operations.

    Context parallelism is no more than a stream whose seq is cut: only attention needs all keys and values.

    `regather`: backward gathers a held input again instead of keeping the gathered one. `exchange`: how attention sees
    a sequence that is cut; `balanced`: whether a causal mask leaves all its devices the same work. `crowded`: where
    experts are split over devices, one of these gets more tokens than the average. `expert_degree`: over how many
    devices, of which nothing is asked but whether each holds one expert.
    """

    splits: Mapping[str, str]
    stream: Split = ()
    regather: bool = False
    exchange: str = "all_gather"
    balanced: bool = True
    crowded: bool = False
    expert_degree: int = 1

    @property
    def cuts(self) -> tuple[str, ...]:
        """The axes that cut weights."""
        return tuple(dict.fromkeys(self.splits.values()))

    @property
    def alike(self) -> tuple[str, ...]:
        """The axes all of whose devices do the same work where they cut neither operand."""
        return tuple(axis for axis in self.cuts if AXES[axis].sees_same_tokens)

    def repeated(self, *tensors: Tensor) -> tuple[str, ...]:
        """The axes all of whose devices do the same work with these tensors, none of which is cut over them."""
        cut = {axis for tensor in tensors for _, axis in tensor.split}
        return tuple(axis for axis in self.alike if axis not in cut)

    @property
    def inputs(self) -> Split:
        """The split of tokens and labels: that of the stream, but whole for tensor parallelism."""
        return tuple(pair for pair in self.stream if pair[1] not in self.splits.values())

    @property
    def cuts_sequence(self) -> bool:
        """Whether the sequence is cut over the devices that share a layer."""
        return any(dim == "seq" and axis in self.alike for dim, axis in self.stream)

    def of(self, dims: tuple[Dim, ...]) -> Split:
        """The split of a tensor whose dims are cut wherever this layout cuts them."""
        return tuple((dim.name, self.splits[dim.name]) for dim in dims if dim.name in self.splits)


WHOLE = Layout({})


def layout(parallelism: Parallelism) -> Layout:
    """The layout of operations on one device of a plan."""
    split = {name: axis for name, axis in AXES.items() if axis.cuts and getattr(parallelism, name) > 1}
    splits = {dim: name for name, axis in split.items() for dim in axis.cuts}
    context: Split = (("seq", "context"),) if parallelism.context > 1 else ()
    parallel = parallelism.sequence != "off" and parallelism.tensor > 1
    return Layout(
        splits,
        (*context, ("seq", "tensor")) if parallel else context,
        regather=parallel and parallelism.sequence == "regather",
        exchange=parallelism.context_exchange,
        balanced=parallelism.context_balance == "zigzag",
        expert_degree=parallelism.expert,
    )
