"""Bytes that one real training step holds on one device, phase by phase, on fake cuda tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.evidence.cuda_guard import install_cuda_guard
from ledger.evidence.reference_model import Workload, checkpoint_layers, reference_model, torch_dtype, training_loss
from ledger.evidence.transformers_config import NoReferenceError

if TYPE_CHECKING:
    import torch

OPTIMIZERS = {"foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}


@dataclass(frozen=True)
class StepMemory:
    """Bytes on one device, every storage rounded up to 512 as the CUDA allocator does.

    `static`: weights, buffers, optimizer states and token ids; `activations`: what forward leaves for backward, and
    the loss; each peak includes what is static, and gradients where they exist.
    """

    static: int
    activations: int
    peak_forward: int
    peak_backward: int
    peak_optimizer: int

    @property
    def peak(self) -> int:
        """The largest of the three."""
        return max(self.peak_forward, self.peak_backward, self.peak_optimizer)


def step_memory(work: Workload) -> StepMemory:
    """One step of AdamW, gradients freed before forward, states made before; raises `NoReferenceError`."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from ledger.evidence.reference_modules import imaginary_gpu
    from ledger.evidence.storage_meter import StorageMeter

    if work.precision.master is not None:
        raise NoReferenceError(f"{work.precision.name}: torch.optim.AdamW keeps no master weights of its own")
    install_cuda_guard()
    fake, meter = FakeTensorMode(), StorageMeter("cuda")
    with imaginary_gpu(), torch.autograd.set_multithreading_enabled(False):
        with fake:
            built = reference_model(work.model, work.kernels, "cuda", torch_dtype(work.precision.weights))
            tokens = torch.zeros(work.batch, work.seq_len, dtype=torch.long, device="cuda")
        checkpoint_layers(built, work.recompute)
        optimizer = _optimizer(built, work.kernels.optimizer)
        states = [tensor for state in optimizer.state.values() for tensor in state.values()]
        meter.watch([tokens, *built.parameters(), *built.buffers(), *states])
        static = meter.live
        with fake, meter:
            loss = training_loss(built, work, tokens)
            activations, forward = meter.live - static, meter.restart()
            loss.backward()
            backward = meter.restart()
        with meter:  # outside the fake mode: AdamW reads its step counts, which lie on the host, as numbers
            optimizer.step()
    return StepMemory(static, activations, forward, backward, meter.restart())


def _optimizer(built: Any, kind: str) -> torch.optim.Optimizer:
    """AdamW with its states in place, as they are after a first step; the fused one keeps step counts on the device."""
    import torch

    optimizer = torch.optim.AdamW(built.parameters(), **OPTIMIZERS[kind])
    for parameter in built.parameters():
        optimizer.state[parameter] = {
            "step": parameter.new_zeros((), dtype=torch.float32) if kind == "fused" else torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer
