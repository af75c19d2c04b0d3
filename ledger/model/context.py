"""How attention sees a sequence that is cut over the context axis: a row for each exchange that a plan can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ledger.model import moves
from ledger.model.cached_attention import from_cache
from ledger.model.collectives import collective
from ledger.model.cores import CORES
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.plan import Attention

AXIS = "context"


def mixed(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """The core of attention between the exchanges that it needs; the result is cut as the queries are."""
    if tape.cache:
        return from_cache(tape, query, key, value, spec)
    exchange = tape.layout.exchange if any(axis == AXIS for _, axis in query.split) else "none"
    return EXCHANGES[exchange](tape, query, key, value, spec)


def _none(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    return CORES[tape.kernels.attention](tape.inside("core"), query, key, value, spec)


def _all_gather(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """Every device has all keys and values, for its own queries (Grattafiori et al. 2024, section 3.3.2)."""
    return _none(tape, query, moves.everywhere(tape, key, AXIS), moves.everywhere(tape, value, AXIS), spec)


def _all_to_all(tape: Tape, query: Tensor, key: Tensor, value: Tensor, spec: Attention) -> Tensor:
    """Every device has the whole sequence of some heads (DeepSpeed-Ulysses, Jacobs et al. 2023)."""
    query, key, value = (_turned(tape, tensor, "seq", tensor.dims[2].name) for tensor in (query, key, value))
    result = _none(tape, query, key, value, spec)
    return _turned(tape, result, result.dims[2].name, "seq")


def _turned(tape: Tape, tensor: Tensor, cut: str, instead: str) -> Tensor:
    """The tensor cut over another of its dims."""
    split = tuple((instead, axis) if (name, axis) == (cut, AXIS) else (name, axis) for name, axis in tensor.split)
    result = replace(tensor.on(split, f"{tensor.name}.by_{instead}"), view_of="")
    return tape.record(collective(f"{tensor.name}.all_to_all", "all_to_all", AXIS, tensor, result))


# The ring is inside the kernel: `cores` passes blocks around where the layout says so.
EXCHANGES: Mapping[str, Callable[[Tape, Tensor, Tensor, Tensor, Attention], Tensor]] = {
    "none": _none,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "ring": _none,
}
