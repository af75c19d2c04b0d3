"""Rules on training: recomputation, the loss, trained weights, optimizers, number formats, and packed documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ledger.spec.documents import TOLD_BOUNDS, WRITES_SCORES
from ledger.spec.loss_chunks import CHUNKED_LOSSES
from ledger.spec.optimizer import WEIGHT_KINDS, Optimizer
from ledger.spec.paths import Places, multiples
from ledger.spec.plan import Accelerator, Group, Kernels, Model, Parallelism, Precision, Recompute, Run, Serve, Train
from ledger.spec.precision import HALF, WHOLE_TENSOR
from ledger.spec.problems import Problem
from ledger.spec.rules.device import peak_key

LAYER_PARTS = ("attention", "mlp", "attention_norm", "mlp_norm")  # of every layer
MODEL_ENDS = ("embedding", "head", "final_norm")
COUNTED_POLICIES = {"layers": "layers", "segment": "segments of layers"}
RECOMPUTE_CHOICES = ("every", "layers", "segment", "components", "keep")


# --- recomputation ---


def recompute_has_one_policy(recompute: Recompute, at: Places) -> Iterator[Problem]:
    """Policies do not add up."""
    stated = [choice for choice in RECOMPUTE_CHOICES if f"recompute.{choice}" in at.origins]
    if len(stated) > 1:
        policies = " and ".join(f"`{choice}`" for choice in stated)
        message = f"recompute has {policies}, but {recompute.policy} is one policy"
        yield Problem(at(f"recompute.{stated[1]}"), message, f"one of {', '.join(RECOMPUTE_CHOICES)}")


def recompute_counts_equal_layers(
    model: Model, parallelism: Parallelism, recompute: Recompute, at: Places
) -> Iterator[Problem]:
    """Layers are counted, and joined to segments, within one group after the other."""
    if recompute.policy not in COUNTED_POLICIES or len(model.groups) < 2:
        return
    counted = COUNTED_POLICIES[recompute.policy]
    if model.order:
        message = f"{counted} are recomputed, but the model's groups take turns"
        help_text = "`full`, `selective`, `{every: n}`, `{components: [...]}` or `{keep: [...]}`"
        yield Problem(at("recompute"), message, help_text)
    elif parallelism.interleave > 1:
        message = f"{counted} are recomputed in each of {parallelism.interleave} chunks"
        message += ", but the model has several groups"
        yield Problem(at("recompute"), message, "`interleave: 1`, or another policy")


def recompute_counts_what_there_is(model: Model, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """No more layers are recomputed than the model has, and every n-th of them is one at least."""
    layers = sum(group.repeat for group in model.groups)
    counted = max(recompute.layers, recompute.segment, recompute.every)
    if not model.bare and counted > layers:
        message = f"{recompute.policy} = {counted}, but the model has {layers} layers"
        all_layers = "`every: 1`" if recompute.policy == "every" else "all of them"
        yield Problem(at(f"recompute.{recompute.policy}"), message, f"at most {layers}; {all_layers} is `full`")


def recomputed_components_exist(model: Model, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """A component is recomputed where a layer has it."""
    is_there = {
        "experts": any(group.mlp.kind == "experts" for group in model.groups),
        "up_projection": any(group.attention.expanded for group in model.groups),
    }
    for name in recompute.components:
        if not is_there.get(name, True) and not model.bare:
            existing = [part for part in ("core", "attention", "mlp", "norm", "activation") if part != name]
            message = f"`{name}` is recomputed, but no layer of the model has it"
            yield Problem(at("recompute.components"), message, f"there are {', '.join(existing)}")


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


# --- the loss ---


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


# --- trained weights ---


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
            listed = ", ".join((*MODEL_ENDS, *parts, *groups, f"{groups[0]}/mlp"))
            yield Problem(at(f"train.{train.kind}"), f"`{name}` is no part of the model", f"parts are {listed}")


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


def counts_have_no_shapes(model: Model, optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """A parameter count has no rows and columns, of which some states are kept."""
    if model.bare and (states := optimizer.shaped_states):
        message = f"{optimizer.title} keeps its {states[0].replace('_', ' ')} by rows and columns: of a bare parameter "
        yield Problem(at("optimizer"), f"{message}count it is left out", "a model with layers has shapes")


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
    matrices = {name for group in model.groups for name in (*group.attention.matrices, *_mlp_matrices(group))}
    for target in train.lora.targets:
        if target not in matrices:
            message = f"`{target}` is no matrix that a layer of the model could adapt"
            yield Problem(at("train.lora.targets"), message, f"there are {', '.join(sorted(matrices))}")


def _mlp_matrices(group: Group) -> tuple[str, ...]:
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


# --- optimizers ---


def update_exists(optimizer: Optimizer, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """The optimizer has the implementation that the plan names; what the stack prefers gives way by itself."""
    implementations = optimizer.implementations()
    if implementations and kernels.optimizer not in implementations:
        message = f"{optimizer.title or optimizer.name} has no {kernels.optimizer} update"
        yield Problem(at("kernels.optimizer"), message, f"it has {', '.join(implementations)}")


def every_weight_is_updated(optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """What a rule does not update, another does."""
    rule, place = optimizer, "optimizer"
    while rule.otherwise is not None:
        rule, place = rule.otherwise, f"{place}.otherwise"
    not_updated = [kind for kind in WEIGHT_KINDS if kind not in rule.weights]
    if not_updated:
        message = f"nothing updates the {' and '.join(not_updated)}: {rule.title} is for {' and '.join(rule.weights)}"
        yield Problem(at(f"{place}.weights"), message, "`otherwise: adamw` updates the rest")


def update_multiplies(optimizer: Optimizer, accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """The accelerator multiplies in the dtype of the products that an update is made of."""
    schulz = optimizer.newton_schulz
    if schulz is not None and peak_key(schulz.dtype) not in accelerator.peak:
        message = f"{accelerator.title} has no {schulz.dtype} peak, and {optimizer.title} multiplies in it"
        yield Problem(at("optimizer.newton_schulz.dtype"), message, f"it has {', '.join(accelerator.peak)}")


def states_are_of_a_shape(optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """Scales belong to blocks of whole states."""
    for name, state in optimizer.states.items():
        odd = sorted(set(state.shapes.values()) - {"whole"})
        if state.scales is not None and odd:
            message = f"`{name}` has scales for blocks of {state.scales.block}, but is {' and '.join(odd)}"
            yield Problem(at(f"optimizer.states.{name}.scales"), message, "only `shape: whole` is cut into blocks")


# --- quantised operands ---

ALIGNED = 16  # bytes: torch._scaled_mm and cuBLASLt multiply 8-bit matrices whose sides are multiples of this
PACKED = {"e2m1": 2}  # elements of a byte


def operands_are_aligned(
    model: Model, precision: Precision, parallelism: Parallelism, run: Run, at: Places
) -> Iterator[Problem]:
    """Every side of a quantised product is a multiple of 16 bytes on each device."""
    recipe = precision.matmul
    if recipe is None or model.bare:
        return
    step = ALIGNED * PACKED.get(recipe.format, 1)
    tokens = run.micro_batch * run.seq_len // parallelism.context
    sizes = {"run.seq_len": ("tokens of a micro-batch", tokens), "model.d_model": ("d_model", model.d_model)}
    for group in model.groups:
        attention, path = group.attention, f"model.layers.{group.name}"
        if not attention.expanded and not recipe.leaves("attention", group.name):
            for field, count in attention.split_heads.items():
                width = count * attention.head_dim // parallelism.tensor
                sizes[f"{path}.attention.{field}"] = f"{field} x head_dim of `{group.name}`", width
        if not recipe.leaves("mlp", group.name):
            width = group.mlp.d_ff // parallelism.tensor
            sizes[f"{path}.mlp.d_ff"] = f"d_ff of `{group.name}`", width
    for path, (name, size) in sizes.items():
        if size % step:
            message = f"{name} = {size} on a device: {recipe.format} matmuls need multiples of {step}"
            yield Problem(at(path), message, multiples(size, step))


def blocks_fit(model: Model, precision: Precision, at: Places) -> Iterator[Problem]:
    """A width that blocks do not divide ends in a short block, which has a scale of its own."""
    recipe = precision.matmul
    if recipe is None or model.bare:
        return
    block = max(recipe.activation_block[1], recipe.weight_block[1])
    if block > 1 and model.d_model % block:
        message = f"d_model = {model.d_model} is no multiple of blocks of {block}: the last block is padded"
        yield Problem(at("model.d_model"), message, multiples(model.d_model, block))


def quantised_streams_are_saved(precision: Precision, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Where a sequence is gathered before it is quantised, backward keeps the copies of the gathered one."""
    recipe = precision.matmul
    quantised = recipe is None or (recipe.gathers, recipe.saves) == ("quantised", "quantised")
    if not quantised and parallelism.tensor > 1 and parallelism.sequence == "regather":
        message = "sequence = regather with matmuls that quantise what was gathered: backward keeps those copies"
        help_ = "`sequence: save_gathered` or `off`, or a precision with `matmul: {gathers: quantised}`"
        yield Problem(at("parallelism.sequence"), message, help_)


def what_is_stored_narrow_is_wide(precision: Precision, at: Places) -> Iterator[Problem]:
    """Activations that wait for backward in another format have 16 bits before."""
    if precision.stored and precision.compute not in HALF:
        message = f"`stored` narrows activations of 16 bits, but the precision computes in {precision.compute}"
        yield Problem(at("precision.stored"), message, "a precision that computes in bf16, or leave it out")


def recipes_fit_their_scales(precision: Precision, at: Places) -> Iterator[Problem]:
    """One layout serves both passes only where a transposed matrix has the same scales."""
    recipe = precision.matmul
    if recipe is None:
        return
    if recipe.layouts == "one" and (recipe.activation_block, recipe.weight_block) != (WHOLE_TENSOR, WHOLE_TENSOR):
        message = "layouts = one with scales of rows or blocks: backward contracts the other side"
        yield Problem(at("precision.matmul.layouts"), message, "`layouts: both`, or one scale a tensor")
    if recipe.history and (recipe.activation_block, recipe.weight_block) != (WHOLE_TENSOR, WHOLE_TENSOR):
        message = "delayed scaling with scales of rows or blocks"
        yield Problem(at("precision.matmul.scales.history"), message, "leave `history` out, or one scale a tensor")


# --- formats of stored weights ---

BASE = "precision.weights.base"


def stored_weights_are_frozen(model: Model, precision: Precision, train: Train, at: Places) -> Iterator[Problem]:
    """What is only stored quantised has no gradient (bitsandbytes, Params4bit: `requires_grad=False`)."""
    if not precision.weights.is_stored_only or train.lora is not None or _freezes_matrices(model, train):
        return
    message = f"weights in {precision.weights.base} cannot be trained, and this plan trains matrices of layers"
    yield Problem(at(BASE), message, "`train: {lora: {rank: 16, targets: [q, v]}}`, or weights in bf16")


def quantised_weights_are_gathered(precision: Precision, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What is quantised before it is gathered is gathered: by ZeRO 3."""
    recipe = precision.matmul
    if recipe is not None and recipe.weights == "gathered" and parallelism.zero < 3:
        message = f"precision.matmul.weights: gathered with zero = {parallelism.zero}, which gathers no weights for use"
        yield Problem(at("precision.matmul.weights"), message, "`weights: kept` or `weights: anew`, or `zero: 3`")


def second_layouts_are_of_lasting_weights(precision: Precision, at: Places) -> Iterator[Problem]:
    """A layout is made of another one where that lasts, and where there are two."""
    recipe = precision.matmul
    if recipe is not None and recipe.turned == "anew" and not recipe.turns:
        why = "backward makes all copies anew" if not recipe.lasts else "there is one layout"
        message = f"precision.matmul.turned: anew has no effect: {why}"
        yield Problem(at("precision.matmul.turned"), message, "leave `turned` out")


def _freezes_matrices(model: Model, train: Train) -> bool:
    """Whether no matrix of a layer is trained."""
    names = set(train.names)
    if train.kind == "only":
        return names <= {*MODEL_ENDS, "attention_norm", "mlp_norm"}
    all_groups = {group.name for group in model.groups} <= names
    return train.kind == "frozen" and (all_groups or {*LAYER_PARTS[:2]} <= names)


def stored_weights_are_multiplied_wide(
    model: Model, precision: Precision, kernels: Kernels, at: Places
) -> Iterator[Problem]:
    """What is only stored quantised is brought back to `compute`, by a kernel before each product with it."""
    if not precision.weights.is_stored_only:
        return
    base = precision.weights.base
    if precision.matmul is not None:
        message = f"weights in {base} are brought back to {precision.compute}"
        message += ", and a matmul recipe would quantise them anew"
        yield Problem(at(BASE), message, "leave out `matmul`, or keep weights in bf16")
    kinds = {group.mlp.kind for group in model.groups}
    if "experts" in kinds and kernels.experts == "batched_mm":
        message = f"batched_mm copies rows of the experts' weights, which are not there as rows in {base}"
        yield Problem(at("kernels.experts"), message, "`grouped_mm` or `eager`")
    if "custom" in kinds:
        message = f"products of a custom feed-forward part do not bring back weights in {base}"
        yield Problem(at(BASE), message, "`mlp: {kind: gated}` or `plain`, or weights in bf16")


def experts_of_another_format_serve(precision: Precision, serve: Serve | None, at: Places) -> Iterator[Problem]:
    """Experts in a format of their own are weights that nobody trains (gpt-oss: MXFP4 in its checkpoint)."""
    if precision.weights.experts and serve is None:
        message = f"experts in {precision.weights.experts} beside other matrices in {precision.weights.base} can serve"
        help_text = "leave `experts` out, so that they are kept as `base`"
        yield Problem(at("precision.weights.experts"), f"{message}, and this plan trains", help_text)


def adapters_have_a_format(train: Train, at: Places) -> Iterator[Problem]:
    """A format of adapters is of a plan that trains some."""
    if at.is_stated_by_plan("precision.weights.adapters") and train.lora is None:
        message = "`precision.weights.adapters` has no effect: the plan trains no adapters"
        yield Problem(at("precision.weights.adapters"), message, "`train: {lora: ...}`, or leave it out")


def formats_have_their_parts(model: Model, at: Places) -> Iterator[Problem]:
    """A format that a plan states itself is of weights that the model has."""
    if at.is_stated_by_plan("precision.weights.head") and model.tied:
        message = "`precision.weights.head` has no effect: the head's weight is the embedding's"
        yield Problem(at("precision.weights.head"), message, "`embedding:` says what both are kept in")
    if at.is_stated_by_plan("precision.weights.experts") and not any(group.mlp.experts for group in model.groups):
        message = "`precision.weights.experts` has no effect: the model has no experts"
        yield Problem(at("precision.weights.experts"), message, "leave it out")


# --- packed documents ---

DOCUMENTS = "run.documents"


def documents_fit_their_sequence(run: Run, at: Places) -> Iterator[Problem]:
    """A sequence holds whole documents of several lengths, whose shares are all of them."""
    if run.documents is None or not run.documents.lengths:
        return
    longest = max(length.tokens for length in run.documents.lengths)
    shares = sum(length.share for length in run.documents.lengths)
    if longest > run.seq_len:
        message = f"documents of {longest} tokens do not fit sequences of {run.seq_len}"
        yield Problem(at(f"{DOCUMENTS}.lengths"), message, "state the lengths of the parts that they are cut into")
    if abs(float(shares) - 1) > 1e-6:
        message = f"the shares of documents sum to {float(shares):.6g}, not 1"
        yield Problem(at(f"{DOCUMENTS}.lengths"), message, "give the share of all documents that have each length")


def documents_have_a_kernel(
    run: Run, kernels: Kernels, parallelism: Parallelism, model: Model, at: Places
) -> Iterator[Problem]:
    """Attention that stays within documents is told their bounds, or masks its scores."""
    if run.documents is None:
        return
    if kernels.attention not in (*TOLD_BOUNDS, *WRITES_SCORES):
        message = f"{kernels.attention} attention knows no bounds of documents"
        yield Problem(at(DOCUMENTS), message, f"`kernels.attention` of {', '.join((*TOLD_BOUNDS, *WRITES_SCORES))}")
    if parallelism.context > 1:
        message = f"packed documents with context = {parallelism.context}: how they are cut is not modelled"
        yield Problem(at(DOCUMENTS), message, "`context: 1`, or leave `documents` out")
    for group in model.groups:
        if group.attention.bidirectional:
            message = f"packed documents with layers of `{group.name}` that see both directions are not modelled"
            yield Problem(at(DOCUMENTS), message, "leave `documents` out, or a causal model")
        if any(custom.mixes for custom in group.written.values()):
            message = f"packed documents with a part of `{group.name}`"
            message += " that is written out over a sequence: not modelled"
            yield Problem(at(DOCUMENTS), message, "leave `documents` out, or a kind of attention that is known")
        if group.attention.chunk is not None:
            message = f"packed documents with layers of `{group.name}` that see chunks are not modelled"
            yield Problem(at(DOCUMENTS), message, "leave `documents` out, or a model without chunks")


def documents_are_shorter(run: Run, at: Places) -> Iterator[Problem]:
    """A document as long as its sequence is what a sequence is without any."""
    if run.documents is not None and run.documents.length >= run.seq_len:
        message = f"`documents` has no effect: one of {run.documents.length} tokens fills a sequence of {run.seq_len}"
        yield Problem(at(DOCUMENTS), message, "leave it out, or a longer `seq_len`")
