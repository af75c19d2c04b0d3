"""The orders in which PyTorch's own pipeline schedules run their work, and how long they take under given times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

FORWARD, INPUTS, WEIGHTS, BOTH = "FORWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT", "FULL_BACKWARD"


@dataclass(frozen=True)
class Piece:
    """One piece of work: what it is, of which stage of the model, for which micro-batch."""

    kind: str
    stage: int
    micro_batch: int


Block = tuple[Piece, ...]  # what runs as one, forward beside backward
Order = Mapping[int, Sequence[Block]]  # of every device
Times = Mapping[str, float]  # seconds of forward, gradients of inputs, gradients of weights


def order(name: str, devices: int, count: int, chunks: int = 1) -> Order:
    """The order of a schedule of torch.distributed.pipelining, by the name of the class."""
    found = _actions(name, devices, count, chunks)
    return {device: tuple(_blocks(actions)) for device, actions in found.items()}


def _actions(name: str, devices: int, count: int, chunks: int) -> dict[int, Any]:
    """PyTorch's own table of actions of every device."""
    from torch.distributed.pipelining import schedules

    stages = devices * chunks
    rounds = max(1, count // devices)
    stand_in: Any = SimpleNamespace(
        pp_group_size=devices,
        n_local_stages=chunks,
        num_stages=stages,
        number_of_rounds=rounds,
        microbatches_per_round=count // rounds,
        _n_microbatches=count,
        _num_stages=stages,
    )
    kind: Any = getattr(schedules, name)
    if hasattr(kind, "_calculate_single_rank_operations"):
        return {device: kind._calculate_single_rank_operations(stand_in, device) for device in range(devices)}
    table: dict[int, Any] = kind._get_pipeline_order(stand_in)
    return table


def _blocks(actions: Sequence[Any]) -> Sequence[Block]:
    """Actions by kind and stage; micro-batches are numbered in the order in which they come.

    The table of 1F1B that torch 2.13 prints counts the forward passes of the last stage from one.
    """
    seen: Counter[tuple[str, int]] = Counter()
    blocks = []
    for action in actions:
        members = [] if action is None else action.sub_actions or [action]
        block = []
        for member in members:
            kind = member.computation_type.name
            if kind in (FORWARD, INPUTS, WEIGHTS, BOTH):
                key = (INPUTS if kind == BOTH else kind, member.stage_index)
                block.append(Piece(kind, member.stage_index, seen[key]))
                seen[key] += 1
                seen[WEIGHTS, member.stage_index] += kind == BOTH
        if block:
            blocks.append(tuple(block))
    return blocks


def makespan(found: Order, times: Mapping[int, Times]) -> float:
    """Seconds from the first work to the last: each begins when its device is free and what it needs is there."""
    last = max(work.stage for blocks in found.values() for block in blocks for work in block)
    done: dict[Piece, float] = {}
    clock, at = dict.fromkeys(found, 0.0), dict.fromkeys(found, 0)
    moving = True
    while moving:
        moving = False
        for device, blocks in found.items():
            while at[device] < len(blocks) and all(need in done for need in _needs(blocks[at[device]], last)):
                block = blocks[at[device]]
                begin = max([clock[device], *(done[need] for need in _needs(block, last))])
                clock[device] = begin + sum(_seconds(work, times[work.stage]) for work in block)
                done.update({_result(work): clock[device] for work in block})
                at[device] += 1
                moving = True
    assert all(at[device] == len(blocks) for device, blocks in found.items()), "the order never ends"
    return max(clock.values())


def repeated(found: Order, count: int, steps: int) -> Order:
    """The same order of so many steps, one after the other, each of `count` micro-batches of its own."""
    return {
        device: tuple(
            tuple(replace(work, micro_batch=work.micro_batch + count * step) for work in block)
            for step in range(steps)
            for block in blocks
        )
        for device, blocks in found.items()
    }


def _needs(block: Block, last: int) -> list[Piece]:
    """Results of other stages, and of its own forward pass at the end of the model."""
    needs = []
    for work in block:
        if work.kind == FORWARD and work.stage:
            needs.append(Piece(FORWARD, work.stage - 1, work.micro_batch))
        if work.kind in (INPUTS, BOTH):
            end = work.stage == last
            needs.append(Piece(FORWARD if end else INPUTS, work.stage if end else work.stage + 1, work.micro_batch))
    return needs


def _result(work: Piece) -> Piece:
    return Piece(INPUTS, work.stage, work.micro_batch) if work.kind == BOTH else work


def _seconds(work: Piece, times: Times) -> float:
    return times[INPUTS] + times[WEIGHTS] if work.kind == BOTH else times[work.kind]


def held(blocks: Sequence[Block]) -> tuple[dict[int, int], int]:
    """For each stage of a device, micro-batches between forward and backward where most are; and those waiting then.

    What runs is held; a micro-batch waits from the gradients of its inputs to those of its weights.
    """
    alive: Counter[int] = Counter()
    waiting, best, found = 0, (0, 0), ({}, 0)
    for work in (work for block in blocks for work in block):
        alive[work.stage] += work.kind == FORWARD
        if (alive.total(), waiting) > best:
            best, found = (alive.total(), waiting), (dict(alive), waiting)
        alive[work.stage] -= work.kind in (INPUTS, BOTH)
        waiting += (work.kind == INPUTS) - (work.kind == WEIGHTS)
    return found


def sent(name: str, devices: int, count: int, chunks: int) -> dict[int, tuple[int, int]]:
    """What PyTorch's runtime sends from each device in a step: results to the next stage, gradients back."""
    from torch.distributed.pipelining import schedules

    found = {device: [a for a in actions if a] for device, actions in _actions(name, devices, count, chunks).items()}
    whole = schedules._add_send_recv(found, lambda stage: stage % devices, devices * chunks)
    kinds = {device: Counter(action.computation_type.name for action in row) for device, row in whole.items()}
    return {device: (row["SEND_F"], row["SEND_B"]) for device, row in kinds.items()}
