"""Bytes that one real training step holds on one device, phase by phase, on fake cuda tensors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import attrgetter

from ledger.lab.observed.held import Held
from ledger.lab.reference.cuda_guard import install_cuda_guard
from ledger.lab.reference.model import (
    Workload,
    checkpoint_layers,
    freeze,
    reference_model,
    torch_dtype,
    training_loss,
)
from ledger.lab.transformers.config import family


@dataclass(frozen=True)
class StepMemory:
    """Bytes on one device, every storage rounded up to 512 as the CUDA allocator does.

    `static`: weights, buffers, optimizer states and token ids; `activations`: what forward leaves for backward, and
    the loss; each peak includes what is static, and gradients where they exist. `moments`: every moment that
    `moments` names, beside `static`, `after forward` and `optimizer`, with its fullest instant.
    `host`: what waits in host memory when most does.
    """

    static: int
    activations: int
    peak_forward: int
    peak_backward: int
    peak_optimizer: int
    moments: Mapping[str, Held] = field(default_factory=dict)
    host: int = 0

    @property
    def peak(self) -> int:
        """The largest of the three."""
        return max(self.peak_forward, self.peak_backward, self.peak_optimizer)


def step_memory(work: Workload, micro_batches: int = 1) -> StepMemory:
    """One step, gradients freed before forward, optimizer states made before; raises `NoReferenceError`.

    Gradients add up over `micro_batches`; what is alive after forward is so after the last of them.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from ledger.lab.observed.hosted_activations import hosted
    from ledger.lab.observed.moments import Moments
    from ledger.lab.observed.storage_meter import StorageMeter
    from ledger.lab.reference.modules import imaginary_gpu
    from ledger.lab.reference.optimizers import Numbers, reference_optimizer

    install_cuda_guard()
    fake, meter, beside = FakeTensorMode(), StorageMeter("cuda"), StorageMeter("cpu")
    with imaginary_gpu(), torch.autograd.set_multithreading_enabled(False):
        with fake:
            dtype = torch_dtype(work.precision.weights)
            built = reference_model(work.model, work.kernels, "cuda", dtype, work.precision)
            freeze(built, work.train)
            tokens = torch.zeros(work.batch, work.seq_len, dtype=torch.long, device="cuda")
        checkpoint_layers(built, work.recompute)
        layers, groups = attrgetter(family(work.model).layers)(built), work.model.layers
        with fake, Numbers():
            optimizer = reference_optimizer(built, layers, work.optimizer, work.kernels.optimizer, work.precision)
        meter.watch([tokens, *built.parameters(), *built.buffers(), *optimizer.kept()])
        static = meter.held
        noted = Moments(meter, layers, [group.name for group in groups]).noted()
        beside.enter("passes")
        with fake, meter, beside if work.hosting else nullcontext(), hosted(layers, work.hosting), noted as moments:
            forward = backward = 0
            for _ in range(micro_batches):
                loss = None  # the one before is let go
                moments.forward()
                loss = training_loss(built, work, tokens)
                after, forward = meter.held, max(forward, meter.restart())
                moments.backward()
                loss.backward()
                backward = max(backward, meter.restart())
        meter.enter("optimizer")
        with fake, meter, Numbers():
            optimizer.step()
    kept = {"static": static, "after forward": after, **meter.moments}
    most = beside.moments.get("passes", Held()).asked
    return StepMemory(static.bytes, after.bytes - static.bytes, forward, backward, meter.restart(), kept, most)
