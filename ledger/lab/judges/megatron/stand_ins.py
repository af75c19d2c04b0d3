"""Transformer Engine's own Python and Megatron-Core where nothing is compiled. Imports torch at its top.

Only what is compiled has a stand-in: `transformer_engine_torch`, apex's kernel for weight gradients, and Triton, whose
kernels are never launched. torch must have been imported as a whole before, since it looks for Triton as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
import torch._dynamo
import torch._inductor.codecache
from torch.utils import _triton

from ledger.lab.judges import unlaunched
from ledger.lab.judges.megatron.kernels import extension
from ledger.lab.judges.rank_meter import as_one_kernel
from ledger.lab.reference.storages import identity

ENVIRONMENT = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # Megatron-Core asks for it where tensor parallelism overlaps
    "NVTE_PROJECT_BUILDING": "1",  # Transformer Engine loads no shared libraries
}


def install() -> None:
    """Lets this process import Megatron-Core with Transformer Engine; for good, so call it in a process of its own."""
    os.environ.update(ENVIRONMENT)
    _triton.has_triton = _triton.has_triton_package = lambda *_, **__: False
    unlaunched.install(unlaunched.TRITON)
    sys.modules["transformer_engine_torch"] = extension()
    sys.modules["fused_weight_gradient_mlp_cuda"] = _apex()
    torch.compile = _compiled
    _import_transformer_engine()


def _apex() -> ModuleType:
    """Kernels that add a weight's gradient to what is there."""
    module = ModuleType("fused_weight_gradient_mlp_cuda")
    for name in ("wgrad_gemm_accum_fp32", "wgrad_gemm_accum_fp16"):
        setattr(module, name, lambda *_: None)
    return module


def _import_transformer_engine() -> None:
    """The package without its shared objects; its own first module would look for them."""
    spec = find_spec("transformer_engine")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("transformer_engine")
    package = ModuleType("transformer_engine")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["transformer_engine"] = package
    from transformer_engine import common

    common.load_framework_extension = lambda *_: None
    del sys.modules["transformer_engine"]
    import transformer_engine.pytorch
    from transformer_engine.common import recipe
    from transformer_engine.pytorch.attention.dot_product_attention.utils import AttentionParams

    transformer_engine.common, common.recipe = common, recipe
    _as_plain_tensors(AttentionParams)


def _as_plain_tensors(parameters: Any) -> None:
    """Attention is chosen by the class of its tensors, and its layout by pointers, which fake ones do not have."""
    original = parameters.__init__

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if "Fake" in self.qkv_type.__name__:
            self.qkv_type = torch.Tensor

    parameters.__init__ = initialise
    torch.UntypedStorage.data_ptr = identity


def _compiled(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """`torch.compile` of a function, or as a decorator with options: its chains of operators run as one kernel."""
    return as_one_kernel if function is None else as_one_kernel(function)
