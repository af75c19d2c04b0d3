"""Experts that other ranks hold: rows are sorted by expert, sent to the ranks that have it, and come back.

As torchtitan's `ExpertParallel` sends them (distributed/expert_parallel.py): the counts first, then the rows, which
are put in the order of the experts of their rank. Fake tensors hold no choice, so how many rows travel is a number
that is given: every rank sends as many to each, and gets its share of all. What the kernels run stands between as
transformers runs it. Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed import _functional_collectives as functional
from transformers.integrations import moe

from ledger.lab.transformers.config import NoReferenceError

NAME = "ledger_dispatched"  # the name under which transformers knows experts of which a rank has some


@dataclass(frozen=True)
class Dispatch:
    """The ranks that share the experts of a layer, and rows that arrive over rows that leave."""

    group: distributed.ProcessGroup
    arriving: Fraction = Fraction(1)

    @property
    def ranks(self) -> int:
        """How many ranks share the experts."""
        return int(self.group.size())

    def leaving(self, rows: int) -> list[int]:
        """Rows for each rank; raises `NoReferenceError` where they cannot be equally many."""
        return _deal_evenly(rows, self.ranks)

    def coming(self, rows: int) -> list[int]:
        """Rows from each rank, of as many as leave one on average."""
        arriving_rows = rows * self.arriving
        if arriving_rows.denominator != 1:
            raise NoReferenceError(f"expert_imbalance = {self.arriving}: {rows} rows times it are no whole number")
        return _deal_evenly(int(arriving_rows), self.ranks)


def _deal_evenly(rows: int, ranks: int) -> list[int]:
    if rows % ranks:
        raise NoReferenceError(f"{rows} rows do not divide by {ranks} ranks, among which the judge deals them equally")
    return [rows // ranks] * ranks


def experts_of(layer: Any) -> nn.Module | None:
    """The module that holds the routed experts of a layer; None where it has none."""
    return next((module for module in layer.modules() if hasattr(module, "gate_up_proj")), None)


def install(built: Any, dispatch: Dispatch) -> None:
    """Leave each layer the experts of one rank, which get their rows by `dispatch`. Within the fake mode."""
    moe.ALL_EXPERTS_FUNCTIONS.register(NAME, partial(_dispatch_experts, dispatch=dispatch))
    built.config._experts_implementation = NAME  # noqa: SLF001  # as transformers looks it up
    for module in built.modules():
        if hasattr(module, "gate_up_proj"):
            if getattr(module, "has_bias", False) or module.is_transposed:
                raise NoReferenceError("experts with biases: the judge sends rows to experts without them")
            for name, parameter in list(module.named_parameters()):
                own_part = parameter.detach()[: parameter.shape[0] // dispatch.ranks].clone()
                setattr(module, name, nn.Parameter(own_part, requires_grad=parameter.requires_grad))


def _dispatch_experts(self: Any, hidden: Tensor, index: Tensor, weights: Tensor, *, dispatch: Dispatch) -> Tensor:
    """The experts of transformers' `grouped_mm`, between the rows that are sent and those that come back."""
    chosen, count = index.shape[-1], self.num_experts
    owner, order = torch.sort(index.reshape(-1))
    rows_per_expert = torch.histc(owner.float(), bins=count, min=0, max=count - 1)  # the CPU counts no integers
    scores = weights.reshape(-1)[order].unsqueeze(-1)
    rows = _send_and_return(self, hidden[order // chosen], rows_per_expert, dispatch) * scores
    back = torch.empty_like(order)
    back[order] = torch.arange(order.size(0), device=order.device)
    rows = rows[back]
    return rows.view(hidden.shape[0], chosen, -1).sum(dim=1).to(hidden.dtype)


def _send_and_return(self: Any, rows: Tensor, rows_per_expert: Tensor, dispatch: Dispatch) -> Tensor:
    """The results of `rows`, of which each expert gets so many; experts lie rank by rank. What was read is let go."""
    leaving, coming = dispatch.leaving(len(rows)), dispatch.coming(len(rows))
    with torch.no_grad():
        counts = functional.all_to_all_single(rows_per_expert.long(), None, None, dispatch.group)
        places, offsets = _places_by_expert(functional.wait_tensor(counts), sum(coming), dispatch.ranks)
    rows = functional.all_to_all_single_autograd(rows, coming, leaving, dispatch.group)
    rows = rows[places]
    rows = moe._grouped_linear(rows, self.gate_up_proj, offsets)  # noqa: SLF001  # has no public name
    rows = self._apply_gate(rows)
    rows = moe._grouped_linear(rows, self.down_proj, offsets)  # noqa: SLF001
    ready = torch.empty_like(rows)
    ready[places] = rows
    del rows
    back: Tensor = functional.all_to_all_single_autograd(ready, leaving, coming, dispatch.group)
    return back


def _places_by_expert(counts: Tensor, rows: int, ranks: int) -> tuple[Tensor, Tensor]:
    """Where the rows of each expert lie among those that arrive rank by rank, and where an expert's end."""
    rows_by_rank = counts.view(ranks, -1)
    experts = torch.arange(rows_by_rank.shape[1], device=counts.device).repeat(ranks)
    owner = torch.repeat_interleave(experts, counts, output_size=rows)
    return torch.argsort(owner, stable=True), torch.cumsum(rows_by_rank.sum(dim=0), dim=0, dtype=torch.int32)


def prefetched(layers: nn.ModuleList) -> Iterator[tuple[Any, list[nn.Module], list[nn.Module]]]:
    """Each layer with the sets of weights that are gathered while it runs forward, and backward."""
    units = [[layer, *([experts] if (experts := experts_of(layer)) is not None else [])] for layer in layers]
    for place, layer in enumerate(layers):
        after = units[place + 1] if place + 1 < len(units) else []
        yield layer, after, units[place - 1] if place else []
