"""Attention of a rank that has a part of the sequence: keys and values gathered, heads instead of a part, or a ring.

The ring is PyTorch's own (torch.distributed.tensor.experimental, context parallelism), with a send to the next rank at
each turn. The other two put transfers around one kernel: keys and values of all ranks for the queries of this one, as
Grattafiori et al. 2024, section 3.3.2, have it; or the whole sequence of some heads, as DeepSpeed-Ulysses does. Imports
torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from transformers import AttentionInterface

from ledger.lab.reference.modules import KERNELS
from ledger.lab.transformers.config import NoReferenceError

NAME = "ledger_exchanged"  # the name under which transformers knows attention over a part of the sequence
Core = Callable[[Tensor, Tensor, Tensor, float | None], Tensor]


@dataclass(frozen=True)
class SequenceExchange:
    """How the ranks of a group, each with a part of the sequence, let their queries see all of it."""

    how: str
    group: distributed.ProcessGroup
    kernel: str
    balanced: bool
    device: str

    @property
    def ranks(self) -> int:
        """The parts of the sequence."""
        return int(self.group.size())


def install(built: Any, exchange: SequenceExchange) -> None:
    """The model's attention sees the whole sequence by `exchange`."""
    if exchange.kernel not in KERNELS:
        raise NoReferenceError(f"{exchange.kernel} attention: the judge exchanges around kernels of one call")
    core = EXCHANGES[exchange.how](exchange)

    def forward(  # noqa: PLR0913 - the signature that transformers gives it
        module: nn.Module,  # noqa: ARG001
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,  # noqa: ARG001
        scaling: float | None = None,
        **unused: Any,  # noqa: ARG001
    ) -> tuple[Tensor, None]:
        return core(query, key, value, scaling).transpose(1, 2).contiguous(), None

    AttentionInterface.register(NAME, forward)
    built.config._attn_implementation = NAME  # noqa: SLF001  # as transformers looks it up


# --- keys and values gathered ---


def _gathered_core(exchange: SequenceExchange) -> Core:
    def gathered(tensor: Tensor) -> Tensor:
        """The tensor of all ranks. The sequence is outermost in memory, so that parts are rows."""
        rows = functional.all_gather_single_autograd(_sequence_first(tensor), 0, exchange.group)
        return _heads_first(rows)

    def core(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        return KERNELS[exchange.kernel](query, gathered(key), gathered(value), 0.0, scale)

    return core


def _sequence_first(tensor: Tensor) -> Tensor:
    """(1, heads, sequence, width) -> (sequence, heads, width)."""
    if tensor.shape[0] > 1:
        raise NoReferenceError("run.micro_batch > 1: the judge exchanges parts of one sequence")
    return tensor.transpose(1, 2).squeeze(0)


def _heads_first(tensor: Tensor) -> Tensor:
    """(sequence, heads, width) -> (1, heads, sequence, width)."""
    return tensor.unsqueeze(0).transpose(1, 2)


# --- heads instead of a part of the sequence ---


def _heads_core(exchange: SequenceExchange) -> Core:
    ranks = exchange.ranks

    def by_heads(tensor: Tensor) -> Tensor:
        """The whole sequence of this rank's heads."""
        rows = _sequence_first(tensor)
        length, heads, width = rows.shape
        parts = rows.view(length, ranks, heads // ranks, width).transpose(0, 1).contiguous()
        return _heads_first(_exchange_parts(parts, exchange).reshape(ranks * length, heads // ranks, width))

    def by_sequence(tensor: Tensor) -> Tensor:
        """This rank's part of the sequence, of all heads."""
        rows = _sequence_first(tensor)
        length, heads, width = rows.shape
        parts = _exchange_parts(rows.reshape(ranks, length // ranks, heads, width), exchange)
        return _heads_first(parts.transpose(0, 1).reshape(length // ranks, ranks * heads, width))

    def core(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        query, key, value = by_heads(query), by_heads(key), by_heads(value)
        return by_sequence(KERNELS[exchange.kernel](query, key, value, 0.0, scale))

    return core


def _exchange_parts(parts: Tensor, exchange: SequenceExchange) -> Tensor:
    """A part for each rank -> a part of each rank."""
    ones = [1] * exchange.ranks
    sent: Tensor = functional.all_to_all_single_autograd(parts, ones, ones, exchange.group)
    return sent


# --- a ring ---


class Ring(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not followed
    """PyTorch's ring attention with its backward, which it reaches by way of DTensor's dispatch."""

    @staticmethod
    def forward(ctx: Any, mesh: DeviceMesh, scale: float | None, *operands: Tensor) -> Tensor:
        """The result for this rank's queries."""
        ring.set_rotate_method("alltoall")  # a send to the next rank at each turn
        outputs = ring._scaled_dot_product_ring_flash_attention(mesh, *operands, is_causal=True, scale=scale)  # noqa: SLF001
        out, sums, *_, seed, offset, _ = outputs
        ctx.mesh, ctx.scale, ctx.length = mesh, scale, operands[0].shape[2]
        ctx.save_for_backward(*operands, out, sums, seed, offset)
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
        """Gradients of queries, keys and values."""
        *saved, seed, offset = ctx.saved_tensors
        lengths = (None, None, ctx.length, ctx.length)
        gradients = ring._scaled_dot_product_ring_flash_attention_backward(  # noqa: SLF001
            ctx.mesh, upstream, *saved, *lengths, 0.0, True, seed, offset, scale=ctx.scale
        )
        return None, None, *gradients[:3]


def _ring_core(exchange: SequenceExchange) -> Core:
    if exchange.kernel != "flash":
        raise NoReferenceError(
            f"context_exchange = ring with {exchange.kernel} attention: the judge's ring is of flash"
        )
    ring._cp_options.enable_load_balance = exchange.balanced  # noqa: SLF001  # has no public name
    mesh = DeviceMesh.from_group(exchange.group, exchange.device)

    def core(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        result: Tensor = Ring.apply(mesh, scale, query, key, value)
        return result

    return core


EXCHANGES: dict[str, Callable[[SequenceExchange], Core]] = {
    "all_gather": _gathered_core,
    "all_to_all": _heads_core,
    "ring": _ring_core,
}
