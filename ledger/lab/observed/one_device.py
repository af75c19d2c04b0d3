"""One real training step on one device, phase by phase, on fake cuda tensors."""

from __future__ import annotations

from ledger.lab.observed.device_step import AllocatedBytes, DeviceStep
from ledger.lab.reference.cuda_guard import install_cuda_guard, torch_dtype
from ledger.lab.reference.images import micro_batch
from ledger.lab.reference.model import (
    Workload,
    checkpoint_layers,
    freeze,
    reference_model,
    training_loss,
)


def one_device_step(work: Workload, micro_batches: int = 1) -> DeviceStep:
    """One step, gradients freed before forward, optimizer states made before; raises `NoReferenceError`.

    Gradients add up over `micro_batches`; what is allocated after forward is so after the last of them.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from ledger.lab.observed.metered_step import MeteredStep, trained_model
    from ledger.lab.observed.storage_meter import StepMoments, StorageMeter
    from ledger.lab.reference.modules import imaginary_gpu
    from ledger.lab.reference.optimizers import FakeScalars

    loss = None  # which a training loop still has when it updates

    def passes(moments: StepMoments) -> AllocatedBytes:
        nonlocal loss
        after = AllocatedBytes()
        for _ in range(micro_batches):
            loss = None  # the one before is let go
            moments.begin_forward()
            loss = training_loss(built, work, batch)
            after = moments.meter.allocated
            moments.begin_backward()
            loss.backward()
        return after

    install_cuda_guard()
    fake = FakeTensorMode()
    with imaginary_gpu(), torch.autograd.set_multithreading_enabled(False):
        with fake:
            dtype = torch_dtype(work.precision.weights.base)
            built = reference_model(work.model, work.kernels, "cuda", dtype, work.precision)
            freeze(built, work.train)
            batch = micro_batch(work, "cuda")
        checkpoint_layers(built, work.recompute)
        with fake, FakeScalars():
            model = trained_model(built, work)
        host = StorageMeter("cpu") if work.hosting else None
        return MeteredStep(model, batch, "cuda", fake, {}, work.hosting, host).run(passes)
