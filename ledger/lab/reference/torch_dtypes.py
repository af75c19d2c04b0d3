"""PyTorch's names of the formats that transformers trains in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.lab.transformers.config import NoReferenceError

if TYPE_CHECKING:
    import torch

TORCH_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a spec's dtype that tensors can have; raises `NoReferenceError` for fp8 and tf32."""
    import torch

    if name not in TORCH_DTYPES:
        raise NoReferenceError(f"{name}: transformers trains in {', '.join(TORCH_DTYPES)} only")
    return getattr(torch, TORCH_DTYPES[name])
