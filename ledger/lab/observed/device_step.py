"""What one device holds and sends in one training step of PyTorch, as records that need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class AllocatedBytes:
    """Bytes allocated at one instant, as torch.cuda.memory_stats counts; `rounding`: those beyond what was requested.

    The CUDA caching allocator rounds every storage up.
    """

    bytes: int = 0
    rounding: int = 0

    @property
    def requested(self) -> int:
        """Bytes that tensors asked for."""
        return self.bytes - self.rounding

    def __add__(self, other: AllocatedBytes) -> AllocatedBytes:
        return AllocatedBytes(self.bytes + other.bytes, self.rounding + other.rounding)

    def __mul__(self, count: int) -> AllocatedBytes:
        return AllocatedBytes(self.bytes * count, self.rounding * count)


@dataclass(frozen=True)
class CollectiveCalls:
    """Collectives of one kind on one axis in one phase; bytes: output of a gather, input of a reduction."""

    kind: str  # all_gather | reduce_scatter | all_reduce | all_to_all | send
    axis: str  # data | tensor | replicate | expert | expert_data | context | pipeline
    phase: str  # forward | backward | optimizer
    count: int
    bytes: int


@dataclass(frozen=True)
class DeviceStep:
    """One step of one device, every storage rounded up to 512 bytes.

    `moments`: the fullest instant of each moment of `StepMoments`; `static`: weights, buffers, optimizer states and
    token ids, all there before the step and after it; and, but for a pipeline, `after forward`: what is there when the
    last forward pass is over. `collectives` are those of all micro-batches. `host`: bytes requested in host memory when
    most are.
    """

    moments: Mapping[str, AllocatedBytes]
    collectives: tuple[CollectiveCalls, ...] = ()
    host: int = 0

    @property
    def activations(self) -> int:
        """Bytes that forward leaves for backward, with the loss, and with gathered weights where those are kept."""
        return self.moments["after forward"].bytes - self.moments["static"].bytes

    def peak(self, *phases: str) -> int:
        """Bytes of the fullest instant of `phases`: forward, backward, optimizer."""
        return max(allocated.bytes for name, allocated in self.moments.items() if name.partition("/")[0] in phases)
