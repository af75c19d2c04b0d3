"""The first and last operations of encoders of images and of sound: patches, stems, spectrograms, classifiers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from ledger.model import dtypes
from ledger.model.activations import activation
from ledger.model.causes import BIAS, Module, Parameter
from ledger.model.custom import custom
from ledger.model.dims import Dim, component_dim, dim
from ledger.model.elementwise import Lookup, Pointwise
from ledger.model.operations import ONE, Operation, differentiable
from ledger.model.tape import Concatenation, Tape
from ledger.model.tensors import Tensor
from ledger.spec.architecture import STRIDE, TAPS, Image
from ledger.spec.kernel_classes import COPY, EMBEDDING, REDUCTION
from ledger.spec.plan import CustomPart, Model

PATCHES = Module("embedding", "patches")
CLASS, PLACES = Module("embedding", "class"), Module("embedding", "positions")
PIXELS = "embedding/pixels.index"  # which, like indices of tokens, no gradient flows into
CLASSIFIER = Module("head", "classifier")
STEM = "stem"  # what tells its dims from those of layers


@dataclass(frozen=True)
class Prefixed(Concatenation):
    """A learned token copied before the others of every sequence: its gradient is a sum over the sequences."""

    def gradients(self) -> tuple[Operation, ...]:
        """The sum reads the first token of each sequence alone."""
        token, upstream = self.inputs[0], self.output.gradient
        if not differentiable(token):
            return ()
        first = replace(upstream, name=f"{upstream.name}.first", dims=_row(upstream), view_of=upstream.storage)
        return (Pointwise(f"{self.name}.gradient", REDUCTION, (first,), (token.gradient,)),)


def _row(x: Tensor) -> tuple[Dim, ...]:
    """The dims of one token of each sequence (batch d_model)."""
    return x.dims[0], x.dims[-1]


def patches(tape: Tape, image: Image) -> Tensor:
    """Tokens of an image without their positions (batch seq d_model), the class token first."""
    cut = _convolve_patches(tape, image)
    batch, width, rows, columns = cut.dims
    places = Dim("patches", rows.symbol * columns.symbol)
    # From channels first to channels last is a view, of whose gradient backward makes a copy.
    (laid,) = tape.views_of_parts(cut, {"embedding/patches.laid": (batch, places, width)})
    single = Dim("one", ONE)
    first = tape.weight(Parameter(CLASS, kind=""), (single, single, width))
    laid = tape.cast(laid, dtypes.promote(laid.dtype, first.dtype))
    stream = tape.activation("embedding/joined", tape.dims("batch seq d_model"), laid.dtype, laid.split)
    return tape.record(Prefixed(stream.name, COPY, (first, laid), (stream,)))


def _convolve_patches(tape: Tape, image: Image) -> Tensor:
    """Windows as large as a patch, which lie side by side (batch d_model rows columns)."""
    height, width, channels, patch = (dim(name) for name in ("image_height", "image_width", "image_channels", "patch"))
    pixels = Tensor(PIXELS, (dim("batch"), channels, height, width), "fp32", "index", tape.layout.inputs)
    taps = replace(patch, name="patch_row"), replace(patch, name="patch_column")
    weight = tape.weight(PATCHES, (dim("d_model"), channels, *taps))
    seen = (f"({image.patch}*{name}+{tap.name})" for name, tap in zip(("rows", "columns"), taps, strict=True))
    over = replace(height, name="rows", symbol=height.symbol / patch.symbol)
    along = replace(width, name="columns", symbol=width.symbol / patch.symbol)
    einsum = f"batch image_channels {' '.join(seen)}, d_model image_channels patch_row patch_column"
    bias = tape.weight(Parameter(PATCHES, BIAS), (dim("d_model"),))
    einsum = f"{einsum} -> batch d_model rows columns"
    return tape.contract(PATCHES, einsum, pixels, weight, bias=bias, sizes=(over, along))


def patch_stream(tape: Tape, model: Model) -> Tensor:
    """Tokens of an image, with a learned position added to each where the model has such."""
    if model.image is None:
        raise TypeError("a model of text has no patches")
    x = patches(tape, model.image)
    if not model.learned_positions:
        return x
    table = tape.weight(Parameter(PLACES, kind=""), (Dim("one", ONE), dim("positions"), dim("d_model")))
    return tape.pointwise("embedding/add", x, table, add=True)


def stemmed(tape: Tape, stem: CustomPart) -> Tensor:
    """The result of a stem's steps on pixels, where the layers begin."""
    tape = replace(tape, suffix=STEM)
    dims = tuple(dim(name) if name == "batch" else component_dim(name, STEM) for name in stem.takes)
    pixels = Tensor(PIXELS, dims, "fp32", "index", tape.layout.inputs)
    return custom(tape, pixels, stem, "embedding")


def pooled(tape: Tape, x: Tensor, model: Model) -> Tensor:
    """Scores of the classes of each image, from the mean of each channel over all places (batch classes)."""
    dims = x.dims[0], dim("d_model")
    if len(x.dims) == len(dims):
        (means,) = tape.views_of_parts(x, {"head/means": dims})
    else:
        means = tape.pointwise("head/means", x, dims=dims, kernel=REDUCTION)
    return _scores(tape, means, model)


def classified(tape: Tape, x: Tensor, model: Model) -> Tensor:
    """Scores of the classes of each image, from the class token's last state (batch classes)."""
    (first,) = tape.views_of_parts(x, {"head/first": _row(x)})
    # A view keeps all that it is a view of; a cast of it does not.
    return _scores(tape, first, model, *((x,) if first.dtype == tape.precision.compute else ()))


def _scores(tape: Tape, first: Tensor, model: Model, *saved: Tensor) -> Tensor:
    """Scores of classes by the classifier, from a row for each image, saved as the tensor that the row looks into."""
    weight = tape.weight(CLASSIFIER, (dim("classes"), dim("d_model")))
    bias = tape.weight(Parameter(CLASSIFIER, BIAS), (dim("classes"),)) if model.head_bias else None
    einsum = "batch d_model, classes d_model -> batch classes"
    return tape.contract(CLASSIFIER, einsum, first, weight, bias=bias, saving=saved)


# --- what an encoder of sound reads ---

PART = "source_embedding"
FRAMES = f"{PART}/frames.index"  # which, like indices of tokens, no gradient flows into
NARROW, WIDE, SOUND_PLACES = Module(PART, "narrow"), Module(PART, "wide"), Module(PART, "positions")
ACTIVATION = "gelu"


def sound_stream(tape: Tape) -> Tensor:
    """Tokens of a spectrogram with their fixed positions (batch seq d_model), as transformers' WhisperEncoder runs."""
    bands, frames, width = dim("bands"), dim("frames"), dim("d_model")
    tap, steps, result = Dim("tap", sympy.Integer(TAPS)), Dim("steps", frames.symbol), Dim("d_out", width.symbol)
    narrow = tape.weight(NARROW, (width, bands, tap))
    x = Tensor(FRAMES, (dim("batch"), bands, frames), narrow.dtype, "index", tape.layout.inputs)
    x = _convolve_sound(tape, "batch bands (steps+tap-1), d_model bands tap -> batch d_model steps", x, narrow, steps)
    wide, (tokens,) = tape.weight(WIDE, (result, width, tap)), tape.dims("seq")
    einsum = f"batch d_model ({STRIDE}*seq+tap-1), d_out d_model tap -> batch d_out seq"
    x = _convolve_sound(tape, einsum, x, wide, tokens)
    (laid,) = tape.views_of_parts(x, {f"{PART}/laid": tape.dims("batch seq d_model")})
    return tape.pointwise(f"{PART}/add", laid, _positions(tape), add=True)


def _convolve_sound(tape: Tape, einsum: str, x: Tensor, weight: Tensor, over: Dim) -> Tensor:
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
    table = tape.weight(SOUND_PLACES, (seq, width), fixed=True)
    index = Tensor(f"{SOUND_PLACES}.index", (seq,), "int64", "index", tape.layout.inputs)
    rows = tape.activation(str(SOUND_PLACES), (seq, width), table.dtype)
    return tape.record(Lookup(rows.name, EMBEDDING, (index, table), (rows,), (index,)))
