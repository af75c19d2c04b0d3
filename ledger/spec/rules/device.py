"""Rules on accelerators and on what stops a run, and warnings of settings without effect."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ledger.numbers import percent, with_unit
from ledger.spec.headroom import headroom_bytes, headroom_words
from ledger.spec.kernel_classes import HOST_LINK
from ledger.spec.near import nearest
from ledger.spec.operations import BEST, NAME, Operations
from ledger.spec.optimizer import WEIGHT_KINDS, Optimizer
from ledger.spec.paths import Places
from ledger.spec.plan import Accelerator, Assumptions, Data, Kernels, Model, Parallelism, Precision, Serve, Stack, Train
from ledger.spec.problems import Problem
from ledger.spec.quantities import write

FLASH_DTYPES = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2")  # Dao, FlashAttention-2 and -3: half precision and fp8 only
FLASH_HEAD_DIM = 256  # Dao, FlashAttention-2, README: "All head dimensions up to 256"
CPU_ATTENTION = ("flash", "math", "eager")  # torch, aten/src/ATen/native/native_functions.yaml: operators with CPU rows
SAME_FIGURE = 0.01  # two data sheets of one device differ by rounding only


def compute_has_a_peak(accelerator: Accelerator, precision: Precision, at: Places) -> Iterator[Problem]:
    """The accelerator multiplies in the dtypes that the precision computes in."""
    recipe = precision.matmul
    for dtype in dict.fromkeys((precision.compute, *((recipe.format, recipe.gradient) if recipe else ()))):
        if peak_key(dtype) not in accelerator.peak:
            message = f"{accelerator.title} has no {dtype} peak, and matmuls compute in it"
            yield Problem(at("precision"), message, f"it has {', '.join(accelerator.peak)}")


def headroom_leaves_memory(accelerator: Accelerator, assumptions: Assumptions, at: Places) -> Iterator[Problem]:
    """What stays free is less than there is."""
    free = headroom_bytes(assumptions.headroom, accelerator.memory)
    if free >= accelerator.memory:
        words, memory = headroom_words(assumptions.headroom), with_unit(accelerator.memory, "B")
        message = f"headroom = {words} leaves nothing of the {memory} of {accelerator.title}"
        yield Problem(at("assumptions.headroom"), message, "a share suits any device: `headroom: 10 %`")


def headroom_is_a_part(accelerator: Accelerator, assumptions: Assumptions, at: Places) -> Iterator[Problem]:
    """What stays free is seldom most of the memory."""
    free = headroom_bytes(assumptions.headroom, accelerator.memory)
    if accelerator.memory / 2 < free < accelerator.memory:
        words, share = headroom_words(assumptions.headroom), free / accelerator.memory
        message = f"headroom = {words} keeps {percent(share)} of the memory of {accelerator.title} free"
        yield Problem(at("assumptions.headroom"), message, "a share suits any device: `headroom: 10 %`")


def flash_runs(  # noqa: PLR0913 - the parts of a plan that decide it
    accelerator: Accelerator, model: Model, kernels: Kernels, precision: Precision, serve: Serve | None, at: Places
) -> Iterator[Problem]:
    """Flash attention of a GPU has half-precision kernels up to head_dim 256."""
    if (
        kernels.attention not in {"flash", "flash_repeated", "varlen", "flash3", "triton", "cudnn", "cudnn_grouped"}
        or not model.attends
        or accelerator.kind == "cpu"
    ):
        return
    name, instead = kernels.attention, "`kernels: {attention: efficient}`" + ("" if serve else " or `math`")
    if precision.compute not in FLASH_DTYPES:
        help_text = "attention over a cache multiplies in bf16, fp16 or fp8: `compute: fp8_e4m3`" if serve else instead
        yield Problem(at("kernels.attention"), f"{name} attention cannot run in {precision.compute}", help_text)
    for group in model.groups:
        if group.attention.head_dim > FLASH_HEAD_DIM and not group.attention.recurrent:
            message = f"{name} attention cannot run with head_dim = {group.attention.head_dim}"
            yield Problem(at("kernels.attention"), message, f"at most {FLASH_HEAD_DIM}; {instead}")


def cpu_has_the_kernel(
    accelerator: Accelerator, model: Model, kernels: Kernels, serve: Serve | None, at: Places
) -> Iterator[Problem]:
    """PyTorch's kernels for CPUs: its own flash attention, which knows no dropout, or plain operators."""
    if accelerator.kind != "cpu" or model.bare:
        return
    if model.attends and kernels.attention not in CPU_ATTENTION:
        message = f"{kernels.attention} attention has no kernel for a CPU"
        help_text = "`kernels: {attention: flash}`" if serve else f"it has {', '.join(CPU_ATTENTION)}"
        yield Problem(at("kernels.attention"), message, help_text)
    for index, group in enumerate(model.groups):
        if kernels.attention == "flash" and group.attention.dropout and not serve:
            message = f"flash attention of a CPU has no dropout, and `{group.name}` asks for it"
            where = at(f"model.layers.{index}.attention.dropout")
            yield Problem(where, message, "`dropout: 0`, or `kernels: {attention: math}`")


def memory_agrees(accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """The driver reports what the label says, or that figure read in binary units: at most 2**30 / 1e9 of it."""
    driver, labelled = accelerator.memory, accelerator.memory_labelled
    if not 0.98 <= driver / labelled <= 2**30 / 1e9 + 0.001:
        message = f"the driver's {write(driver, 'B')} and the label's {write(labelled, 'B')} contradict each other"
        help_text = "GB is 1e9 B, GiB is 2**30 B: an 80 GB card is labelled `80 GB` and its driver reports `81559 MiB`"
        yield Problem(at("accelerator.memory.driver"), message, help_text)


def peaks_are_dense(accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """A peak is the dense figure: twice that of a known device of the same bandwidth or name is its sparse one."""
    for dtype, peak in accelerator.peak.items():
        for device in at.devices_of_known_peaks:
            dense = device.peak.get(dtype, math.inf)
            if _are_alike(accelerator, device) and abs(peak - 2 * dense) <= SAME_FIGURE * peak:
                message = f"{dtype} = {write(peak, 'FLOP/s', 'T')} is the sparse figure of {device.title}"
                help_text = f"the dense one is `{write(dense, 'FLOP/s', 'T')}`; dense matmuls reach no more"
                yield Problem(at(f"accelerator.peak.{dtype}"), message, help_text)
                break


def pools_hold_what_is_allocated(stack: Stack, at: Places) -> Iterator[Problem]:
    """An allocator reserves at least what it hands out."""
    if stack.fragmentation < 1:
        message = f"fragmentation = {stack.fragmentation:g}: less would be reserved than is allocated"
        yield Problem(at("stack.allocator.fragmentation"), message, "reserved over allocated, 1 or more")


def peak_key(dtype: str) -> str:
    """The row of a peak table that prices a matmul in this dtype."""
    return {"mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4", "e2m1": "fp4"}.get(dtype, dtype.partition("_e")[0])


def _are_alike(first: Accelerator, second: Accelerator) -> bool:
    first_names = {first.name.lower(), first.title.lower(), *(alias.lower() for alias in first.aliases)}
    second_names = {second.name.lower(), second.title.lower(), *(alias.lower() for alias in second.aliases)}
    return bool(first_names & second_names) or abs(first.bandwidth - second.bandwidth) <= SAME_FIGURE * second.bandwidth


def links_are_as_measured(accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """Transfers that were measured over a link of another speed are scaled, which is worth a word."""
    device = accelerator
    links = {
        "scaleup.bandwidth": (device.scaleup_bandwidth, device.scaleup_measured),
        "host_link": (device.host_bandwidth, device.host_measured),
    }
    # "B", the bandwidth of a link, is a parameter of transfers alone.
    transfers = {curve.what.family == HOST_LINK for curve in device.calibration if "B" in curve.parameters}
    for path, (speed, measured) in links.items():
        timed = (path == "host_link") in transfers or (transfers and not device.scaleup_bandwidth)
        if timed and measured and speed != measured:
            speeds = f"{write(speed, 'B/s')} is stated, and transfers were measured at {write(measured, 'B/s')}"
            said = (
                f"their bandwidth is scaled by {speed / measured:.3g}" if speed else "without links the host's is used"
            )
            yield Problem(at(f"accelerator.{path}"), f"{speeds}: {said}", "measure them: `ledger bench`, `calibrate`")


# --- failures, checkpoints and evaluations: values that need each other ---

INTERVAL, RATE = f"{NAME}.checkpoint_interval", f"{NAME}.failure_rate"


def best_interval_follows(operations: Operations, at: Places) -> Iterator[Problem]:
    """The best interval weighs what a checkpoint takes against what a failure costs, so it needs both."""
    if operations.checkpoint_interval != BEST:
        return
    if not operations.failure_rate:
        message = f"the best `{INTERVAL}` follows from how often devices fail, and no rate above zero is stated"
        yield Problem(at(INTERVAL), message, f"state `{RATE}`, as `0.0005 /d`, or an interval")
    if not (operations.checkpoint_cost or operations.storage_bandwidth or operations.checkpoint_async):
        message = f"the best `{INTERVAL}` follows from what a checkpoint takes, and that is not stated"
        help_text = f"state `{NAME}.storage_bandwidth`, `{NAME}.checkpoint_cost` above zero, or an interval"
        yield Problem(at(INTERVAL), message, help_text)


def losses_are_stated_whole(operations: Operations, at: Places) -> Iterator[Problem]:
    """Lost time follows from pairs: how often and how long; either alone says nothing."""
    rate, saved = bool(operations.failure_rate), operations.checkpoint_interval is not None
    costs = bool(operations.checkpoint_cost or operations.storage_bandwidth or operations.checkpoint_async)
    every, takes = f"{NAME}.evaluation_interval", f"{NAME}.evaluation_time"
    lacking = (
        (RATE, f"`{INTERVAL}` is not stated", saved),
        (INTERVAL, f"neither `{RATE}` nor what a checkpoint takes is stated", rate or costs),
        (f"{NAME}.checkpoint_cost", f"`{INTERVAL}` is not stated", saved),
        (f"{NAME}.storage_bandwidth", f"`{INTERVAL}` is not stated", saved),
        (f"{NAME}.restart_time", f"`{INTERVAL}` is not stated", saved),
        (f"{NAME}.restart_time", f"`{RATE}` is not stated", rate or not saved),
        (f"{NAME}.storage_bandwidth", "`checkpoint_cost` says what a checkpoint takes",
         operations.checkpoint_cost is None or operations.checkpoint_async or not saved),
        (f"{NAME}.checkpoint_async", f"`{INTERVAL}` is not stated", saved),
        (every, f"`{takes}` is not stated", bool(operations.evaluation_time)),
        (takes, f"`{every}` is not stated", bool(operations.evaluation_interval)),
    )  # fmt: skip
    for path, why, is_paired in lacking:
        if at.is_stated_by_plan(path) and not is_paired:
            yield idle(path, why, "state it too, or leave this out", at)


# --- data of a run ---


def data_is_of_what_is_read(data: Data, model: Model, at: Places) -> Iterator[Problem]:
    """Bytes are of a token or of a sample, and workers prepare what the model reads."""
    if data.token and data.sample:
        message = "both `data.token` and `data.sample` say how many bytes are read"
        yield Problem(at("data.sample"), message, "leave one of the two out")
    if data.token and model.image:
        yield Problem(
            at("data.token"), "the model reads images, and no tokens", "`data: {sample: 110 kB}`, of an image"
        )
    rate = data.rate.of if data.rate else ""
    if rate == "images" and not model.image:
        message = "a rate of images, and the model reads tokens"
        yield Problem(at("data.rate"), message, "`rate: 2M tokens/s`, or `40 samples/s` of whole sequences")
    if rate == "tokens" and model.image:
        message = "a rate of tokens, and the model reads images"
        yield Problem(at("data.rate"), message, "`rate: 300 images/s`")


def data_is_stated_whole(data: Data, model: Model, at: Places) -> Iterator[Problem]:
    """Time of storage is bytes over bandwidth, and that of workers follows from their number and rate."""
    size, rated = data.token or data.sample, data.worker_rate(model) is not None
    stated = bool(data.workers or data.bandwidth)
    lacking = (
        ("data.bandwidth", "neither `data.token` nor `data.sample` says how many bytes are read", bool(size)),
        ("data.rate", "`data.workers` is not stated", data.workers is not None),
        ("data.workers", "`data.rate` does not say what a worker prepares", rated),
        ("data.prefetch", "nothing of `data` says how long a batch takes", stated),
    )
    for path, why, is_paired in lacking:
        if at.is_stated_by_plan(path) and not is_paired:
            yield idle(path, why, "state it too, or leave this out", at)
    if model.bare and at.is_stated_by_plan("data"):
        yield idle("data", "a model that is a parameter count has no step", "leave it out", at)


# --- settings without effect: legal, and reported as warnings ---

# Parts of accounts that a recipe's `keep` may name, in any model.
OPERATIONS = (
    *("attention", "down", "gate", "gate_up", "head", "k", "kv", "kv_latent", "logits", "mlp", "out", "projection"),
    *("q", "q_latent", "qkv", "router", "shared_down", "shared_gate", "shared_score", "shared_up", "up", "v"),
)

OF_TRAINING = (
    *("kernels.loss", "kernels.loss_chunks", "kernels.optimizer", "kernels.residual", "precision.weights.adapters"),
    *("assumptions.mfu", "assumptions.power_usage_effectiveness"),
)
OF_SERVING = ("precision.cache",)


def what_runs_heeds_it(serve: Serve | None, at: Places) -> Iterator[Problem]:
    """A loss and an update are of training, and a cache of serving."""
    why = "this plan serves" if serve else "this plan trains"
    for path in OF_TRAINING if serve else OF_SERVING:
        if at.is_stated_by_plan(path):
            yield idle(path, why, "leave it out", at)


def kernels_find_their_parts(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """A kernel serves a part that some layer has."""
    if model.bare:
        return
    kinds = {group.mlp.kind for group in model.groups}
    rotates = any(group.attention.rotary or group.attention.rope_head_dim for group in model.groups)
    why = {
        "kernels.experts": "" if "experts" in kinds else "no layer of the model has experts",
        "kernels.scan": "" if any(group.attention.recurrent for group in model.groups) else "no layer scans a state",
        "kernels.attention": "no layer of the model has attention" if model.of_blocks else "",
        "kernels.rotary": "" if rotates else "no layer of the model rotates queries and keys",
        "kernels.activation": "no layer of the model has a gate"
        if kernels.activation == "fused_gated" and kinds == {"plain"}
        else "",
    }
    for path, reason in why.items():
        if at.is_stated_by_plan(path) and reason:
            yield idle(path, reason, "leave it out", at)


def counts_run_no_kernels(model: Model, at: Places) -> Iterator[Problem]:
    """Of a bare parameter count, only its states are known."""
    for path in ("kernels", "recompute"):
        if model.bare and at.is_stated_by_plan(path):
            yield idle(path, "of the model only a parameter count is known", "a model with layers, or leave it out", at)


def reductions_have_partners(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """One replica has nobody to sum its gradients with."""
    for path in ("parallelism.reduce", "parallelism.bucket"):
        if at.is_stated_by_plan(path) and parallelism.data * parallelism.context == 1:
            yield idle(path, "data x context = 1: no gradients are reduced", "leave it out", at)


def groups_have_others(model: Model, at: Places) -> Iterator[Problem]:
    """One group of layers takes turns with nobody."""
    for path in ("model.alternating", "model.order"):
        if at.is_stated_by_plan(path) and model.order and len(model.groups) == 1:
            yield idle(path, "the model has one group of layers", "leave it out", at)


def gradients_are_filled_once(optimizer: Optimizer, stack: Stack, at: Places) -> Iterator[Problem]:
    """What an optimizer makes of gradients is said of all of them, where the framework has no buffer for them."""
    path = "optimizer.zero_grad"
    if optimizer.zero_grad == "fill" and at.is_stated_by_plan(path):
        if stack.reduction_buffer:
            yield idle(path, f"{stack.title} reduces gradients out of a buffer and frees them", "leave it out", at)
        if stack.main_gradients and "zero" in stack.optimizer_passes:
            yield idle(path, f"{stack.title} keeps a buffer of all gradients and fills it already", "leave it out", at)
    if optimizer.otherwise and at.is_stated_by_plan("optimizer.otherwise.zero_grad"):
        yield idle("optimizer.otherwise.zero_grad", f"`{path}` says it of all weights", f"state `{path}`", at)


def others_are_left(optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """A rule for the other weights has some to update."""
    rule, path, kinds_left = optimizer, "optimizer", set(WEIGHT_KINDS)
    while rule.otherwise is not None:
        kinds_left, path = kinds_left - set(rule.weights), f"{path}.otherwise"
        if not kinds_left and at.is_stated_by_plan(f"{path}.name"):
            name = optimizer.title or optimizer.name
            message = f"`{path}` has no effect: {name} updates every kind of weight"
            yield Problem(at(f"{path}.name"), message, f"`weights:` some of {', '.join(WEIGHT_KINDS)}")
            return
        rule = rule.otherwise


def kept_names_exist(model: Model, precision: Precision, at: Places) -> Iterator[Problem]:
    """What a recipe leaves alone, or quantises twice, is a part of some model, or a group of layers of this one."""
    recipe = precision.matmul
    if recipe is None or model.bare:
        return
    steps = [step.name for group in model.groups for custom in group.written.values() for step in custom.steps]
    names = [*OPERATIONS, *(group.name for group in model.groups), *steps]
    for field, names_of_field in (("keep", recipe.keep), ("quantised_again", recipe.quantised_again)):
        path = f"precision.matmul.{field}"
        for name in names_of_field if at.is_stated_by_plan(path) else ():
            if any(part not in names for part in name.split("/")):
                message = f"`{name}` in `{field}` has no effect: no matmul of the model has this name"
                yield Problem(at(path), message, nearest(name, names))


def adapters_are_narrow(model: Model, train: Train, at: Places) -> Iterator[Problem]:
    """An adapter as wide as its matrix saves nothing."""
    rank = train.lora.largest if train.lora else 0
    if rank >= model.d_model and not model.bare:
        message = f"rank = {rank} with d_model = {model.d_model}: adapters hold more than the matrices they adapt"
        yield Problem(at("train.lora.rank"), message, "ranks in use are 4 to 256")


def idle(path: str, why: str, instead: str, at: Places) -> Problem:
    """The problem of a value that has no effect, with the reason."""
    return Problem(at(path), f"`{path}` has no effect: {why}", instead, vain=path)
