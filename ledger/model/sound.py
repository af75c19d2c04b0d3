"""What an encoder of sound reads: frames of a spectrogram, which two convolutions make tokens of, with positions."""

from __future__ import annotations

import sympy

from ledger.model.activations import activation
from ledger.model.dims import Dim, dim
from ledger.model.elementwise import Lookup
from ledger.model.modules import BIAS, Module, Parameter
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import EMBEDDING
from ledger.spec.sound import STRIDE, TAPS

PART = "source_embedding"
FRAMES = f"{PART}/frames.index"  # which, like indices of tokens, no gradient flows into
NARROW, WIDE, PLACES = Module(PART, "narrow"), Module(PART, "wide"), Module(PART, "positions")
ACTIVATION = "gelu"


def heard(tape: Tape) -> Tensor:
    """Tokens of a spectrogram with their fixed positions (batch seq d_model), as transformers' WhisperEncoder runs."""
    bands, frames, width = dim("bands"), dim("frames"), dim("d_model")
    tap, each, result = Dim("tap", sympy.Integer(TAPS)), Dim("steps", frames.symbol), Dim("d_out", width.symbol)
    narrow = tape.weight(NARROW, (width, bands, tap))
    x = Tensor(FRAMES, (dim("batch"), bands, frames), narrow.dtype, "index", tape.layout.inputs)
    x = _convolved(tape, "batch bands (steps+tap-1), d_model bands tap -> batch d_model steps", x, narrow, each)
    wide, (tokens,) = tape.weight(WIDE, (result, width, tap)), tape.dims("seq")
    einsum = f"batch d_model ({STRIDE}*seq+tap-1), d_out d_model tap -> batch d_out seq"
    x = _convolved(tape, einsum, x, wide, tokens)
    (laid,) = tape.taken(x, {f"{PART}/laid": tape.dims("batch seq d_model")})
    return tape.pointwise(f"{PART}/add", laid, _positions(tape), add=True)


def _convolved(tape: Tape, einsum: str, x: Tensor, weight: Tensor, over: Dim) -> Tensor:
    """A convolution with a bias, and its nonlinearity."""
    if weight.parameter is None:
        raise TypeError(f"{weight.name} is no parameter of a module")
    module = weight.parameter.module
    bias = tape.weight(Parameter(module, BIAS), weight.dims[:1])
    seen = tape.contract(module, einsum, x, weight, bias=bias, sizes=(over,))
    return activation(tape, f"{module}.activation", seen, ACTIVATION)


def _positions(tape: Tape) -> Tensor:
    """A row of sines for each token, of a table that is a parameter and is not trained (seq d_model)."""
    seq, width = tape.dims("seq d_model")
    table = tape.weight(PLACES, (seq, width), fixed=True)
    index = Tensor(f"{PLACES}.index", (seq,), "int64", "index", tape.layout.inputs)
    rows = tape.activation(str(PLACES), (seq, width), table.dtype)
    return tape.record(Lookup(rows.name, EMBEDDING, (index, table), (rows,), (index,)))
