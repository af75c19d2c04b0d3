"""Named causes for which Megatron-Core holds other bytes than the ledger says, each worked out from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.megatron import interleaved
from ledger.lab.judges.megatron.attention import beside_a_core
from ledger.lab.judges.megatron.experts import expert_choice, sorted_places
from ledger.lab.judges.megatron.interleaved import AFTER, BACKWARD, FORWARD
from ledger.lab.judges.megatron.scales import (
    norm_gradient,
    padded_scales,
    single_scales,
    stashed_scales,
    turned_columns,
)
from ledger.lab.judges.role_instant import BETWEEN, RoleInstant, token_ids
from ledger.lab.verification.causes import INDEX, WIDE
from ledger.model.schedule import Role, micro_batches
from ledger.spec.plan import Plan


def causes(plan: Plan, role: Role, moment: str) -> Iterator[KnownDifference]:
    """What explains part of found minus predicted at one moment."""
    at = RoleInstant(plan, moment, role)
    for name, amount in CAUSES.items():
        yield KnownDifference(name, amount(at))


def _inputs(at: RoleInstant) -> int:
    """Positions, labels, and the ids that a part of the vocabulary has are there while forward runs."""
    if not at.forward:
        return 0
    if not at.first:
        return INDEX * at.tokens if at.role.last else 0
    return INDEX * at.length + (INDEX * at.tokens if at.plan.parallelism.tensor > 1 else 0)


def _mask(at: RoleInstant) -> int:
    """An embedding that is split over the vocabulary saves which tokens are not its own, a byte each."""
    if not at.first or at.plan.parallelism.tensor == 1 or at.moment in BETWEEN:
        return 0
    flying = int(at.role.in_flight) - (at.moment == "backward/input")
    return at.tokens * flying


def _tables(at: RoleInstant) -> int:
    """The table of rotations is made once by each chunk and kept; the ledger has one while layers run."""
    if at.plan.model.groups[0].attention.expanded:  # each layer has its own, in the ledger too
        return 0
    kept = at.moment in BETWEEN or at.moment in ("forward/input", "backward/input")
    return WIDE * at.length * at.rotated * (at.plan.parallelism.interleave - 1 + kept)


def _lists(at: RoleInstant) -> int:
    """A rotary embedding keeps a list of frequencies, attention where each sequence begins, if there are several.

    That of latent attention is one of each layer, and keeps three lists (yarn_rotary_pos_embedding.py). Context
    parallelism keeps which two parts of the sequence each rank has.
    """
    sequences, ranks = at.plan.run.micro_batch, at.plan.parallelism.context
    begins = WIDE * (sequences + 1) if sequences > 1 else 0
    parts = 2 * INDEX * ranks if ranks > 1 and at.plan.parallelism.context_exchange != "ring" else 0
    latent = at.plan.model.groups[0].attention.expanded
    lists = 3 * sum(at.role.layers) if latent else at.plan.parallelism.interleave
    return WIDE * (at.rotated // 2) * lists + begins + parts


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
        return at.tokens * (1 + INDEX + 4 * WIDE) - WIDE
    return at.tokens * (1 + (INDEX + WIDE) * (at.moment == "backward/loss"))


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
    copied = INDEX * at.tokens if at.plan.run.micro_batch > 1 else 0
    return 4 * WIDE * at.tokens + copied - (WIDE if at.plan.parallelism.tensor == 1 else 0)


def _last_input(at: RoleInstant) -> int:
    """`set_input_tensor` keeps what a stage received last, and its gradient, until the next step's forward."""
    received = at.plan.parallelism.interleave - at.role.first  # each chunk has its own
    return 2 * received * _stream(at) if at.moment in BETWEEN else 0


def _frames(at: RoleInstant) -> int:
    """The schedule's frame holds the tensors of the last backward pass, and that of a backward pass what it received.

    megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_without_interleaving: `output_tensor`, by
    whose graph the stage's input is there, `output_tensor_grad` and `input_tensor_grad`.
    """
    layout = at.plan.parallelism
    if layout.pipeline == 1 or at.moment in BETWEEN:
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
    found = interleaved.visits(at.role.stages[0], layout.pipeline, chunks, int(micro_batches(at.plan)))
    phase, several = FORWARD if at.forward else BACKWARD, sum(at.role.layers) > chunks
    if at.moment == "backward/input":
        return interleaved.beside(found, AFTER, {0}) * _stream(at)
    if at.moment.endswith("/inner"):
        return interleaved.beside(found, phase, range(0 if several else 1, chunks - 1)) * _stream(at)
    if at.moment == "forward/input" or at.moment.endswith(("/start", "/end")):
        framed = several and not at.forward  # the gradient that came, while the chunk's first layer runs
        return (interleaved.beside(found, phase, {0}) + framed) * _stream(at)
    return interleaved.beside(found, phase, {chunks - 1}) * _stream(at) + _after_loss(at)


def _after_loss(at: RoleInstant) -> int:
    """The next input comes once the loss is done, when its statistics and labels are gone."""
    if at.moment != "forward/loss" or at.plan.kernels.loss != "fused":
        return 0
    gone = at.tokens * (4 * WIDE + INDEX + 3 * WIDE * at.plan.parallelism.tensor)
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
    if not model.learned_positions or not at.first:
        return 0
    if at.moment == "forward/input" and model.residual_dropout:
        return 2 * (at.tokens + at.length) * model.d_model - INDEX * at.length
    return -INDEX * at.length if at.forward else 0


def _biased(at: RoleInstant) -> int:
    """A result without its bias, and with it, while dropout runs: megatron/core/fusions/fused_bias_dropout.py."""
    model, alone = at.plan.model, at.plan.parallelism.tensor == 1 and at.plan.kernels.residual == "eager"
    dropped = alone and model.residual_dropout and model.groups[0].mlp.bias and at.plan.recompute.policy == "none"
    return 2 * _stream(at) if dropped and at.moment.startswith("forward/decoder") else 0


def _attention(at: RoleInstant) -> int:
    """What a layer's attention saves beside the ledger's, in all layers that wait."""
    layers, flying = sum(at.role.layers), int(at.role.in_flight)
    if at.moment in BETWEEN or at.plan.model.groups[0].attention.kind == "latent":
        return 0
    waiting = layers * flying
    if at.moment in ("forward/input", "backward/input"):
        waiting -= layers
    elif at.moment.endswith("/end"):
        waiting -= layers - 1
    return waiting * beside_a_core(at.plan)


def _tied(at: RoleInstant) -> int:
    """What the embedding's backward read is gone when its gradient is summed with the head's."""
    alone = at.first and at.role.last and at.plan.model.tied
    return -_stream(at) - INDEX * at.tokens if alone and at.moment == "backward/input" else 0


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
    kept = 2 * layers if at.moment in (*BETWEEN, "forward/input") else 0
    kept += (layers - 1) * (at.forward and at.moment.endswith("/start"))
    kept += (2 * layers - 1) * (at.moment == "backward/input")
    kept += max(0, 2 * layers - 3) * (not at.forward and at.moment.endswith("/end"))
    return kept * _stream(at) if layers else 0


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
    "what the embedding's backward read, when gradients of a tied weight are summed": _tied,
    "a result and its sum with a bias, before dropout": _biased,
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
