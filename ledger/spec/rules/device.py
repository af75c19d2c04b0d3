"""Rules on what an accelerator can do, and on numbers that are taken for others."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ledger.numbers import percent, said
from ledger.spec.headroom import headroom_bytes, headroom_words
from ledger.spec.kernel_classes import HOST_LINK
from ledger.spec.places import Places
from ledger.spec.plan import Accelerator, Assumptions, Kernels, Model, Precision, Serve, Stack
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
        words, memory = headroom_words(assumptions.headroom), said(accelerator.memory, "B")
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


def cpu_has_the_kernel(accelerator: Accelerator, model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """PyTorch's kernels for CPUs: its own flash attention, which knows no dropout, or plain operators."""
    if accelerator.kind != "cpu" or model.bare:
        return
    if model.attends and kernels.attention not in CPU_ATTENTION:
        message = f"{kernels.attention} attention has no kernel for a CPU"
        yield Problem(at("kernels.attention"), message, f"it has {', '.join(CPU_ATTENTION)}")
    for index, group in enumerate(model.groups):
        if kernels.attention == "flash" and group.attention.dropout:
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
    for dtype, given in accelerator.peak.items():
        for known in at.known:
            dense = known.peak.get(dtype, math.inf)
            if _alike(accelerator, known) and abs(given - 2 * dense) <= SAME_FIGURE * given:
                message = f"{dtype} = {write(given, 'FLOP/s', 'T')} is the sparse figure of {known.title}"
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


def _alike(one: Accelerator, other: Accelerator) -> bool:
    names = {one.name.lower(), one.title.lower(), *(alias.lower() for alias in one.aliases)}
    known = {other.name.lower(), other.title.lower(), *(alias.lower() for alias in other.aliases)}
    return bool(names & known) or abs(one.bandwidth - other.bandwidth) <= SAME_FIGURE * other.bandwidth


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
            found = f"{write(speed, 'B/s')} is stated, and transfers were measured at {write(measured, 'B/s')}"
            said = (
                f"their bandwidth is scaled by {speed / measured:.3g}" if speed else "without links the host's is used"
            )
            yield Problem(at(f"accelerator.{path}"), f"{found}: {said}", "measure them: `ledger bench`, `calibrate`")
