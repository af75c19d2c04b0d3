"""The model a plan means, as PyTorch and transformers build it, with the plan's kernels in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.evidence.transformers_config import family, transformers_config

if TYPE_CHECKING:
    import torch

    from ledger.spec.plan import Kernels, Model

ROUTED = ("flash", "efficient", "cudnn", "math")  # attention kernels called by name; eager is transformers' own


def reference_model(model: Model, kernels: Kernels, device: str, dtype: torch.dtype) -> Any:
    """The transformers model on `device` in `dtype`, training; raises `NoReferenceError`.

    Build it on `meta` or inside a fake mode: parameters are allocated at full size.
    """
    import torch
    import transformers

    config = transformers_config(model)
    config._attn_implementation = _attention_name(kernels.attention)  # noqa: SLF001  # the argument's own name
    config.loss_type = "ForCausalLM"
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # parameters are born in `dtype`: fake ones cannot be converted in place
    try:
        with torch.device(device):
            built = getattr(transformers, family(model).model)(config)
    finally:
        torch.set_default_dtype(before)
    _replace_modules(built, model, kernels)
    return built.train()


def causal_mask(kernels: Kernels, batch: int, seq_len: int, device: str, dtype: torch.dtype) -> torch.Tensor | None:
    """The additive mask that eager attention reads; kernels that know `causal` take none."""
    import torch

    if kernels.attention in ROUTED:
        return None
    return torch.zeros(batch, 1, seq_len, seq_len, device=device, dtype=dtype)


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
