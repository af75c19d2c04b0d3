"""The batch of a step on its way: what storage gives, what a host prepares and keeps ready, and copies to a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy

from ledger.arithmetic.values import Amount, maximum
from ledger.model import dtypes
from ledger.model.causes import BRIDGE, INPUT, OUTPUT, Cause
from ledger.model.dims import symbol
from ledger.model.formats import trained_dtype
from ledger.model.offloading import HostHeld
from ledger.model.schedule import micro_batches, schedule
from ledger.model.unit import Unit
from ledger.spec.plan import Data, Plan

BATCHES = "batches"  # as a category of host memory
INDEX = "int64"  # of token ids and labels: what tokenizers and collators of PyTorch give
PIXEL = "fp32"  # of images, after they are scaled to what a model expects


def _sizes(plan: Plan) -> dict[str, Amount]:
    """The letters of what a batch is made of, with their sizes in a plan."""
    run, image, sound = plan.run, plan.model.image, plan.model.sound
    sizes: dict[str, Amount] = {"batch": run.micro_batch, "seq": run.seq_len, "source_seq": run.source_len}
    if image:
        sizes |= {"image_channels": image.channels, "image_height": image.height, "image_width": image.width}
    return sizes | {"bands": sound.bands, "frames": sound.frames} if sound else sizes


@dataclass(frozen=True)
class BatchPart:
    """A tensor of a micro-batch that the host copies to a device, which `unit` reads there.

    It has as many elements of `dtype` as the `letters` multiply to; a sequence that is cut over context comes in parts.
    """

    unit: str
    name: str
    dtype: str
    letters: tuple[str, ...]

    @property
    def _is_cut(self) -> bool:
        return "seq" in self.letters

    def expression(self) -> sympy.Expr:
        """Bytes of a micro-batch."""
        size = dtypes.size(self.dtype)
        held = sympy.Rational(size.numerator, size.denominator) * sympy.Mul(*map(symbol, self.letters))
        return held / symbol("context") if self._is_cut else held

    def bytes(self, plan: Plan) -> Amount:
        """Bytes of a micro-batch at the sizes of a plan, which may be arrays."""
        sizes = _sizes(plan)
        moved: Amount = float(dtypes.size(self.dtype))
        for letter in self.letters:
            moved = moved * sizes[letter]
        return moved / plan.parallelism.context if self._is_cut else moved


def batch_parts(plan: Plan) -> tuple[BatchPart, ...]:
    """What is copied for each micro-batch: ids of tokens and labels, or pixels and classes, or frames of sound.

    Positions and masks are made on the device.
    """
    model, source = plan.model, ("batch", "source_seq")
    if model.image:
        pixels = ("batch", "image_channels", "image_height", "image_width")
        return BatchPart(INPUT, "pixels", PIXEL, pixels), BatchPart(OUTPUT, "labels", INDEX, ("batch",))
    tokens = BatchPart(BRIDGE if model.encoder_groups else INPUT, "tokens", INDEX, ("batch", "seq"))
    labels = BatchPart(OUTPUT, "labels", INDEX, ("batch", "seq"))
    if model.sound:
        return BatchPart(INPUT, "frames", trained_dtype(plan), ("batch", "bands", "frames")), tokens, labels
    return (
        (BatchPart(INPUT, "source_tokens", INDEX, source), tokens, labels) if _reads_source(plan) else (tokens, labels)
    )


def copied_to(units: Sequence[Unit], plan: Plan) -> Iterator[tuple[Unit, BatchPart]]:
    """The parts of a micro-batch that a device of these units gets from its host."""
    parts = batch_parts(plan)
    for unit in units:
        yield from ((unit, part) for part in parts if part.unit == unit.name)


def read_from_storage(units: Sequence[Unit], plan: Plan) -> Iterator[tuple[Unit, sympy.Expr]]:
    """Bytes of storage that a micro-batch is, where a plan says how many: where sequences enter."""
    size = plan.data.token or plan.data.sample
    if size:
        tokens = symbol("seq") + (symbol("source_seq") if _reads_source(plan) else 0)
        samples = symbol("batch") * (tokens if plan.data.token else 1)
        exact = Fraction(str(size))
        yield from (
            (unit, sympy.Rational(exact.numerator, exact.denominator) * samples) for unit in units if unit.name == INPUT
        )


def keeps_ready(plan: Plan) -> bool:
    """Whether host memory holds batches for later steps."""
    return bool(plan.data.workers and plan.data.prefetch)


def kept_ready(units: Sequence[Unit], plan: Plan) -> Iterator[HostHeld]:
    """Batches in host memory for a device: as many as its workers have ready ahead."""
    if keeps_ready(plan):
        ahead = (plan.data.workers or 0) * plan.data.prefetch
        for unit, part in copied_to(units, plan):
            why = "batches that workers have ready: as many as each prefetches"
            yield HostHeld(Cause(unit.name, f"batch/{part.name}"), BATCHES, part.expression() * ahead, unit.count, why)


# --- what a step waits for ---

STORAGE, WORKERS, LINK = "storage", "workers", "link to the host"


def data_seconds(plan: Plan) -> dict[str, Amount]:
    """Seconds that the batch of a step takes of storage, of the workers, and of the link to the device.

    Every sample is read once in the job. The devices of a replica need the same samples, each from workers of its own.
    """
    data, run = plan.data, plan.run
    seconds: dict[str, Amount] = {}
    if data.bandwidth and (data.token or data.sample):
        read = run.global_batch * (data.token * _tokens(plan) if data.token else data.sample or 0.0)
        seconds[STORAGE] = read / data.bandwidth
    if work := _samples_prepared(data, plan):
        seconds[WORKERS] = run.global_batch / plan.parallelism.data / (work * (data.workers or 1))
    if plan.accelerator.has_own_memory:
        seconds[LINK] = _copied_in_step(plan) / plan.accelerator.host_bandwidth
    return seconds


def _samples_prepared(data: Data, plan: Plan) -> Amount:
    """Samples that one worker prepares in a second; nothing where it is not known, as of text without a rate."""
    rate = data.worker_rate(plan.model)
    if rate is None or data.workers is None:
        return 0
    return rate.amount / _tokens(plan) if rate.of == "tokens" else rate.amount


def _reads_source(plan: Plan) -> bool:
    """Whether a sample is a text and a source of tokens that an encoder reads before it."""
    return bool(plan.model.encoder_groups) and not plan.model.sound


def _tokens(plan: Plan) -> Amount:
    """Tokens of a sample, with those of its source."""
    return plan.run.seq_len + (plan.run.source_len if _reads_source(plan) else 0)


def _copied_in_step(plan: Plan) -> Amount:
    """Bytes that the device with most gets in a step: of a pipeline, one end has tokens and the other labels."""
    labels = sum(part.bytes(plan) for part in batch_parts(plan) if part.unit == OUTPUT)
    entering = sum(part.bytes(plan) for part in batch_parts(plan) if part.unit != OUTPUT)
    split = plan.parallelism.pipeline > 1 and schedule(plan.parallelism).pipeline_ends == 1
    return micro_batches(plan) * (maximum(entering, labels) if split else entering + labels)


def data_time(plan: Plan) -> Amount:
    """Seconds between two batches: of the slowest of storage, workers and link, or of one after the other.

    What prefetches reads, prepares and copies at the same time, each another batch.
    """
    seconds = tuple(data_seconds(plan).values())
    return maximum(*seconds, 0.0) if plan.data.prefetch else sum(seconds)


def data_wait(plan: Plan, step: Amount) -> Amount:
    """Seconds for which a step of so many waits for its batch: what it does not hide, or all where nothing is ahead."""
    return maximum(0.0, data_time(plan) - step) if plan.data.prefetch else data_time(plan)


def fed_step(plan: Plan, step: Amount) -> Amount:
    """Seconds of a step that takes so many without its data: until its batch is there, or after it where none is."""
    if not plan.data.waits(plan.model):
        return step
    return maximum(step, data_time(plan)) if plan.data.prefetch else step + data_time(plan)
