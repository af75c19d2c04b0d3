"""The data of a run on its way to the devices: bytes in storage, workers that prepare batches, batches ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ledger.arithmetic.values import Amount
from ledger.spec.architecture import Model
from ledger.spec.parts import PartHeader
from ledger.spec.quantities import write
from ledger.spec.structures import AnyOf, DerivedType, quantity
from ledger.spec.values import Integer, Size

AHEAD = 2  # batches of a worker: `prefetch_factor` of torch.utils.data.DataLoader, where it has workers
# Images a second that one worker decodes and augments, where a plan does not say: "4 CPU threads for decoding the
# images, which are often able to decode over 1k images per second" (Apache MXNet, documentation, Performance,
# https://mxnet-tqchen.readthedocs.io/en/latest/how_to/perf.html).
DECODED = 250.0
DECODED_SOURCE = "Apache MXNet, documentation, Performance: 4 threads decode 1000 images a second"


@dataclass(frozen=True)
class WorkRate:
    """What a worker prepares: `amount` of tokens, samples or images a second."""

    amount: Amount
    of: str

    @property
    def title(self) -> str:
        """The rate as a spec states it."""
        return write(self.amount, f"{self.of}/s")


RATE = AnyOf(
    (
        DerivedType(quantity("tokens/s"), lambda amount: WorkRate(amount, "tokens")),
        DerivedType(quantity("images/s"), lambda amount: WorkRate(amount, "images")),
        DerivedType(quantity("samples/s"), lambda amount: WorkRate(amount, "samples")),
    )
)


@dataclass(frozen=True)
class Data:
    """Where batches come from: bytes in B, bandwidth in B/s, workers of each device; None where not stated.

    A sample is a sequence, or an image of a model of images.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What a step reads: bytes in storage, its bandwidth, workers that prepare batches, how far ahead. What "
        "these take hides behind the step before, and the step waits for the rest; without rates it waits for nothing.",
        sourced=True,
    )

    token: Annotated[
        float | None,
        quantity("B", least=0.01, measured=True),
        "Bytes of a token in storage: `2 B` of ids of 16 bits, `4.2 B` of plain text.",
    ] = None
    sample: Annotated[
        float | None,
        quantity("B", least=0.01, measured=True),
        "Bytes of a sample in storage, a sequence or an image: `110 kB` of a JPEG.",
    ] = None
    bandwidth: Annotated[float | None, quantity("B/s"), "At which the whole job reads from storage: `20 GB/s`."] = None
    workers: Annotated[
        int | None, Size(1, 10_000), "Processes that prepare batches, for each device: DataLoader's `num_workers`."
    ] = None
    rate: Annotated[
        WorkRate | None,
        RATE,
        "What one worker prepares: `2M tokens/s`, `300 images/s`, `40 samples/s`; of images "
        f"`{DECODED:.0f} images/s` where it is not given ({DECODED_SOURCE}).",
    ] = None
    prefetch: Annotated[
        int,
        Integer(0, 10_000),
        "Batches that each worker has ready ahead, in host memory; 0: each is read and prepared when its step begins.",
    ] = AHEAD

    def worker_rate(self, model: Model) -> WorkRate | None:
        """What one worker prepares of a model's data: as stated, or of images what is published; None of other text."""
        return self.rate or (WorkRate(DECODED, "images") if model.image else None)

    def waits(self, model: Model) -> bool:
        """Whether rates are stated that a step may wait for."""
        reads = bool(self.bandwidth and (self.token or self.sample))
        return reads or (self.workers is not None and self.worker_rate(model) is not None)
