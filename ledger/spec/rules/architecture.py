"""Rules on kinds of attention, blocks, custom parts and recurrences, and on the architectures that run them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ledger.spec.attention import ATTENTION_KINDS
from ledger.spec.components import COMMON_DIMS
from ledger.spec.paths import Places, divisors
from ledger.spec.plan import Accelerator, CustomPart, Kernels, Model, Parallelism, Precision, Recompute, Run, Train
from ledger.spec.precision import WHOLE_TENSOR, Recipe
from ledger.spec.problems import Problem
from ledger.spec.rules.device import peak_key
from ledger.spec.written_steps import step_problems


@dataclass(frozen=True)
class Needs:
    """The architectures on which something runs, and who says so."""

    architectures: tuple[str, ...]
    source: str


TESTED = "PyTorch 2.13, torch/testing/_internal/common_cuda.py"
SM80 = ("ampere", "ada", "hopper", "blackwell")
TE = "NVIDIA/TransformerEngine, transformer_engine/pytorch"
# Attention kernels and ways to multiply; what is not listed runs everywhere, or where the table of peaks says so.
RUNS_ON: Mapping[str, Needs] = {
    "flash": Needs((*SM80, "cdna2", "cdna3", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_FLASH_ATTENTION"),
    "flash_repeated": Needs((*SM80, "cdna2", "cdna3", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_FLASH_ATTENTION"),
    "varlen": Needs((*SM80, "cdna2", "cdna3", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_FLASH_ATTENTION"),
    "flash3": Needs(("hopper",), "Dao-AILab/flash-attention, README, requirements of FlashAttention-3: H100 / H800"),
    "triton": Needs(SM80, "Dao-AILab/flash-attention, flash_attn_triton.py, tested on A100"),
    "cudnn": Needs(SM80, f"{TESTED}, PLATFORM_SUPPORTS_CUDNN_ATTENTION"),
    "cudnn_grouped": Needs(SM80, f"{TESTED}, PLATFORM_SUPPORTS_CUDNN_ATTENTION"),
    "fp8": Needs(("ada", "hopper", "blackwell", "cdna3", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_FP8"),
    "fp8 with scales of blocks": Needs(
        ("hopper", "blackwell"), f"{TE}/quantization.py, check_fp8_block_scaling_support: compute capability 9.0"
    ),
    "fp8 in one layout": Needs(
        ("blackwell", "cdna3", "cdna4"), f"{TE}/utils.py, is_non_tn_fp8_gemm_supported: compute capability 10.0"
    ),
    "mxfp8": Needs(("blackwell", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_MX_GEMM"),
    "mxfp4": Needs(("blackwell", "cdna4"), f"{TESTED}, PLATFORM_SUPPORTS_MX_GEMM"),
    "nvfp4": Needs(("blackwell",), f"{TE}/quantization.py, check_nvfp4_support: compute capability 10.0"),
}
TESTED_KERNELS = ("flash", "flash_repeated", "varlen", "flash3", "triton", "cudnn", "cudnn_grouped")
EVERYWHERE = ("efficient", "math", "eager")
MULTIPLIED_AS: Mapping[str, str] = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "e2m1": "nvfp4"}


def attention_has_its_architecture(
    accelerator: Accelerator, kernels: Kernels, model: Model, at: Places
) -> Iterator[Problem]:
    """An attention kernel is written for the generations that its authors name."""
    if not model.attends or _runs_on(kernels.attention, accelerator):
        return
    alternatives = [name for name in TESTED_KERNELS if _runs_on(name, accelerator)]
    listed = " | ".join([*alternatives, *EVERYWHERE])
    message = f"{kernels.attention} attention {_refusal(kernels.attention, accelerator)}"
    yield Problem(at("kernels.attention"), message, f"`kernels: {{attention: {listed}}}`")


def operands_have_their_architecture(accelerator: Accelerator, precision: Precision, at: Places) -> Iterator[Problem]:
    """The generation multiplies what the precision multiplies; formats that it has no peak for are told elsewhere."""
    recipe = precision.matmul
    if peak_key(precision.compute) in accelerator.peak:
        name = MULTIPLIED_AS.get(precision.compute, precision.compute)
        if not _runs_on(name, accelerator):
            yield _format_problem(name, accelerator, at)
    if recipe and peak_key(recipe.format) in accelerator.peak:
        name = _recipe_format(recipe)
        if not _runs_on(name, accelerator):
            yield _format_problem(name, accelerator, at)
        elif name == "fp8" and recipe.layouts == "one" and not _runs_on("fp8 in one layout", accelerator):
            yield _format_problem("fp8 in one layout", accelerator, at)


def _recipe_format(recipe: Recipe) -> str:
    """The format in which a recipe multiplies; scales that are powers of two are of the microscaling formats."""
    name = MULTIPLIED_AS[recipe.format]
    if recipe.scale == "e8m0":
        return {"fp8": "mxfp8", "nvfp4": "mxfp4"}[name]
    block = max(recipe.activation_block[1], recipe.weight_block[1])
    return f"{name} with scales of blocks" if name == "fp8" and block > WHOLE_TENSOR[1] else name


def _runs_on(name: str, accelerator: Accelerator) -> bool:
    needs = RUNS_ON.get(name)
    unknown = accelerator.kind != "gpu" or not accelerator.architecture  # the table is of GPUs
    return needs is None or unknown or accelerator.architecture in needs.architectures


def _format_problem(name: str, accelerator: Accelerator, at: Places) -> Problem:
    fits = [candidate for candidate in RUNS_ON if candidate not in TESTED_KERNELS and _runs_on(candidate, accelerator)]
    help_text = f"{accelerator.architecture} multiplies {', '.join(fits) or 'none of the narrow formats'}"
    return Problem(at("precision"), f"{name} {_refusal(name, accelerator)}", help_text)


def _refusal(name: str, accelerator: Accelerator) -> str:
    *all_but_last, last = RUNS_ON[name].architectures
    listed = f"{', '.join(all_but_last)} or {last}" if all_but_last else last
    return f"runs on {listed}, and {accelerator.title} is {accelerator.architecture}"


# --- kinds of attention ---

WITH_SINKS = ("eager", "cudnn_grouped")  # kernels with a gradient for sinks: Transformer Engine calls cuDNN's


def attention_has_its_own_keys(model: Model, at: Places) -> Iterator[Problem]:
    """Sizes of another kind of attention would be without effect."""
    for group in model.groups:
        place = f"model.layers.{group.name}.attention"
        for key in ATTENTION_KINDS[group.attention.kind].foreign:
            if f"{place}.{key}" in at.origins:
                message = f"`{key}` is no size of {group.attention.kind} attention"
                yield Problem(at(f"{place}.{key}"), message, f"leave `{key}` out, or change `kind`")


def attention_sees_one_region(model: Model, at: Places) -> Iterator[Problem]:
    """A window and chunks are two ways to limit what a token sees."""
    for group in model.groups:
        if group.attention.window and group.attention.chunk:
            place = at(f"model.layers.{group.name}.attention.chunk")
            yield Problem(place, f"`{group.name}` has a window and chunks", "one of the two")


def both_directions_are_whole(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What sees all tokens has no window and no chunks, and shares of a cut sequence are those of a causal mask."""
    for group in model.groups:
        seen = group.attention
        if not seen.bidirectional:
            continue
        path = f"model.layers.{group.name}.attention"
        for key in [key for key in ("window", "chunk") if getattr(seen, key)]:
            yield Problem(at(f"{path}.{key}"), f"`{group.name}` is bidirectional and has a {key}", "one of the two")
        if parallelism.context > 1:
            message = f"context = {parallelism.context} cuts sequences that `{group.name}` sees in both directions"
            yield Problem(at("parallelism.context"), message, "`context: 1`: exchanges are those of a causal mask")


def sinks_have_a_kernel(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """Few attention kernels take a sink beside the scores, and fewer have a gradient for it."""
    for group in model.groups:
        if group.attention.sinks and kernels.attention not in WITH_SINKS:
            message = f"{kernels.attention} attention has no sinks, and `{group.name}` does"
            yield Problem(at("kernels.attention"), message, f"`kernels: {{attention: {' | '.join(WITH_SINKS)}}}`")


def norms_find_their_heads(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A norm over all heads would need a sum over the devices that hold some of them."""
    for group in model.groups:
        if group.attention.qk_norm == "all" and parallelism.tensor > 1:
            message = f"tensor = {parallelism.tensor} splits the heads over which `{group.name}` norms queries and keys"
            yield Problem(at("parallelism.tensor"), message, "`tensor: 1`, or `qk_norm: head`")


def norms_fit_the_residual(model: Model, at: Places) -> Iterator[Problem]:
    """Parallel parts are normed before, each or together; one norm for two parts needs them to be parallel."""
    for group in model.groups:
        parallel = group.residual == "parallel"
        if parallel != (group.norms == "shared") and (group.norms == "shared" or group.norms != "pre"):
            message = f"norms = {group.norms} of `{group.name}` with a {group.residual} residual"
            legal = "pre or shared" if parallel else "pre, post, sandwich or residual"
            yield Problem(at(f"model.layers.{group.name}.norms"), message, f"possible here: {legal}")


# --- models of blocks ---

STEM = "model.stem"
WITHOUT = ("norm", "embedding", "residual_dropout", "residual_scale", "residual_dtype")  # of models of other layers
WHOLE_POLICIES = ("none", "full", "every", "layers")


def models_are_of_blocks_or_of_parts(model: Model, at: Places) -> Iterator[Problem]:
    """Blocks stand between a stem that reads images and a head over classes, and no other layer among them."""
    for group in model.groups:
        path = f"model.layers.{group.name}"
        if group.block and not model.stem:
            yield Problem(at(f"{path}.block"), "a block, and the model has no stem", "`image:` and `stem:`")
            return
        if model.stem and not group.block:
            message = f"`{group.name}` has attention and a feed-forward part, behind a stem"
            yield Problem(at(path), message, "write it out: `block: {input: ..., dims: ..., steps: [...]}`")
            return
        for key in [key for key in ("attention", "mlp", "norms", "residual") if group.block]:
            if f"{path}.{key}" in at.origins:
                message = f"`{key}` beside the block of `{group.name}`"
                yield Problem(at(f"{path}.{key}"), message, "a block is the whole layer: leave it out")
    if model.stem and not model.image:
        yield Problem(at(STEM), "a stem, and no image that it reads", "`image: {height: 224, width: 224, channels: 3}`")
    if model.image and bool(model.stem) == bool(model.image.patch):
        of_stems = "a stem reads pixels, and no patches", "leave `patch` out"
        of_patches = "an image is cut into patches, or a stem reads it", "`patch: 16`, or `stem:` of steps"
        where = at("model.image.patch" if model.stem else "model.image")
        yield Problem(where, *(of_stems if model.stem else of_patches))
    for key in WITHOUT if model.stem else ():
        if f"model.{key}" in at.origins:
            yield Problem(at(f"model.{key}"), f"`{key}` of a model of blocks", f"leave `{key}` out: steps say all")


def blocks_are_like_others(model: Model, at: Places) -> Iterator[Problem]:
    """A block that is like another has the steps of a group that writes them out."""
    written = [group.name for group in model.groups if group.block and not group.block.like]
    for group in model.groups:
        if not group.block or not group.block.like:
            continue
        path = f"model.layers.{group.name}.block"
        if group.block.like not in written:
            message = f"`{group.block.like}` is no group that writes its steps out"
            yield Problem(at(f"{path}.like"), message, f"there are {', '.join(written)}")
        for key in [key for key in ("input", "weights", "steps") if f"{path}.{key}" in at.origins]:
            message = f"`{key}` beside `like: {group.block.like}`, which has its own"
            yield Problem(at(f"{path}.{key}"), message, f"leave `{key}` or `like` out")


def stems_are_sound(model: Model, at: Places) -> Iterator[Problem]:
    """A stem reads images: each with channels, rows and columns, as many as the image has."""
    stem, image = model.stem, model.image
    if stem is None:
        return
    if stem.like:
        yield Problem(at(f"{STEM}.like"), "a stem like a block", "write it out: `steps: [...]`")
        return
    yield from step_problems(stem, STEM, at)
    sizes = dict(stem.dims)
    stem_sizes = tuple(sizes.get(name, 0) for name in stem.takes[1:])
    image_sizes = (image.channels, image.height, image.width) if image else stem_sizes
    if stem.takes[:1] != COMMON_DIMS[:1] or stem_sizes != image_sizes:
        message = f"the stem starts from `{' '.join(stem.takes)}` ({' x '.join(map(str, stem_sizes))})"
        help_text = f"images of {' x '.join(map(str, image_sizes))}: `input: batch colours height width`"
        yield Problem(at(f"{STEM}.input"), message, help_text)


def blocks_follow_each_other(model: Model, at: Places) -> Iterator[Problem]:
    """What a layer starts from is what the one before gives, and the head reads channels as wide as the model says."""
    previous, giver = _result_sizes(model.stem, STEM, at), "the stem"
    for group in model.groups:
        path = f"model.layers.{group.name}.block"
        sizes_given = _result_sizes(group.block, path, at)
        if not (group.block and sizes_given and previous):
            return
        where = at(path)
        unknown = [name for name in group.block.takes[1:] if name not in dict(group.block.dims)]
        if unknown or group.block.takes[:1] != COMMON_DIMS[:1]:
            message = f"`{group.name}` starts from `{' '.join(group.block.takes)}`"
            yield Problem(where, message, f"`batch`, then dims of its own{_unknown_note(unknown)}")
            return
        for sizes_before, name in ((previous, giver), *((sizes_given, "the layer before"),) * (group.repeat > 1)):
            sizes_read = group.block.sizes_of(group.block.takes)
            if sizes_read != sizes_before:
                message = f"`{group.name}` starts from {_sizes_text(sizes_read)}, and {name} gives "
                message += _sizes_text(sizes_before)
                yield Problem(where, message, "sizes of `input` are those of what comes before")
                return
        previous, giver = sizes_given, f"`{group.name}`"
    if model.stem and model.groups and previous and previous[0] != model.d_model:
        message = f"d_model = {model.d_model}, and {giver} gives {previous[0]} channels"
        yield Problem(at("model.d_model"), message, f"`d_model: {previous[0]}`")


def _result_sizes(part: CustomPart | None, path: str, at: Places) -> tuple[int, ...]:
    """The sizes of a part's result; none where its steps are not sound."""
    return part.sizes_of(part.gives) if part and part.steps and not any(step_problems(part, path, at)) else ()


def _unknown_note(unknown: list[str]) -> str:
    return f"; `{unknown[0]}` has no size" if unknown else ""


def _sizes_text(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def blocks_stand_alone(model: Model, train: Train, at: Places) -> Iterator[Problem]:
    """Adapters are of projections by name, and groups of blocks follow one another."""
    if model.of_blocks and train.lora:
        yield Problem(at("train.lora"), "adapters of a model of blocks are not modelled", "`train: {only: [head]}`")
    if model.of_blocks and model.order:
        place = at("model.order" if "model.order" in at.origins else "model.alternating")
        yield Problem(place, "blocks that take turns are not modelled", "write each group in its place")


def blocks_are_replicated(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Each device has all blocks, and norms them over its own images."""
    if not model.of_blocks:
        return
    for axis in ("pipeline", "expert"):  # of tensor and context, models of images are refused
        if getattr(parallelism, axis) > 1:
            message = f"{axis} = {getattr(parallelism, axis)} is not modelled of a model of blocks"
            yield Problem(at(f"parallelism.{axis}"), message, f"`{axis}: 1`; `data` is")
    if parallelism.zero:
        message = f"zero = {parallelism.zero} is not modelled of a model of blocks"
        yield Problem(at("parallelism.zero"), message, "`zero: 0`: each device has all weights")


def blocks_are_rebuilt_whole(model: Model, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """A block is checkpointed as a whole, or not at all."""
    if model.of_blocks and recompute.policy not in WHOLE_POLICIES:
        message = f"recompute {recompute.policy} of a model of blocks is not modelled"
        yield Problem(at("recompute"), message, "`none`, `full`, `{every: n}` or `{layers: n}`")


# --- custom parts of layers ---


def custom_components_are_sound(model: Model, at: Places) -> Iterator[Problem]:
    """Names are there before they are used, einsums parse and fit, and what comes out fits the residual stream."""
    for group in model.groups:
        for part, custom in group.written.items():
            if custom.steps:  # a part like another one that is not there is reported elsewhere
                yield from step_problems(custom, f"model.layers.{group.name}.{part}", at)


OWN = ("dims", "weights", "steps", "split")


def steps_are_of_custom_attention(model: Model, at: Places) -> Iterator[Problem]:
    """Only attention of its author's own has steps."""
    for group in model.groups:
        path = f"model.layers.{group.name}.attention"
        for key in [key for key in OWN if f"{path}.{key}" in at.origins and not group.attention.custom]:
            message = f"`{key}` belongs to no attention of kind {group.attention.kind}"
            yield Problem(at(f"{path}.{key}"), message, "`kind: custom` has steps of its own")


def custom_dims_have_one_size(model: Model, at: Places) -> Iterator[Problem]:
    """Formulas know a dim of a layer by its name alone."""
    for group in model.groups:
        sizes: dict[str, int] = {}
        for part, custom in group.written.items():
            for name, size in custom.dims:
                if sizes.setdefault(name, size) != size:
                    message = f"`{name}` is {size} here and {sizes[name]} in another part of `{group.name}`"
                    yield Problem(at(f"model.layers.{group.name}.{part}.dims.{name}"), message, "choose another name")


def tokens_that_see_each_other_are_together(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What an author writes out over a sequence has all of it on one device: no exchange is known for it."""
    cuts = {"context": parallelism.context > 1, "sequence": parallelism.sequence != "off" and parallelism.tensor > 1}
    for group in model.groups:
        for part in [part for part, custom in group.written.items() if custom.mixes]:
            for key in [key for key, cut in cuts.items() if cut]:
                message = f"{key} = {getattr(parallelism, key)} cuts the sequence"
                message += f" that {part} of `{group.name}` reads whole"
                yield Problem(at(f"parallelism.{key}"), message, "`sequence: off` and `context: 1`")


def fields_belong_to_their_kind(model: Model, at: Places) -> Iterator[Problem]:
    """Only a custom component has steps, and it has nothing else."""
    other_fields = ("d_ff", "activation", "bias", "experts", "top_k", "router", "shared", "capacity_factor")
    for group in model.groups:
        path = f"model.layers.{group.name}.mlp"
        strange = other_fields if group.mlp.kind == "custom" else OWN
        for key in [key for key in strange if f"{path}.{key}" in at.origins]:
            message = f"`{key}` belongs to no feed-forward part of kind {group.mlp.kind}"
            help_text = "its steps say all" if group.mlp.kind == "custom" else "`kind: custom` has steps of its own"
            yield Problem(at(f"{path}.{key}"), message, help_text)


def custom_dims_split(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device an equal part of what the author says it cuts."""
    for group in model.groups:
        for custom in group.written.values():
            sizes, parts = dict(custom.dims), parallelism.tensor
            for name in [name for _, names in custom.split for name in names if name in sizes]:
                if sizes[name] % parts:
                    message = f"{name} = {sizes[name]} of `{group.name}` does not split over tensor = {parts}"
                    yield Problem(at("parallelism.tensor"), message, divisors(sizes[name]))


# --- recurrences, and layers without a feed-forward part ---


def groups_share_states(model: Model, at: Places) -> Iterator[Problem]:
    """Every group of a recurrence writes and reads the states of equally many heads."""
    for group in model.groups:
        heads, groups = group.attention.heads, group.attention.state_groups
        if groups and heads % groups:
            message = f"heads = {heads} of `{group.name}` is no multiple of state.groups = {groups}"
            yield Problem(at(f"model.layers.{group.name}.attention.state.groups"), message, divisors(heads))


def states_are_whole(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A device scans whole sequences of all heads: no exchange of states, and no cut of their heads, is modelled."""
    cuts = {"tensor": parallelism.tensor, "context": parallelism.context}
    for group in model.groups:
        for axis in [axis for axis, degree in cuts.items() if degree > 1 and group.attention.recurrent]:
            message = f"{axis} = {cuts[axis]} cuts the scan of `{group.name}`"
            message += ", and how that is put together is not modelled"
            help_text = f"`{axis}: 1`; data, pipeline and ZeRO leave a scan whole"
            yield Problem(at(f"parallelism.{axis}"), message, help_text)


def scans_know_no_documents(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A state that a document leaves would reach the next one of its sequence."""
    for group in model.groups:
        if run.documents is not None and group.attention.recurrent:
            message = f"packed documents with the scan of `{group.name}` are not modelled"
            yield Problem(at("run.documents"), message, "leave `documents` out, or a model without recurrences")


def mixers_stand_alone(model: Model, at: Places) -> Iterator[Problem]:
    """A layer without a feed-forward part has one norm before its mixer, and one addition."""
    for group in model.groups:
        path = f"model.layers.{group.name}"
        if group.mlp.kind != "none":
            continue
        if group.norms != "pre" or group.residual != "sequential":
            message = f"`{group.name}` has no feed-forward part"
            message += f", with norms {group.norms} and a {group.residual} residual"
            yield Problem(at(f"{path}.mlp"), message, "`norms: pre`, `residual: sequential`")
        for key in ("d_ff", "activation", "bias", "capacity_factor"):
            if f"{path}.mlp.{key}" in at.origins:
                yield Problem(at(f"{path}.mlp.{key}"), f"`{key}` of no feed-forward part", f"leave `{key}` out")
