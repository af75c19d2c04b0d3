"""The interleaved schedule of Megatron-Core, replayed for what its lists and frames hold beside what layers save.

megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving, with sends that overlap:
what came and waits for its pass, what was sent and not let go, gradients of what came. Each is as large as the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

FORWARD, BACKWARD, AFTER = "forward", "backward", "after backward"


@dataclass(eq=False)
class Sent:
    """A tensor that goes from stage to stage: its gradient, and whether its data is gone (deallocate_output_tensor)."""

    gradient: Sent | None = None
    gone: bool = False


@dataclass(frozen=True)
class Visit:
    """A pass of a chunk on a stage: chunks of micro-batches in flight with it, and tensors held beside what they save.

    AFTER it, its own gradients are among these.
    """

    phase: str
    chunk: int
    flying: int
    beside: int


@dataclass
class Stage:
    """One stage of `stages` with `chunks`, and what it holds of `count` micro-batches as the schedule goes on."""

    place: int
    stages: int
    chunks: int
    count: int
    inputs: list[list[Sent | None]] = field(init=False)
    outputs: list[list[Sent | None]] = field(init=False)
    gradients: list[list[Sent | None]] = field(init=False)
    received: list[Sent | None] = field(init=False)  # of each chunk what came last: decoder.input_tensor
    saved: list[tuple[Sent | None, int]] = field(default_factory=list)  # inputs that layers save, with their chunk
    names: dict[str, Sent | None] = field(default_factory=dict)  # local names of the schedule
    visits: list[Visit] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Lists without anything for each chunk."""
        self.inputs = [[] for _ in range(self.chunks)]
        self.outputs = [[] for _ in range(self.chunks)]
        self.gradients = [[] for _ in range(self.chunks)]
        self.received = [None] * self.chunks

    @property
    def first(self) -> bool:
        """Whether it is the first stage."""
        return self.place == 0

    @property
    def last(self) -> bool:
        """Whether it is the last stage."""
        return self.place == self.stages - 1

    @property
    def total(self) -> int:
        """Forward passes of chunks in a step."""
        return self.count * self.chunks

    def chunk(self, index: int, *, forward: bool) -> int:
        """Whose turn it is: each chunk has a round of one micro-batch for each stage (get_schedule_table)."""
        index %= self.total
        start = index // (self.stages * self.chunks) * self.stages
        chunk = (index - start * self.chunks) // min(self.stages, self.count - start)
        return chunk if forward else self.chunks - 1 - chunk

    def comes(self, index: int, *, forward: bool) -> tuple[bool, int]:
        """Whether something comes after a pass, and for which chunk (recv_tensor_from_previous_stage)."""
        if not (self.first if forward else self.last):
            return True, self.chunk(index + 1, forward=forward)
        ahead = self.stages - 1
        chunk = self.chunk(index - ahead if index >= ahead else index + 1, forward=forward)
        ends = chunk == (self.chunks - 1 if forward else 0)
        return index >= ahead and not ends, chunk + (1 if forward else -1)

    def forward(self, index: int) -> Sent | None:
        """A forward pass; what it sends."""
        chunk = self.chunk(index, forward=True)
        begins = self.first and chunk == 0
        if begins and len(self.inputs[chunk]) == len(self.outputs[chunk]):
            self.inputs[chunk].append(None)
        entering = self.inputs[chunk][len(self.outputs[chunk])]
        if not begins:
            self.received[chunk] = entering
        self.saved.append((entering, chunk))
        self.note(FORWARD, chunk, (entering,), (entering,))
        result = None if self.last and chunk == self.chunks - 1 else Sent()
        self.outputs[chunk].append(result)
        return result

    def backward(self, index: int) -> Sent | None:
        """A backward pass; the gradient that it sends."""
        chunk = self.chunk(index, forward=False)
        if self.last and chunk == self.chunks - 1 and not self.gradients[chunk]:
            self.gradients[chunk].append(None)
        entering, result, upstream = (held[chunk].pop(0) for held in (self.inputs, self.outputs, self.gradients))
        framed = (entering, result, upstream)
        self.note(BACKWARD, chunk, framed, (entering, upstream))
        self.saved.pop(next(place for place, (_, mine) in enumerate(self.saved) if mine == chunk))
        if entering is not None:
            entering.gradient = Sent()
        self.note(AFTER, chunk, framed, (entering,))
        return None if entering is None or (self.first and chunk == 0) else entering.gradient

    def note(self, phase: str, chunk: int, framed: Iterable[Sent | None], own: Iterable[Sent | None]) -> None:
        """Counts what is held now but by layers."""
        waiting = (*self.inputs, *self.outputs, *self.gradients)
        held = {id(one) for many in (*waiting, self.received, self.names.values(), framed) for one in _alive(many)}
        mine = {id(one) for one in (*(one for one, _ in self.saved), *own) if one is not None}
        self.visits.append(Visit(phase, chunk, len(self.saved), len(held - mine)))

    def let_go(self) -> None:
        """What was sent last gives its data back."""
        if sent := self.names.get("output_tensor"):
            sent.gone = True

    def warm_up(self, passes: int) -> None:
        """Forward passes alone; the name of what came last stays."""
        self.inputs[0].append(None if self.first else Sent())
        for index in range(passes):
            comes, chunk = self.comes(index, forward=True)
            self.names["output_tensor"] = self.forward(index)
            came = Sent() if comes and index < self.total - 1 else None
            self.names["input_tensor"] = came
            if came:
                self.inputs[chunk].append(came)
            self.let_go()
        self.gradients[-1].append(None if self.last else Sent())

    def steady(self, warm: int, passes: int) -> None:
        """A forward pass and a backward pass in turn."""
        for index in range(passes):
            self.let_go()
            sent = self.forward(warm + index)
            comes, chunk = self.comes(warm + index, forward=True)
            if comes and index < passes - 1:
                self.inputs[chunk].append(Sent())
            self.names["forward_output_tensor"] = sent
            gradient = self.backward(index)
            comes, chunk = self.comes(index, forward=False)
            if comes:
                self.gradients[chunk].append(Sent())
            self.names |= {"output_tensor": sent, "forward_output_tensor": None, "input_tensor_grad": gradient}
        self.let_go()

    def cool_down(self, done: int) -> None:
        """The backward passes that are left once every forward pass has run; `done` of them had run before."""
        for index in range(done, self.total):
            comes, chunk = self.comes(index, forward=False)
            gradient = self.backward(index)
            came = Sent() if comes and index < self.total - 1 else None
            self.names |= {"input_tensor_grad": gradient, "output_tensor_grad": came}
            if came:
                self.gradients[chunk].append(came)


def _alive(held: Iterable[Sent | None]) -> Iterator[Sent]:
    for one in held:
        if one is not None and not one.gone:
            yield one
            yield from _alive((one.gradient,))


@cache
def visits(place: int, stages: int, chunks: int, count: int) -> tuple[Visit, ...]:
    """Every pass of a stage in one step (get_pp_rank_microbatches)."""
    stage = Stage(place, stages, chunks, count)
    warm = min(stage.total, 2 * (stages - place - 1) + (chunks - 1) * stages)
    stage.warm_up(warm)
    stage.steady(warm, stage.total - warm)
    stage.cool_down(stage.total - warm)
    return tuple(stage.visits)


def beside(found: Iterable[Visit], phase: str, among: Iterable[int]) -> int:
    """Tensors held beside what layers save in the fullest pass of some chunks: most in flight, then most of these."""
    wanted = set(among)
    mine = [visit for visit in found if visit.phase == phase and visit.chunk in wanted]
    return max(mine, key=lambda visit: (visit.flying, visit.beside)).beside if mine else 0
