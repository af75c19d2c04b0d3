"""Rules on what backward rebuilds, and on which weights are trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ledger.spec.loss_chunks import CHUNKED_LOSSES
from ledger.spec.places import Places
from ledger.spec.plan import Group, Kernels, Model, Parallelism, Recompute, Run, Train
from ledger.spec.problems import Problem

LAYER_PARTS = ("attention", "mlp", "attention_norm", "mlp_norm")  # of every layer
MODEL_ENDS = ("embedding", "head", "final_norm")
COUNTED_POLICIES = {"layers": "layers", "segment": "segments of layers"}
RECOMPUTE_CHOICES = ("every", "layers", "segment", "components", "keep")


# --- recompute ----------------------------------------------------------------------------------


def recompute_has_one_policy(recompute: Recompute, at: Places) -> Iterator[Problem]:
    """Policies do not add up."""
    given = [choice for choice in RECOMPUTE_CHOICES if f"recompute.{choice}" in at.origins]
    if len(given) > 1:
        message = (
            f"recompute has {' and '.join(f'`{choice}`' for choice in given)}, but {recompute.policy} is one policy"
        )
        yield Problem(at(f"recompute.{given[1]}"), message, f"one of {', '.join(RECOMPUTE_CHOICES)}")


def recompute_counts_equal_layers(
    model: Model, parallelism: Parallelism, recompute: Recompute, at: Places
) -> Iterator[Problem]:
    """Layers are counted, and joined to segments, within one group after the other."""
    if recompute.policy not in COUNTED_POLICIES or len(model.groups) < 2:
        return
    what = COUNTED_POLICIES[recompute.policy]
    if model.order:
        message = f"{what} are recomputed, but the model's groups take turns"
        yield Problem(
            at("recompute"), message, "`full`, `selective`, `{every: n}`, `{components: [...]}` or `{keep: [...]}`"
        )
    elif parallelism.interleave > 1:
        message = f"{what} are recomputed in each of {parallelism.interleave} chunks, but the model has several groups"
        yield Problem(at("recompute"), message, "`interleave: 1`, or another policy")


def recompute_counts_what_there_is(model: Model, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """No more layers are recomputed than the model has, and every n-th of them is one at least."""
    layers = sum(group.repeat for group in model.groups)
    asked = max(recompute.layers, recompute.segment, recompute.every)
    if not model.bare and asked > layers:
        message = f"{recompute.policy} = {asked}, but the model has {layers} layers"
        whole = "`every: 1`" if recompute.policy == "every" else "all of them"
        yield Problem(at(f"recompute.{recompute.policy}"), message, f"at most {layers}; {whole} is `full`")


def recomputed_components_exist(model: Model, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """A component is recomputed where a layer has it."""
    there = {
        "experts": any(group.mlp.kind == "experts" for group in model.groups),
        "up_projection": any(group.attention.expanded for group in model.groups),
    }
    for name in recompute.components:
        if not there.get(name, True) and not model.bare:
            others = [other for other in ("core", "attention", "mlp", "norm", "activation") if other != name]
            message = f"`{name}` is recomputed, but no layer of the model has it"
            yield Problem(at("recompute.components"), message, f"there are {', '.join(others)}")


def predictions_are_rebuilt_whole(model: Model, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """The layer that predicts a further token is checkpointed as a whole, by component, or not at all."""
    if model.predictions and recompute.policy == "keep":
        message = "results of single kernels are kept, but the layer of `multi_token` is checkpointed as a whole"
        yield Problem(at("recompute.keep"), message, "`full`, `selective` or `{components: [...]}`")


def counted_matmuls_are_kept(recompute: Recompute, at: Places) -> Iterator[Problem]:
    """Every second matmul is dropped of those that are kept."""
    if recompute.matmuls == "every_second" and "matmul" not in recompute.keep:
        message = "every second matmul is to be rebuilt, but `keep` has no `matmul`"
        yield Problem(at("recompute.matmuls"), message, "add `matmul` to `keep`, or leave `matmuls` out")


# --- the loss -----------------------------------------------------------------------------------


def loss_has_parts(model: Model, kernels: Kernels, run: Run, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A loss that goes part by part has no more parts than there are tokens of a sequence on a device."""
    if kernels.loss not in CHUNKED_LOSSES:
        if kernels.loss_chunks:
            message = f"`loss_chunks` with `loss: {kernels.loss}`, which takes the sequence as one"
            yield Problem(at("kernels.loss_chunks"), message, f"`loss: {' | '.join(CHUNKED_LOSSES)}`, or leave it out")
        return
    if model.bare or model.image:
        return
    tokens = run.seq_len // parallelism.context
    if kernels.loss_chunks > tokens:
        message = f"the loss in {kernels.loss_chunks} parts, but a device has {tokens} tokens of a sequence"
        yield Problem(at("kernels.loss_chunks"), message, f"`loss_chunks:` at most {tokens}")


def fused_linear_runs(model: Model, kernels: Kernels, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """The kernel that fuses head and loss knows neither a split vocabulary nor a soft cap outside itself nor a bias."""
    if kernels.loss == "fused_linear" and parallelism.tensor > 1:
        message = f"`fused_linear` needs the whole vocabulary, but tensor = {parallelism.tensor} splits it"
        yield Problem(at("kernels.loss"), message, "`loss: chunked`, or `tensor: 1`")
    if kernels.loss == "fused_linear" and model.head_bias:
        message = "`fused_linear` is not modelled for a head with a bias"
        yield Problem(at("kernels.loss"), message, "`loss: chunked` or `loss: fused`")


# --- what is trained ----------------------------------------------------------------------------


def trained_parts_exist(model: Model, train: Train, at: Places) -> Iterator[Problem]:
    """Weights are named by part, by group, or by a part of one group."""
    groups = [group.name for group in model.groups]
    sandwiched = any(group.norms != "pre" for group in model.groups)
    parts = (*LAYER_PARTS, *(("attention_post_norm", "mlp_post_norm") if sandwiched else ()))
    legal = {
        *(("multi_token",) if model.predictions else ()),
        *MODEL_ENDS,
        *parts,
        *groups,
        *(f"{group}/{part}" for group in groups for part in parts),
    }
    for name in train.names:
        if name not in legal and not model.bare:
            shown = ", ".join((*MODEL_ENDS, *parts, *groups, f"{groups[0]}/mlp"))
            yield Problem(at(f"train.{train.kind}"), f"`{name}` is no part of the model", f"parts are {shown}")


def something_is_trained(model: Model, train: Train, at: Places) -> Iterator[Problem]:
    """A plan trains at least one weight."""
    groups = {group.name for group in model.groups}
    everything = {*MODEL_ENDS, *groups} - ({"head"} if model.tied else set())
    layers = groups <= set(train.names) or set(LAYER_PARTS) <= set(train.names)
    frozen = set(train.names) | (groups if layers else set())
    if train.kind == "frozen" and everything <= frozen and not model.bare:
        yield Problem(at("train.frozen"), "every weight of the model is frozen", "leave out what is to be trained")
    if train.kind == "only" and train.names == ("head",) and model.tied:
        message = "only the head is trained, but its weight is the embedding's"
        yield Problem(at("train.only"), message, "`only: [embedding]` trains both uses")


def bare_models_train_whole(model: Model, train: Train, at: Places) -> Iterator[Problem]:
    """A parameter count has no parts."""
    if model.bare and train.kind != "all":
        message = "a model of which only a count is known has no parts to freeze"
        yield Problem(at("train"), message, "`train: all`, or a model with layers")


def adapters_find_their_matrices(model: Model, train: Train, at: Places) -> Iterator[Problem]:
    """Every target of low-rank adaptation is a matrix of some layer; experts have none of their own."""
    if train.lora is None or model.bare:
        return
    lora = train.lora
    if not lora.targets:
        message = f"rank = {lora.rank}, but no matrix is named that has an adapter of it"
        yield Problem(at("train.lora"), message, "`targets: [q, v]`, or ranks by target: `rank: {q: 16, v: 8}`")
    if isinstance(lora.rank, Mapping) and set(lora.rank) != set(lora.targets):
        message = f"ranks of {', '.join(lora.rank)}, but targets {', '.join(lora.targets)}"
        yield Problem(at("train.lora.targets"), message, "leave `targets` out: the keys of `rank` are the targets")
    there = {name for group in model.groups for name in (*group.attention.matrices, *_matrices(group))}
    for target in train.lora.targets:
        if target not in there:
            message = f"`{target}` is no matrix that a layer of the model could adapt"
            yield Problem(at("train.lora.targets"), message, f"there are {', '.join(sorted(there))}")


def _matrices(group: Group) -> tuple[str, ...]:
    if group.mlp.kind == "gated" and group.mlp.fused_gate_up:
        return "gate_up", "down"
    return {"gated": ("gate", "up", "down"), "plain": ("up", "down")}.get(group.mlp.kind, ())


def frozen_layers_move_alone(
    model: Model, parallelism: Parallelism, train: Train, recompute: Recompute, at: Places
) -> Iterator[Problem]:
    """Where no gradient reaches the first layer's input, that layer differs from the others."""
    embedding = "embedding" in train.names
    reached = {"all": True, "lora": False, "only": embedding, "frozen": not embedding}
    if reached[train.kind] or model.bare:
        return
    if parallelism.wrap != 1 and parallelism.zero == 3:
        message = "weights of several layers are gathered together, but the first layer has another backward pass"
        yield Problem(at("parallelism.wrap"), message, "`wrap: layer` where weights are frozen")
    if recompute.policy == "segment":
        message = "layers are rebuilt in segments, but the first layer has another backward pass"
        yield Problem(at("recompute"), message, "`full`, or `train: all`")
