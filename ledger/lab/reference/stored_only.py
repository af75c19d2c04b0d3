"""Linear layers whose matrices are stored in 4 bits, by bitsandbytes' own layers and kernels' shapes.

Imports torch and bitsandbytes at its top; import it inside functions.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.plan import Precision


@contextmanager
def absent(*names: str) -> Iterator[None]:
    """Nothing within finds these packages, whether they are installed or not; afterwards all is as it was."""
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None: importlib then finds no such module
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(before)


logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # of what it lacks without a GPU
try:
    with absent("transformer_engine"):
        import bitsandbytes  # type: ignore[import-not-found,unused-ignore]
except ImportError as error:
    message = "bitsandbytes not installed: `pip install --no-deps -r requirements/judges.txt`"
    raise NoReferenceError(message) from error

BLOCK = 64  # elements of a scale, by default (bitsandbytes, nn/modules.py, Params4bit)
NESTED = {"nf4": False, "nf4_double": True}  # whether scales are quantised, too (`compress_statistics`)


def store_layers(built: Any, layers: nn.Module, precision: Precision) -> None:
    """Replaces the linear layers of a model by `Linear4bit`; raises `NoReferenceError` for formats that it lacks."""
    base = precision.weights.base
    if base not in NESTED:
        raise NoReferenceError(f"{base}: bitsandbytes' Linear4bit has {', '.join(NESTED)}")
    compute = getattr(torch, {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[precision.compute])
    for parent in list(layers.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, _stored_layer(child, compute, nested=NESTED[base]))
    built.is_loaded_in_4bit = True  # which peft asks


def _stored_layer(plain: nn.Linear, compute: torch.dtype, *, nested: bool) -> nn.Linear:
    """The layer with its matrix quantised from the dtype in which transformers loads it.

    A parameter of another class than fake tensors have cannot be made, so the matrix is an ordinary one that has what
    `Params4bit` has.
    """
    with torch.device("meta"), patch.object(bitsandbytes.nn.modules, "Params4bit", _plain_parameter):
        layer = bitsandbytes.nn.Linear4bit(  # type: ignore[attr-defined,no-untyped-call,unused-ignore]
            plain.in_features, plain.out_features, False, compute, compress_statistics=nested, quant_type="nf4"
        )
    loaded = plain.weight.detach().to(compute)
    values = {"dynamic": torch.empty(256, device=loaded.device)}  # of scales in 8 bits, which no fake tensor can list
    with patch.dict(bitsandbytes.functional.name2qmap, values):
        data, state = bitsandbytes.functional.quantize_4bit(
            loaded, blocksize=BLOCK, compress_statistics=nested, quant_type="nf4"
        )
    weight = nn.Parameter(data, requires_grad=False)
    weight.quant_state, weight.bnb_quantized = state, True
    weight.compress_statistics, weight.quant_type = nested, "nf4"
    layer.weight, layer.quant_state, layer.bias = weight, state, plain.bias
    return layer


def _plain_parameter(data: torch.Tensor, **_: object) -> nn.Parameter:
    """An ordinary parameter in place of a `Params4bit`."""
    return nn.Parameter(data, requires_grad=False)
