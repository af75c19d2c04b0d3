"""Named causes for which Megatron-Core holds other bytes than the ledger says, each worked out from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.megatron.attention import extra_saved_bytes
from ledger.lab.judges.megatron.scales import (
    norm_gradient,
    padded_scales,
    single_scales,
    stashed_scales,
    turned_columns,
)
from ledger.lab.judges.protocol import BETWEEN_PASSES, RoleInstant, token_ids
from ledger.lab.verification.causes import FP32_BYTES, INT64_BYTES
from ledger.model.schedule import Role, micro_batches
from ledger.spec.plan import Plan


def sorted_places(at: RoleInstant) -> int:
    """The places of each expert's rows, which the dispatcher keeps, and those from which they are put back.

    `sort_input_by_local_experts` and `restore_output_by_local_experts` of
    megatron/core/transformer/moe/token_dispatcher.py, which share a storage where a device has one expert, or all of
    them; where it has several, also how many rows of each came (`num_global_tokens_per_local_expert`).
    """
    layout, place_bytes = at.plan.parallelism, 0
    for group, count in zip(at.plan.model.groups, at.role.layers, strict=True):
        lists = 1 if group.mlp.experts == layout.expert else 3 if layout.expert * layout.tensor > 1 else 2
        place_bytes += INT64_BYTES * group.mlp.experts * layout.tensor * lists * count
    return place_bytes


def expert_choice(at: RoleInstant) -> int:
    """What corrects which experts are chosen, and how many tokens chose each: two fp32 an expert (moe/router.py)."""
    groups = zip(at.plan.model.groups, at.role.layers, strict=True)
    corrected = (count * group.mlp.experts for group, count in groups if group.mlp.router.scores == "sigmoid")
    return 2 * FP32_BYTES * sum(corrected)


def causes(plan: Plan, role: Role, moment: str) -> Iterator[KnownDifference]:
    """Each named cause with its bytes of found minus predicted at one moment."""
    at = RoleInstant(plan, moment, role)
    for name, amount in CAUSES.items():
        yield KnownDifference(name, amount(at))


def _inputs(at: RoleInstant) -> int:
    """Positions, labels, and the ids that a part of the vocabulary has are there while forward runs."""
    if not at.forward:
        return 0
    if not at.role.first:
        return INT64_BYTES * at.tokens if at.role.last else 0
    return INT64_BYTES * at.length + (INT64_BYTES * at.tokens if at.plan.parallelism.tensor > 1 else 0)


def _mask(at: RoleInstant) -> int:
    """An embedding that is split over the vocabulary saves which tokens are not its own, a byte each."""
    if not at.role.first or at.plan.parallelism.tensor == 1 or at.moment in BETWEEN_PASSES:
        return 0
    flying = int(at.role.in_flight) - (at.moment == "backward/input")
    return at.tokens * flying


def _tables(at: RoleInstant) -> int:
    """The table of rotations is made once by each chunk and kept; the ledger has one while layers run."""
    if at.plan.model.groups[0].attention.expanded:  # each layer has its own, in the ledger too
        return 0
    outside_layers = at.moment in BETWEEN_PASSES or at.moment in ("forward/input", "backward/input")
    return FP32_BYTES * at.length * at.rotated * (at.plan.parallelism.interleave - 1 + outside_layers)


def _lists(at: RoleInstant) -> int:
    """A rotary embedding keeps a list of frequencies, attention where each sequence begins, if there are several.

    That of latent attention is one of each layer, and keeps three lists (yarn_rotary_pos_embedding.py). Context
    parallelism keeps which two parts of the sequence each rank has.
    """
    sequences, ranks = at.plan.run.micro_batch, at.plan.parallelism.context
    begins = FP32_BYTES * (sequences + 1) if sequences > 1 else 0
    parts = 2 * INT64_BYTES * ranks if ranks > 1 and at.plan.parallelism.context_exchange != "ring" else 0
    latent = at.plan.model.groups[0].attention.expanded
    lists = 3 * sum(at.role.layers) if latent else at.plan.parallelism.interleave
    return FP32_BYTES * (at.rotated // 2) * lists + begins + parts


def _joined_loss(at: RoleInstant) -> int:
    """What a loss with joined sums has of a token beside its softmax, and saves: fused_cross_entropy.py.

    A mask and the target within a part of the vocabulary wait for backward, the latter where the ledger has labels.
    Forward has the largest logit, two sums and the loss as well, and labels; the mean over all is a single number.
    Backward's frame holds the target and the gradient of the loss while that of the logits is made.
    """
    flying = at.moment == "after forward" or at.moment.endswith("/loss")
    if at.plan.stack.loss_sums != "joined" or not at.role.last or not flying:
        return 0
    if at.forward:
        return at.tokens * (1 + INT64_BYTES + 4 * FP32_BYTES) - FP32_BYTES
    return at.tokens * (1 + (INT64_BYTES + FP32_BYTES) * (at.moment == "backward/loss"))


def _workspace(at: RoleInstant) -> int:
    """The judge's Transformer Engine has a workspace of its own size: cpp_extensions/gemm.py."""
    return WORKSPACE - at.plan.stack.workspace


def _loss(at: RoleInstant) -> int:
    """Beside what is gathered the loss has its own three statistics of a token, and the token's loss.

    transformer_engine/pytorch/triton/cross_entropy.py. Labels of several sequences are copied, sequence first. A mean
    over one device is a single number, which the judge leaves out.
    """
    if at.moment != "forward/loss" or not at.role.last or at.plan.kernels.loss != "fused":
        return 0
    copied = INT64_BYTES * at.tokens if at.plan.run.micro_batch > 1 else 0
    return 4 * FP32_BYTES * at.tokens + copied - (FP32_BYTES if at.plan.parallelism.tensor == 1 else 0)


def _last_input(at: RoleInstant) -> int:
    """`set_input_tensor` keeps what a stage received last, and its gradient, until the next step's forward."""
    received = at.plan.parallelism.interleave - at.role.first  # each chunk has its own
    return 2 * received * _stream(at) if at.moment in BETWEEN_PASSES else 0


def _frames(at: RoleInstant) -> int:
    """The schedule's frame holds the tensors of the last backward pass, and that of a backward pass what it received.

    megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_without_interleaving: `output_tensor`, by
    whose graph the stage's input is there, `output_tensor_grad` and `input_tensor_grad`.
    """
    layout = at.plan.parallelism
    if layout.pipeline == 1 or at.moment in BETWEEN_PASSES:
        return 0
    if layout.interleave > 1:
        return _lists_of_chunks(at)
    received, gave = not at.role.last, not at.role.first
    if at.forward:
        ahead = layout.pipeline - 1 - at.role.stages[0]
        again = int(micro_batches(at.plan)) - ahead > 1  # a pass that follows a backward pass
        return again * (received + 2 * gave) * _stream(at)
    later = at.moment == "backward/input" or at.moment.endswith(("/end", "/inner"))
    return ((received and later) + gave) * _stream(at)


def _lists_of_chunks(at: RoleInstant) -> int:
    """Where chunks take turns, what the schedule replayed holds in the passes of those that a moment is of."""
    layout, chunks = at.plan.parallelism, at.plan.parallelism.interleave
    stage_visits = chunk_passes(at.role.stages[0], layout.pipeline, chunks, int(micro_batches(at.plan)))
    phase, several = FORWARD if at.forward else BACKWARD, sum(at.role.layers) > chunks
    if at.moment == "backward/input":
        return other_tensors(stage_visits, AFTER, {0}) * _stream(at)
    if at.moment.endswith("/inner"):
        return other_tensors(stage_visits, phase, range(0 if several else 1, chunks - 1)) * _stream(at)
    if at.moment == "forward/input" or at.moment.endswith(("/start", "/end")):
        framed = several and not at.forward  # the gradient that came, while the chunk's first layer runs
        return (other_tensors(stage_visits, phase, {0}) + framed) * _stream(at)
    return other_tensors(stage_visits, phase, {chunks - 1}) * _stream(at) + _input_after_loss(at)


def _input_after_loss(at: RoleInstant) -> int:
    """The next input comes once the loss is done, when its statistics and labels are gone."""
    if at.moment != "forward/loss" or at.plan.kernels.loss != "fused":
        return 0
    gone = at.tokens * (4 * FP32_BYTES + INT64_BYTES + 3 * FP32_BYTES * at.plan.parallelism.tensor)
    return max(0, _stream(at) - gone)


def _stream(at: RoleInstant) -> int:
    """Bytes of the residual stream in bf16, as stages send it to each other."""
    layout = at.plan.parallelism
    shares = layout.tensor if layout.sequence != "off" else 1
    return 2 * at.tokens // shares * at.plan.model.d_model


def _embedding(at: RoleInstant) -> int:
    """The embedding is copied, sequence first, before it is scattered.

    megatron/core/tensor_parallel/layers.py, VocabParallelEmbedding.forward; one sequence needs no copy.
    """
    layout = at.plan.parallelism
    if at.moment != "forward/input" or layout.tensor == 1 or layout.sequence == "off" or at.plan.run.micro_batch == 1:
        return 0
    return 2 * at.tokens * at.plan.model.d_model - _stream(at)


def _positions(at: RoleInstant) -> int:
    """Looked up positions are in the ledger; the embedding's frame holds both tables' rows while it drops and adds.

    megatron/core/models/common/embeddings/language_model_embedding.py, forward.
    """
    model = at.plan.model
    if not model.learned_positions or not at.role.first:
        return 0
    if at.moment == "forward/input" and model.residual_dropout:
        return 2 * (at.tokens + at.length) * model.d_model - INT64_BYTES * at.length
    return -INT64_BYTES * at.length if at.forward else 0


def _bias_sum(at: RoleInstant) -> int:
    """A result without its bias, and with it, while dropout runs: megatron/core/fusions/fused_bias_dropout.py."""
    model, eager = at.plan.model, at.plan.parallelism.tensor == 1 and at.plan.kernels.residual == "eager"
    dropped = eager and model.residual_dropout and model.groups[0].mlp.bias and at.plan.recompute.policy == "none"
    return 2 * _stream(at) if dropped and at.moment.startswith("forward/decoder") else 0


def _attention(at: RoleInstant) -> int:
    """What a layer's attention saves beside the ledger's, in all layers that wait."""
    layers, flying = sum(at.role.layers), int(at.role.in_flight)
    if at.moment in BETWEEN_PASSES or at.plan.model.groups[0].attention.kind == "latent":
        return 0
    waiting = layers * flying
    if at.moment in ("forward/input", "backward/input"):
        waiting -= layers
    elif at.moment.endswith("/end"):
        waiting -= layers - 1
    return waiting * extra_saved_bytes(at.plan)


def _tied_embedding(at: RoleInstant) -> int:
    """What the embedding's backward read is gone when its gradient is summed with the head's."""
    one_stage = at.role.first and at.role.last and at.plan.model.tied
    return -_stream(at) - INT64_BYTES * at.tokens if one_stage and at.moment == "backward/input" else 0


def _rebuilt_graphs(at: RoleInstant) -> int:
    """Where layers with experts are rebuilt, each keeps its input and the gradient of that until its next forward.

    Scores that a dispatcher keeps (`self.probs`) are of the rebuilt graph, whose leaf is the checkpoint's input
    (megatron/core/tensor_parallel/random.py, CheckpointFunction.backward). The gradient of the layer that ran last is
    in the ledger, as the next one reads it, and so are inputs of all layers while the first runs forward.
    """
    if at.plan.recompute.policy != "full" or at.plan.stack.expert_rows != "mapped":
        return 0
    groups = zip(at.plan.model.groups, at.role.layers, strict=True)
    layers = sum(count for group, count in groups if group.mlp.experts)
    streams = 2 * layers if at.moment in (*BETWEEN_PASSES, "forward/input") else 0
    streams += (layers - 1) * (at.forward and at.moment.endswith("/start"))
    streams += (2 * layers - 1) * (at.moment == "backward/input")
    streams += max(0, 2 * layers - 3) * (not at.forward and at.moment.endswith("/end"))
    return streams * _stream(at) if layers else 0


WORKSPACE = 33_555_456  # bytes, since Hopper
CAUSES: Mapping[str, Callable[[RoleInstant], int]] = {
    "token ids, which come with a micro-batch": token_ids,
    "positions, labels and ids of a part of the vocabulary": _inputs,
    "which tokens another part of the vocabulary has": _mask,
    "the table of rotations, which is kept": _tables,
    "frequencies of rotations, lengths and parts of sequences": _lists,
    "statistics of each token's loss": _loss,
    "what a loss with joined sums has of each token": _joined_loss,
    "the workspace of this Transformer Engine": _workspace,
    "what a stage received last, and its gradient": _last_input,
    "what the schedule's frame holds of the last backward pass": _frames,
    "the embedding's copy, sequence first": _embedding,
    "positions, and rows of both tables of the embedding": _positions,
    "what the embedding's backward read, when gradients of a tied weight are summed": _tied_embedding,
    "a result and its sum with a bias, before dropout": _bias_sum,
    "what attention saves in Transformer Engine": _attention,
    "places of experts' rows, and of where they came from": sorted_places,
    "inputs of rebuilt layers and their gradients, to which kept scores lead": _rebuilt_graphs,
    "what corrects the choice of experts, and their counts": expert_choice,
    "scales of whole tensors, which are single numbers": single_scales,
    "scales and histories that a layer's second run starts from": stashed_scales,
    "scales of blocks, padded together": padded_scales,
    "the gradient that a norm gives, where its products' columns were": norm_gradient,
    "columns in blocks, before they are turned": turned_columns,
}


# --- the interleaved schedule, replayed on one stage ---

FORWARD, BACKWARD, AFTER = "forward", "backward", "after backward"


@dataclass(eq=False)
class StageTensor:
    """A tensor that goes from stage to stage: its gradient, and whether its data is gone (deallocate_output_tensor)."""

    gradient: StageTensor | None = None
    gone: bool = False


@dataclass(frozen=True)
class ChunkPass:
    """A pass of a chunk on a stage: chunks of micro-batches in flight with it, and tensors held beside what they save.

    AFTER it, its own gradients are among these.
    """

    phase: str
    chunk: int
    flying: int
    further_passes: int


@dataclass
class ReplayedStage:
    """One stage of `stages` with `chunks`, and what it holds of `count` micro-batches as the schedule goes on."""

    place: int
    stages: int
    chunks: int
    count: int
    inputs: list[list[StageTensor | None]] = field(init=False)
    outputs: list[list[StageTensor | None]] = field(init=False)
    gradients: list[list[StageTensor | None]] = field(init=False)
    received: list[StageTensor | None] = field(init=False)  # of each chunk what came last: decoder.input_tensor
    saved: list[tuple[StageTensor | None, int]] = field(
        default_factory=list
    )  # inputs that layers save, with their chunk
    names: dict[str, StageTensor | None] = field(default_factory=dict)  # local names of the schedule
    visits: list[ChunkPass] = field(default_factory=list)

    def __post_init__(self) -> None:
        """One empty list per chunk."""
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

    def forward(self, index: int) -> StageTensor | None:
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
        result = None if self.last and chunk == self.chunks - 1 else StageTensor()
        self.outputs[chunk].append(result)
        return result

    def backward(self, index: int) -> StageTensor | None:
        """A backward pass; the gradient that it sends."""
        chunk = self.chunk(index, forward=False)
        if self.last and chunk == self.chunks - 1 and not self.gradients[chunk]:
            self.gradients[chunk].append(None)
        entering, result, upstream = (tensors[chunk].pop(0) for tensors in (self.inputs, self.outputs, self.gradients))
        framed = (entering, result, upstream)
        self.note(BACKWARD, chunk, framed, (entering, upstream))
        self.saved.pop(next(place for place, (_, saved_chunk) in enumerate(self.saved) if saved_chunk == chunk))
        if entering is not None:
            entering.gradient = StageTensor()
        self.note(AFTER, chunk, framed, (entering,))
        return None if entering is None or (self.first and chunk == 0) else entering.gradient

    def note(
        self, phase: str, chunk: int, framed: Iterable[StageTensor | None], of_pass: Iterable[StageTensor | None]
    ) -> None:
        """Counts what is held now but by layers."""
        lists = (*self.inputs, *self.outputs, *self.gradients, self.received, self.names.values(), framed)
        alive = {id(sent) for tensors in lists for sent in _alive(tensors)}
        saved = {id(sent) for sent in (*(sent for sent, _ in self.saved), *of_pass) if sent is not None}
        self.visits.append(ChunkPass(phase, chunk, len(self.saved), len(alive - saved)))

    def let_go(self) -> None:
        """Gives back the data of what was sent last."""
        if sent := self.names.get("output_tensor"):
            sent.gone = True

    def warm_up(self, passes: int) -> None:
        """Forward passes alone; the name of what came last stays."""
        self.inputs[0].append(None if self.first else StageTensor())
        for index in range(passes):
            comes, chunk = self.comes(index, forward=True)
            self.names["output_tensor"] = self.forward(index)
            came = StageTensor() if comes and index < self.total - 1 else None
            self.names["input_tensor"] = came
            if came:
                self.inputs[chunk].append(came)
            self.let_go()
        self.gradients[-1].append(None if self.last else StageTensor())

    def steady(self, warm: int, passes: int) -> None:
        """A forward pass and a backward pass in turn."""
        for index in range(passes):
            self.let_go()
            sent = self.forward(warm + index)
            comes, chunk = self.comes(warm + index, forward=True)
            if comes and index < passes - 1:
                self.inputs[chunk].append(StageTensor())
            self.names["forward_output_tensor"] = sent
            gradient = self.backward(index)
            comes, chunk = self.comes(index, forward=False)
            if comes:
                self.gradients[chunk].append(StageTensor())
            self.names |= {"output_tensor": sent, "forward_output_tensor": None, "input_tensor_grad": gradient}
        self.let_go()

    def cool_down(self, done: int) -> None:
        """The backward passes that are left once every forward pass has run; `done` of them had run before."""
        for index in range(done, self.total):
            comes, chunk = self.comes(index, forward=False)
            gradient = self.backward(index)
            came = StageTensor() if comes and index < self.total - 1 else None
            self.names |= {"input_tensor_grad": gradient, "output_tensor_grad": came}
            if came:
                self.gradients[chunk].append(came)


def _alive(tensors: Iterable[StageTensor | None]) -> Iterator[StageTensor]:
    for sent in tensors:
        if sent is not None and not sent.gone:
            yield sent
            yield from _alive((sent.gradient,))


@cache
def chunk_passes(place: int, stages: int, chunks: int, count: int) -> tuple[ChunkPass, ...]:
    """Every pass of a stage in one step (get_pp_rank_microbatches)."""
    stage = ReplayedStage(place, stages, chunks, count)
    warm = min(stage.total, 2 * (stages - place - 1) + (chunks - 1) * stages)
    stage.warm_up(warm)
    stage.steady(warm, stage.total - warm)
    stage.cool_down(stage.total - warm)
    return tuple(stage.visits)


def other_tensors(stage_visits: Iterable[ChunkPass], phase: str, among: Iterable[int]) -> int:
    """Tensors held beside what layers save in the fullest pass of some chunks: most in flight, then most of these."""
    chunks = set(among)
    candidates = [visit for visit in stage_visits if visit.phase == phase and visit.chunk in chunks]
    return max(candidates, key=lambda visit: (visit.flying, visit.further_passes)).further_passes if candidates else 0
