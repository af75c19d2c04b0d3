"""The model a plan means, as PyTorch and transformers build it, with the plan's kernels in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.evidence.transformers_config import NoReferenceError, family, transformers_config
from ledger.spec.plan import Kernels, Model, Plan, Precision, Recompute

if TYPE_CHECKING:
    import torch

ROUTED = ("flash", "efficient", "cudnn", "math")  # attention kernels called by name; eager is transformers' own
TORCH_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True)
class Workload:
    """What PyTorch is asked to run: one unsharded micro-batch of `batch` sequences of `seq_len` tokens."""

    model: Model
    kernels: Kernels
    precision: Precision
    batch: int
    seq_len: int
    recompute: Recompute = field(default_factory=Recompute)


def workload(plan: Plan) -> Workload:
    """One micro-batch of `plan` on one device, its parallelism left aside."""
    return Workload(plan.model, plan.kernels, plan.precision, plan.run.micro_batch, plan.run.seq_len, plan.recompute)


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a spec's dtype that tensors can have; raises `NoReferenceError` for fp8 and tf32."""
    import torch

    if name not in TORCH_DTYPES:
        raise NoReferenceError(f"{name}: transformers trains in {', '.join(TORCH_DTYPES)} only")
    return getattr(torch, TORCH_DTYPES[name])


def reference_model(model: Model, kernels: Kernels, device: str, dtype: torch.dtype) -> Any:
    """The transformers model on `device` in `dtype`, training; raises `NoReferenceError`.

    Build it on `meta` or inside a fake mode: parameters are allocated at full size.
    """
    import torch
    import transformers

    config = transformers_config(model)
    config._attn_implementation = _attention_name(kernels.attention)  # noqa: SLF001  # the argument's own name
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # parameters are born in `dtype`: fake ones cannot be converted in place
    try:
        with torch.device(device):
            built = getattr(transformers, family(model).model)(config)
    finally:
        torch.set_default_dtype(before)
    built.loss_type = "ForCausalLM"  # GPT-2's class name does not say so, and a warning would
    _replace_modules(built, model, kernels)
    return built.train()


def training_loss(built: Any, work: Workload, tokens: torch.Tensor) -> torch.Tensor:
    """The forward pass under the workload's autocast, as a training loop runs it; the logits are let go."""
    import torch

    compute = torch_dtype(work.precision.compute)
    with torch.autocast("cuda", compute, enabled=work.precision.autocast):
        mask = None
        if work.kernels.attention not in ROUTED:  # an additive mask, as transformers makes it for eager attention
            mask = torch.zeros(work.batch, 1, work.seq_len, work.seq_len, device=tokens.device, dtype=compute)
        return built(tokens, attention_mask=mask, labels=tokens, use_cache=False).loss


def checkpoint_layers(built: Any, recompute: Recompute) -> None:
    """Checkpoint the layers that `recompute` names, the way transformers does; raises `NoReferenceError`."""
    import torch

    if recompute.policy == "none":
        return
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # a fake device has no generator
    if recompute.policy == "keep":
        options["context_fn"] = partial(
            torch.utils.checkpoint.create_selective_checkpoint_contexts, _kept_operators(recompute.keep)
        )
    elif recompute.policy not in ("full", "every"):
        raise NoReferenceError(f"recompute {recompute.policy}: transformers checkpoints whole layers only")
    built.activation_checkpointing_enable(options, every_n_layers=recompute.every)


def _attention_name(kernel: str) -> str:
    """The name under which transformers knows `kernel`, registered if need be."""
    from transformers import AttentionInterface

    from ledger.evidence.reference_modules import attention_backend

    if kernel not in ROUTED:
        return kernel
    registered = f"ledger_{ROUTED.index(kernel)}"  # transformers takes names with `flash` for a library to import
    AttentionInterface.register(registered, attention_backend(kernel))
    return registered


def _replace_modules(built: torch.nn.Module, model: Model, kernels: Kernels) -> None:
    """Swap norms and activations for those that `kernels` names; LayerNorm and ReLU are one kernel either way."""
    from transformers.activations import GELUActivation, GELUTanh, NewGELUActivation

    from ledger.evidence.reference_modules import FusedRMSNorm, UnfusedSiLU

    unfused = {
        "SiLUActivation": UnfusedSiLU,
        "GELUTanh": NewGELUActivation,
        "GELUActivation": lambda: GELUActivation(use_gelu_python=True),
    }
    fused = {"NewGELUActivation": GELUTanh}
    activations = fused if kernels.activation == "fused" else unfused
    for parent in list(built.modules()):
        for name, child in list(parent.named_children()):
            kind = type(child).__name__
            if kernels.norm == "fused" and kind.endswith("RMSNorm"):
                setattr(parent, name, FusedRMSNorm(child.weight, model.norm.unit_offset))
            elif kind in activations:
                setattr(parent, name, activations[kind]())


def _kept_operators(keep: tuple[str, ...]) -> list[Any]:
    """The operators whose outputs are kept."""
    import torch

    aten = torch.ops.aten
    operators = {
        "matmul": [aten.mm.default, aten.addmm.default, aten.bmm.default],
        "attention": [
            aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001  # the names SDPA dispatches to
            aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
            aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
        ],
    }
    return [operator for name in keep for operator in operators[name]]
