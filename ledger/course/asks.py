"""Records of what a question may be about: one frozen dataclass for each kind, with the form in which it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from ledger.model import strides
from ledger.model.dtypes import DTYPES, FLOATS, POWERS
from ledger.model.einsum_kernels import read_sizes, window_name, windowed
from ledger.model.einsums import REST, EinsumError, parse, rest_of, root
from ledger.model.encodings import MINUS_ZERO, SCALES
from ledger.spec.faults import Fault, Faults, StatedValue, fault_at
from ledger.spec.named_parts import LibraryName
from ledger.spec.parts import At, PartHeader
from ledger.spec.plan import Accelerator, Optimizer, Plan, Precision
from ledger.spec.problems import Location
from ledger.spec.structures import AnyOf, DerivedType, Fields, ListOf, MappingOf, Row, Values, quantity
from ledger.spec.values import Choice, Integer, KeyOf, Label, Quantity, String
from ledger.spec.windows import has_windows
from ledger.spec.windows import names as dims_of


@dataclass(frozen=True)
class Expression:
    """An expression as written, and where."""

    text: str
    where: Location | None = None  # none of one that a form of questions is made of


@dataclass(frozen=True)
class Sought:
    """A figure that is asked for: its expression, its unit and title where they do not follow."""

    expression: Expression
    unit: str = ""
    title: str | None = None


@dataclass(frozen=True)
class ExpressionText(Label):
    """An expression over what a question names."""

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The text with its place."""
        return Expression(str(super().value(written, faults)), written.node.where)


def exact_number(text: str) -> Fraction | None:
    """The number that a text is, exactly: `0.15625`, `1e-8`, `1/3`; None of another text, or beyond fp64.

    `-0.0` has its sign.
    """
    number = Fraction(text.strip()) if NUMBER.fullmatch(text.strip()) else None
    if number == 0 and text.strip().startswith("-"):
        return MINUS_ZERO
    return number if number is not None and abs(number) <= DTYPES["fp64"].largest else None


@dataclass(frozen=True)
class ExactNumber(Label):
    """A number exactly as it is written, of any size."""

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The number as a fraction."""
        text = str(super().value(written, faults))
        if (number := exact_number(text)) is None:
            faults.append(
                fault_at(written, f" is no number that fp64 holds: `{text[:40]}`", "`0.15625`, `1e-8` or `1/3`")
            )
        return number


WORDS = DerivedType(String(), lambda text: tuple(text.split()))
OPERANDS = DerivedType(String(), lambda text: tuple(tuple(part.split()) for part in text.split(",")))
COUNT = Integer(1, 10**18)  # also as it is written with an exponent: 13e9
FORMAT = KeyOf(DTYPES)
NUMBER = re.compile(r"[-+]?(\d{1,60}|(?=\.?\d)\d{0,60}\.\d{0,60})([eE][-+]?\d{1,3})?|[-+]?\d{1,30}/0*[1-9]\d{0,29}")
ACCELERATOR, OPTIMIZER, PRECISION = (LibraryName(kind=kind) for kind in ("accelerator", "optimizer", "precision"))
TEXTS = ListOf(String())
PLAN = LibraryName(kind="plan")
A_PLAN = "A plan of the library, or a path relative to this file."
SET = Row("set", TEXTS, "`key=value`, as `--set` takes them.", "set")


MEMORY = "Memory of a device, to be compared with."
ROLE = Choice("activation", "data", "weight")
SIZE = Integer(1)

# --- operations ---

# What an operation of two operands is called: as PyTorch has it, or spelt out.
CALLED = {"+": "add", "addition": "add", "-": "sub", "*": "mul", "/": "div"}
OF_TWO = re.compile(
    r"(?<![a-z])(add|addition|sub|mul|div)(?![a-z])|[a-z]\w*(?: *([+*]) *| ([-/]) )[a-z]", re.IGNORECASE
)


@dataclass(frozen=True)
class AskedStep:
    """One operation: an einsum of one operand or several, or `flops` for each element `over` some dims."""

    einsum: Annotated[str, "`m k, k n -> m n`; of one operand a sum, or another order."] = ""
    rearrange: Annotated[str, "Dims in another order, split or merged: `seq (heads dim) -> heads seq dim`."] = ""
    reduce: Annotated[str, "Dims that are left: `batch seq hidden -> batch seq`."] = ""
    by: Annotated[str, Choice("sum", "mean", "max", "min"), "How a reduction joins elements."] = "sum"
    name: Annotated[str, "What the operation goes by."] = ""
    over: Annotated[
        tuple[tuple[str, ...], ...],
        OPERANDS,
        "Dims of an elementwise operation, those of each operand after a comma: `m n, m n`. One that is called `add`, "
        "`sub`, `mul`, `div` or `x + y` has two.",
    ] = ()
    into: Annotated[tuple[str, ...], WORDS, "Dims of its result, where it is a reduction."] = ()
    flops: Annotated[int, Integer(0), "For each element."] = 1
    activation: Annotated[str, Choice("gelu_tanh", "silu"), "A nonlinearity over those dims."] = ""
    kernel: Annotated[str, Choice("fused", "eager"), "As one kernel, or one for each operator."] = "fused"
    left: Annotated[str, ROLE, "What the first operand is: data needs no gradient."] = "activation"
    right: Annotated[str, ROLE, "What the other operands are."] = "weight"
    dtypes: Annotated[
        tuple[str, ...],
        ListOf(FORMAT, 2),
        "Formats of each operand and of the result, where they differ: `[fp8_e4m3, fp8_e4m3, bf16]`.",
    ] = ()

    @property
    def pattern(self) -> str:
        """The einsum, the rearrangement or the reduction."""
        return self.einsum or self.rearrange or self.reduce

    @property
    def joins(self) -> str:
        """`add`, `sub`, `mul` or `div`, where it is called so; empty of an operation of another name."""
        word = OF_TWO.search(self.name)
        if word is None or self.activation:
            return ""
        name = (word[1] or word[2] or word[3]).lower()
        return CALLED.get(name, name)

    @property
    def operands(self) -> tuple[tuple[str, ...], ...]:
        """The dims of each operand of an elementwise operation."""
        return self.over * 2 if len(self.over) == 1 and self.joins else self.over

    @property
    def dims(self) -> tuple[str, ...]:
        """The dims of all operands of an elementwise operation, each once: those of its result but for `into`."""
        return tuple(dict.fromkeys(name for names in self.over for name in names))


@dataclass(frozen=True)
class OperationAsk:
    """Operations in a row. A size is a number, or the name of another dim of the same size."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Operations in a row: FLOPs, bytes, intensity.")

    steps: Annotated[tuple[AskedStep, ...], "The operations, in order."]
    sizes: Annotated[
        Mapping[str, int | str],
        MappingOf(AnyOf((SIZE, String()))),
        "Sizes by dim; a name stands for the size of that dim, `...` for dims by name, and `(2*h+r-1)` for what "
        "windows read.",
    ]
    dtype: Annotated[str, FORMAT, "A number format."] = "bf16"
    accelerator: Annotated[Accelerator | None, ACCELERATOR, "The device that runs them."] = None

    @property
    def all_sizes(self) -> Mapping[str, int | str]:
        """The sizes, and those that follow from what windows read."""
        return read_sizes(windows_of(self.steps), self.sizes)


def windows_of(steps: Iterable[AskedStep]) -> tuple[str, ...]:
    """The einsums of steps that read through windows."""
    return tuple(step.einsum for step in steps if has_windows(step.einsum))


def step_faults(written: StatedValue, values: Values) -> Iterator[Fault]:
    """Steps that are no operation, dims without a size, sizes of no dim."""
    sized = written.node.fields["sizes"]
    items = written.node.fields["steps"].items
    try:
        sizes = read_sizes(windows_of(values["steps"]), values["sizes"])
    except EinsumError as error:
        yield fault_at(written.inner("sizes", sized), f": {error.message}", error.help)
        return
    if not items:
        yield fault_at(written.inner("steps", written.node.fields["steps"]), " is empty", "an einsum, or an operation")
    used = {name for size in sizes.values() if isinstance(size, str) for name in size.split()} | {REST}
    for index, (node, step) in enumerate(zip(items, values["steps"], strict=True)):
        place = written.inner("steps", written.node.fields["steps"]).inner(index, node)
        keys = [key for key in ("einsum", "rearrange", "reduce", "over") if key in node.fields]
        if len(keys) != 1:
            yield fault_at(
                place, f" has {' and '.join(keys) or 'no operation'}", "one of einsum, rearrange, reduce, over"
            )
            continue
        place_of_pattern = place.inner(keys[0], node.fields[keys[0]])
        if step.activation and values.get("dtype", "bf16") not in FLOATS:
            dtype = StatedValue(node.fields["activation"], (*place.path, "activation"))
            yield fault_at(dtype, f" is not computed in {values['dtype']}", f"a dtype of {', '.join(FLOATS)}")
        try:
            names = names_of(step, sizes)
            used.update(names)
            used.update(index for text in windows_of((step,)) for term in windowed(text) for index in term)
            _check_formats(step, sizes)
            for name in names:
                root(name, sizes)
        except EinsumError as error:
            yield fault_at(place_of_pattern, f": {error.message}", error.help)
    for name, node in sized.fields.items():
        if window_name(name) not in used:
            where = StatedValue(node, (*written.path, "sizes", name))
            dims = ", ".join(sorted(used - {REST}))
            yield fault_at(where, " is the size of no dim", f"the dims are {dims}" if dims else "no einsum has one")


def names_of(step: AskedStep, sizes: Mapping[str, int | str]) -> tuple[str, ...]:
    """The dims of a step; raises EinsumError."""
    if step.over:
        for name in step.into:
            if name not in step.dims:
                raise EinsumError(
                    f"`{name}` of the result is not among `{' '.join(step.dims)}`", "a sum leaves dims out"
                )
        if step.into and all(set(step.dims) - {*names} for names in step.over):
            raise EinsumError(f"no operand has all of `{' '.join(step.dims)}`", "products with sums are einsums")
        return step.dims
    if step.einsum and has_windows(step.pattern):
        return tuple(dict.fromkeys(name for term in windowed(step.pattern) for name in dims_of(term)))
    einsum = parse(step.pattern, rest_of(sizes))
    if (step.rearrange or step.reduce) and len(einsum.operands) > 1:
        raise EinsumError("this has one operand", "products are written as `einsum:`")
    if step.rearrange and einsum.summed:
        raise EinsumError(f"`{einsum.summed[0]}` is gone in the result", "`reduce:` leaves dims out")
    return einsum.names


def _check_formats(step: AskedStep, sizes: Mapping[str, int | str]) -> None:
    """Raises EinsumError where formats are stated of other than each operand and the result."""
    if not step.dtypes:
        return
    if step.activation:
        raise EinsumError("an activation has one format", "state it as `dtype:` of the operation")
    plain = step.pattern and not has_windows(step.pattern)
    operands = len(parse(step.pattern, rest_of(sizes)).operands) if plain else len(step.operands) or 2
    if len(step.dtypes) != operands + 1:
        message = f"{len(step.dtypes)} dtypes, and there are {operands + 1} tensors"
        raise EinsumError(message, "one for each operand, and the last for the result")


# --- tensors and number formats ---

MOVE_TYPES = {
    "permute": (ListOf(String(), 1), "All dims in another order."),
    "transpose": (ListOf(String(), 2, 2), "Two dims change places."),
    "slice": (MappingOf(String(), 1), "`{rows: 0:2}` of some dims."),
    "select": (MappingOf(Integer(0), 1), "One index of some dims."),
    "expand": (MappingOf(SIZE, 1), "Dims of size 1, or new ones, as if they were larger."),
    "view": (MappingOf(SIZE), "The same memory in other sizes."),
    "reshape": (MappingOf(SIZE), "Other sizes, copied where they allow no view."),
    "contiguous": (Choice(True), "In order: a copy where it is not."),
    "clone": (Choice(True), "A copy."),
    "to": (String(), "Another dtype, or `device` for another device."),
}
MOVE = Fields(tuple(Row(name, kind, said, name) for name, (kind, said) in MOVE_TYPES.items()), least=1, most=1)


@dataclass(frozen=True)
class TensorAsk:
    """So many tensors of one shape; `memory` is a device's, to be compared with; `moves` are made on one of them."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Bytes of a tensor, and what views and copies of it take.")

    shape: Annotated[Mapping[str, int], MappingOf(COUNT), "Its sizes by dim; none of a scalar: `{}`."]
    dtype: Annotated[str, FORMAT, "A number format."]
    copies: Annotated[int, COUNT, "How many there are."] = 1
    memory: Annotated[int | None, quantity("B"), MEMORY] = None
    moves: Annotated[tuple[Mapping[str, Any], ...], ListOf(MOVE), "What is done with it, in order."] = ()
    element: Annotated[Mapping[str, int], MappingOf(Integer(0)), "An element in the end, by its indices."] = field(
        default_factory=dict
    )


def move_faults(written: StatedValue, values: Values) -> Iterator[Fault]:
    """The first move that the tensor does not allow, and an element that it does not have."""
    x = strides.fresh(values["shape"], values["dtype"])
    for index, move in enumerate(values.get("moves", ())):
        ((name, arguments),) = move.items()
        node = written.node.fields["moves"].items[index]
        try:
            x = strides.MOVES[name](x, arguments)
        except strides.MoveError as error:
            yield fault_at(
                StatedValue(node.fields[name], (*written.path, "moves", index, name)), f": {error.message}", error.help
            )
            return
    sizes = dict(zip(x.dims, x.sizes, strict=True))
    for name, index in values.get("element", {}).items():
        if index >= sizes.get(name, 0):
            node = written.node.fields["element"].fields[name]
            wrong = (
                f" is {index}, and there are {sizes[name]}" if name in sizes else " is no dim of the tensor in the end"
            )
            yield fault_at(StatedValue(node, (*written.path, "element", name)), wrong, f"it has {', '.join(x.dims)}")


@dataclass(frozen=True)
class DtypeAsk:
    """A number format, by its name, and a value that is stored in it."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="A number format, and what a value becomes in it, bit by bit.")

    name: Annotated[str, FORMAT, "Its name."]
    value: Annotated[Fraction | None, ExactNumber(), "A value to store in it: `0.15625`."] = None
    largest: Annotated[
        Fraction | None,
        ExactNumber(),
        "Of a format with scales, the largest magnitude in the value's block; the value's own where not given.",
    ] = None
    tensor_largest: Annotated[
        Fraction | None,
        ExactNumber(),
        "Of nvfp4, the largest magnitude in the tensor, whose fp32 scale is that over 6 x 448; 1 where not given.",
    ] = None


def lacks_code(name: str, value: Fraction) -> bool:
    """Whether a format has no bits for a value: powers of two alone have neither a sign nor a zero."""
    return name == POWERS and value <= 0


def dtype_faults(written: StatedValue, values: Values) -> Iterator[Fault]:
    """A value that the format has no code for, and a block whose largest magnitude is below the value."""
    name, value = values["name"], values.get("value")
    if value is not None and lacks_code(name, value):
        place = written.inner("value", written.node.fields["value"])
        yield fault_at(place, f" cannot be stored in {name}", "a value above zero: it has neither a sign nor a zero")
    for key in ("largest", "tensor_largest"):
        if (largest := values.get(key)) is None:
            continue
        place = written.inner(key, written.node.fields[key])
        scaled = tuple(SCALES) if key == "largest" else ("nvfp4",)
        least = max(abs(value or 0), abs(values.get("largest") or 0) if key == "tensor_largest" else 0)
        if name not in scaled:
            lacks = f"{name} has no scales" if key == "largest" else f"{name} has no scale of a tensor"
            have = f"{', '.join(scaled)} {'have scales' if key == 'largest' else 'has one'}"
            yield fault_at(place, f" has no effect: {lacks}", f"leave it out; {have}")
        elif value is None or largest < least or not largest:
            above = "`value`" if key == "largest" else "`value` and `largest`"
            yield fault_at(place, f" must be above zero, and no less than the magnitude of {above}", "leave it out")


# --- state ---


@dataclass(frozen=True)
class StateAsk:
    """Bytes of state of so many parameters; `memory` is a device's, to be compared with `parts` of the state."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Bytes of weights, gradients and optimizer states.")

    precision: Annotated[Precision, PRECISION, "The number formats."]
    optimizer: Annotated[Optimizer, OPTIMIZER, "What updates the weights."]
    parameters: Annotated[int, Quantity("parameters"), "How many there are: `70e9`."] = 1
    parts: Annotated[
        tuple[str, ...],
        ListOf(Choice("weights", "gradients", "master", "optimizer")),
        "Parts of the state that memory is compared with.",
    ] = ()
    memory: Annotated[int | None, quantity("B"), MEMORY] = None


@dataclass(frozen=True)
class OptimizerAsk:
    """The states of an optimizer for one matrix, per element."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="What an optimizer keeps for a matrix.")

    rule: Annotated[Optimizer, At("name"), OPTIMIZER, "The optimizer."]
    dtype: Annotated[str, FORMAT, "The dtype of the matrix."]
    rows: Annotated[int, COUNT, "Rows of the matrix."]
    columns: Annotated[int, COUNT, "Columns of the matrix."]


# --- plans ---


@dataclass(frozen=True)
class InferenceAsk:
    """Prefill and decoding on one device, with `context` tokens in the cache, for several batch sizes."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Prefill and decoding.", extra=(SET,))

    plan: Annotated[Plan, PLAN, A_PLAN]
    context: Annotated[int, COUNT, "Tokens in the cache."]
    batches: Annotated[tuple[int, ...], ListOf(COUNT, 1), "Sequences that are decoded at once."]


@dataclass(frozen=True)
class Find:
    """The best value of an input of the plan, which it then has, as `ledger solve` finds it."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="An input of the plan that is solved for.")

    path: Annotated[str, At("for"), String(1), "The input: `run.seq_len`."]
    subject_to: Annotated[tuple[str, ...], TEXTS, "Conditions: `memory.peak <= 70 GB`; that it fits where none."] = ()
    maximize: Annotated[str, "The total that makes one value better than another."] = ""
    minimize: Annotated[str, "The same, the less the better."] = ""
    keep: Annotated[str, Choice("shape", "widths"), "What stays in proportion."] = ""
