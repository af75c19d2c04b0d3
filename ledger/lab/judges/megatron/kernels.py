"""Stand-ins for what Transformer Engine compiles, `transformer_engine_torch`: each makes what the kernel makes.

Nothing is computed. Shapes and dtypes are those of TE 2.11's C++ (transformer_engine/pytorch/csrc/extensions), which a
comment names. Arguments that decide neither are not named. Imports torch at its top.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from importlib.util import find_spec
from math import prod
from types import ModuleType
from typing import Any

import torch
import torch._dynamo
import torch._inductor.codecache
from torch import Tensor
from torch.utils import _triton

from ledger.lab.judges import fakes
from ledger.lab.judges.metered_rank import as_one_kernel
from ledger.lab.reference.cuda_guard import identity

ENVIRONMENT = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # Megatron-Core asks for it where tensor parallelism overlaps
    "NVTE_PROJECT_BUILDING": "1",  # Transformer Engine loads no shared libraries
}


def install() -> None:
    """Lets this process import Megatron-Core with Transformer Engine; for good, so call it in a process of its own."""
    os.environ.update(ENVIRONMENT)
    _triton.has_triton = _triton.has_triton_package = lambda *_, **__: False
    fakes.install(fakes.TRITON)
    sys.modules["transformer_engine_torch"] = extension()
    apex = ModuleType("fused_weight_gradient_mlp_cuda")  # kernels that add a weight's gradient to what is there
    for name in ("wgrad_gemm_accum_fp32", "wgrad_gemm_accum_fp16"):
        setattr(apex, name, lambda *_: None)
    sys.modules["fused_weight_gradient_mlp_cuda"] = apex
    torch.compile = _compile_as_one_kernel
    _import_transformer_engine()


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
    _pretend_plain_tensors(AttentionParams)


def _pretend_plain_tensors(parameters: Any) -> None:
    """Attention is chosen by the class of its tensors, and its layout by pointers, which fake ones do not have."""
    original = parameters.__init__

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if "Fake" in self.qkv_type.__name__:
            self.qkv_type = torch.Tensor

    parameters.__init__ = initialise
    torch.UntypedStorage.data_ptr = identity


def _compile_as_one_kernel(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """`torch.compile` of a function, or as a decorator with options: its chains of operators run as one kernel."""
    return as_one_kernel if function is None else as_one_kernel(function)


# common/include/transformer_engine/transformer_engine.h, NVTEDType
DType = IntEnum(
    "DType",
    "kByte kInt16 kInt32 kInt64 kFloat32 kFloat16 kBFloat16 kFloat8E4M3 kFloat8E5M2 kFloat8E8M0 kFloat4E2M1",
    start=0,
)
TORCH_DTYPES = {
    DType["kByte"]: torch.uint8,
    DType["kInt16"]: torch.int16,
    DType["kInt32"]: torch.int32,
    DType["kInt64"]: torch.int64,
    DType["kFloat32"]: torch.float32,
    DType["kFloat16"]: torch.float16,
    DType["kBFloat16"]: torch.bfloat16,
}
# csrc/common.h
FP8FwdTensors = IntEnum(
    "FP8FwdTensors",
    "GEMM1_INPUT GEMM1_WEIGHT GEMM1_OUTPUT GEMM2_INPUT GEMM2_WEIGHT GEMM2_OUTPUT GEMM3_INPUT GEMM3_WEIGHT GEMM3_OUTPUT",
    start=0,
)
FP8BwdTensors = IntEnum(
    "FP8BwdTensors", "GRAD_OUTPUT1 GRAD_INPUT1 GRAD_OUTPUT2 GRAD_INPUT2 GRAD_OUTPUT3 GRAD_INPUT3", start=0
)
OPEN_ENUMS = (
    *("NVTE_QKV_Layout", "NVTE_QKV_Format", "NVTE_Bias_Type", "NVTE_Mask_Type", "NVTE_Softmax_Type"),
    *("NVTE_Fused_Attn_Backend", "CommOverlapType", "CommOverlapAlgo", "Float8BlockScaleTensorFormat"),
)
CLASSES = (
    *("CommOverlap", "CommOverlapP2P", "CommOverlapHelper", "CommGemmOverlapAlgoConfig", "CommOverlapBase"),
    *("CommOverlapCore", "CommOverlapP2PBase", "FP8TensorMeta"),
)
# Kernels that write into their operands alone.
IN_PLACE = (
    *("multi_tensor_scale", "multi_tensor_adam", "multi_tensor_adam_param_remainder", "multi_tensor_adam_fp8"),
    *("multi_tensor_sgd", "multi_tensor_compute_scale_and_scale_inv", "compute_amax", "fused_multi_row_padding"),
    *("fused_amax_and_scale_update_after_reduction", "fused_multi_row_unpadding", "thd_out_correction"),
)
ANSWERS = {
    "get_cudnn_version": 91300,
    "get_cublasLt_version": 130000,
    "get_num_cublas_streams": 4,
    "get_stream_priority_range": (0, -5),
    "device_supports_multicast": True,
    "ubuf_built_with_mpi": False,
}
KERNELS: dict[str, Callable[..., Any]] = {}


class OpenEnum(type):
    """An enum whose members come into being when they are asked for."""

    def __getattr__(cls, name: str) -> EnumMember:
        if name.startswith("__"):
            raise AttributeError(name)
        member = EnumMember(f"{cls.__name__}.{name}")
        setattr(cls, name, member)
        return member


class EnumMember(str):
    """A member of an enum, equal to others of its name."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name that it was asked for by."""
        return self.rpartition(".")[2]

    def __int__(self) -> int:
        return 1  # NVTE_F16_arbitrary_seqlen, the only one whose number is asked for


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Lists a stand-in under its name."""
    KERNELS[function.__name__] = function
    return function


def extension() -> ModuleType:
    """The module that Transformer Engine imports as `transformer_engine_torch`."""
    module = ModuleType("transformer_engine_torch")
    listed: dict[str, Any] = {
        "DType": DType,
        "FP8FwdTensors": FP8FwdTensors,
        "FP8BwdTensors": FP8BwdTensors,
        **{name: OpenEnum(name, (), {}) for name in OPEN_ENUMS},
        **{name: type(name, (), {}) for name in CLASSES},
        **{name: _answer(None) for name in IN_PLACE},
        **{name: _answer(answer) for name, answer in ANSWERS.items()},
        **KERNELS,
        "__getattr__": _missing_kernel,
    }
    for name, value in listed.items():
        setattr(module, name, value)
    return module


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _missing_kernel(name: str) -> Any:
    """A kernel without a stand-in fails where it is called, and says its name."""
    if name.startswith("__"):
        raise AttributeError(name)

    def fail(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"the judge has no stand-in for transformer_engine_torch.{name}")

    return fail


def empty(shape: Sequence[int], dtype: Any) -> Tensor:
    """A tensor on the GPU; `dtype` of torch or of TE."""
    return torch.empty(tuple(shape), dtype=TORCH_DTYPES.get(dtype, dtype), device="cuda")


def allocate_result(shape: Sequence[int], dtype: Any, quantizer: Any = None) -> Any:
    """What a kernel writes: plain, or quantised as `quantizer` says (csrc/quantizer.cpp, create_tensor)."""
    if quantizer is None:
        return empty(shape, dtype)
    full = quantizer.make_empty(tuple(shape), dtype=TORCH_DTYPES.get(dtype, dtype), device=torch.device("cuda", 0))
    return _without_autograd(full) if getattr(quantizer, "internal", False) else full


def _without_autograd(tensor: Any) -> Any:
    """The tensor's data as a storage, which is no tensor: what the C++ makes where the quantizer is `internal`."""
    storages = (kind for kind in type(tensor).__mro__ if kind.__name__.endswith("Storage"))
    kind = next(kind for kind in storages if kind.__name__ != "QuantizedTensorStorage")
    fields = dict(tensor.get_metadata())
    fields.pop("fake_dtype", None)
    return kind(**fields)


def shape_of(operand: Any) -> tuple[int, ...]:
    """The shape of a tensor or of a quantised storage."""
    return tuple(operand.shape if isinstance(operand, Tensor) else operand.size())


# csrc/extensions/normalization.cpp: the result, and an fp32 statistic of each row


@kernel
def rmsnorm_fwd(x: Tensor, weight: Tensor, eps: float, out: Any, quantizer: Any, dtype: Any, *_: Any) -> list[Any]:
    """The result, no mean, and one reciprocal of a root mean square for each row."""
    rows = x.numel() // x.shape[-1]
    result = out if out is not None else allocate_result(x.shape, dtype, quantizer)
    return [result, None, empty((rows,), torch.float32)]


@kernel
def layernorm_fwd(x: Tensor, weight: Tensor, bias: Any, eps: float, out: Any, *options: Any) -> list[Any]:
    """The result, the mean and the reciprocal of the deviation of each row."""
    quantizer, dtype = options[:2]
    rows = x.numel() // x.shape[-1]
    result = out if out is not None else allocate_result(x.shape, dtype, quantizer)
    return [result, empty((rows,), torch.float32), empty((rows,), torch.float32)]


@kernel
def rmsnorm_bwd(upstream: Tensor, x: Tensor, rstd: Tensor, weight: Tensor, *_: Any) -> list[Tensor]:
    """Gradients of the input and of the weight."""
    return [torch.empty_like(x), torch.empty_like(weight)]


@kernel
def rmsnorm_bwd_add(upstream: Tensor, x: Tensor, add: Tensor, rstd: Tensor, weight: Tensor, *_: Any) -> list[Tensor]:
    """Gradients of the input, with another added, and of the weight."""
    return [torch.empty_like(x), torch.empty_like(weight)]


@kernel
def layernorm_bwd(upstream: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, *_: Any) -> list[Tensor]:
    """Gradients of the input, the weight and the bias."""
    return [torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)]


# csrc/extensions/gemm.cpp


@kernel
def generic_gemm(
    a: Any,
    transposed_a: bool,
    b: Any,
    transposed_b: bool,
    out: Any,
    quantizer: Any,
    dtype: Any,
    bias: Any,
    bias_dtype: Any,
    gelu: bool,
    gelu_input: Any,
    grad: bool,
    *_: Any,
    extra_output: Any = None,
    **__: Any,
) -> list[Any]:
    """The product (getGemmOutputShape), the gradient of a bias, and what a GELU reads."""
    left, right = shape_of(a), shape_of(b)
    inner = right[-1:] if transposed_b else right[:-1]
    shape = (*inner, prod(left[:-1]) if transposed_a else left[-1])
    result = (
        out if out is not None else allocate_result(shape, dtype if dtype is not None else torch.bfloat16, quantizer)
    )
    bias_gradient = empty(right[-1:], bias_dtype) if bias is not None and grad else None
    before_gelu = empty(shape, bias_dtype) if gelu and not grad else None
    return [result, bias_gradient, before_gelu, extra_output]


@kernel
def te_general_grouped_gemm(*arguments: Any) -> Any:
    """Products are written into what was given; biases come back."""
    return arguments[7]


# csrc/extensions/attention.cpp


@kernel
def get_fused_attn_backend(*_: Any, **__: Any) -> str:
    """cuDNN's kernel for sequences of any length."""
    return EnumMember("NVTE_Fused_Attn_Backend.NVTE_F16_arbitrary_seqlen")


@kernel
def fused_attn_fwd(*arguments: Any) -> list[Any]:
    """The result, fp32 statistics [b, h, s, 1] and the state of the random numbers, dropout or not."""
    layout, dtype, quantizer = arguments[6].name, arguments[16], arguments[22]
    queries, values = shape_of(arguments[13]), shape_of(arguments[15])
    sequence, batch = queries[:2] if layout.startswith("NVTE_SB") else queries[1::-1]
    statistics = empty((batch, queries[2], sequence, 1), torch.float32)
    return [allocate_result((*queries[:-1], values[-1]), dtype, quantizer), statistics, empty((2,), torch.int64)]


@kernel
def fused_attn_bwd(*arguments: Any) -> list[Any]:
    """Gradients of queries, keys and values."""
    query_key_value, dtype, quantizer = arguments[13:16], arguments[18], arguments[25]
    return [*(allocate_result(shape_of(operand), dtype, quantizer) for operand in query_key_value), None, None]


@kernel
def fused_rope_forward(x: Tensor, *_: Any, **__: Any) -> Tensor:
    """The rotated tensor (csrc/extensions/apply_rope.cpp)."""
    return empty(x.shape, x.dtype)


@kernel
def fused_rope_backward(upstream: Tensor, *_: Any, **__: Any) -> Tensor:
    """The gradient of what was rotated."""
    return empty(upstream.shape, upstream.dtype)


# csrc/extensions/cast.cpp and transpose.cpp


@kernel
def quantize(x: Tensor, quantizer: Any, output: Any = None, *_: Any) -> Any:
    """`x` in the storage of its quantizer: that of `output` where one is given, else storage of its own."""
    return output if output is not None else allocate_result(x.shape, x.dtype, quantizer)


@kernel
def split_quantize(x: Tensor, splits: Sequence[int], quantizers: Sequence[Any], *_: Any) -> list[Any]:
    """Rows of `x` as so many quantised tensors."""
    return [
        allocate_result((rows, *x.shape[1:]), x.dtype, quantizer)
        for rows, quantizer in zip(splits, quantizers, strict=True)
    ]


@kernel
def bgrad_quantize(x: Tensor, quantizer: Any) -> list[Any]:
    """The gradient of a bias, and the quantised gradient that it was summed from."""
    return [empty(x.shape[-1:], x.dtype), allocate_result(x.shape, x.dtype, quantizer)]


@kernel
def dequantize(x: Any, dtype: Any) -> Tensor:
    """The tensor in a dtype of torch's."""
    return empty(shape_of(x), dtype)


@kernel
def fp8_transpose(x: Tensor, dtype: Any, out: Tensor | None = None) -> Tensor:
    """The bytes of an fp8 tensor with its last dim first, in `out` where that is given."""
    return out if out is not None else empty((x.shape[-1], *x.shape[:-1]), torch.uint8)


@kernel
def swap_first_dims(x: Tensor, out: Tensor | None = None) -> Tensor:
    """The tensor with its first two dims exchanged."""
    return out if out is not None else empty((x.shape[1], x.shape[0], *x.shape[2:]), x.dtype)


# csrc/extensions/activation.cpp


@kernel
def swiglu(x: Tensor, quantizer: Any, *_: Any) -> Any:
    """SwiGLU of gate and up projection side by side: half as wide as `x`, in the quantizer's storage."""
    return allocate_result((*x.shape[:-1], x.shape[-1] // 2), x.dtype, quantizer)


@kernel
def dswiglu(upstream: Tensor, x: Tensor, quantizer: Any, *_: Any) -> Any:
    """The gradient of both halves."""
    return allocate_result(x.shape, x.dtype, quantizer)


# csrc/extensions/multi_tensor/l2norm.cpp


@kernel
def multi_tensor_l2norm(_: int, __: Tensor, tensors: Sequence[Sequence[Tensor]], per_tensor: Any = False) -> Any:
    """The norm of all tensors, and of each of them where that is asked for."""
    return empty((1,), torch.float32), empty((len(tensors[0]) if per_tensor else 1,), torch.float32)
