"""A part of a layer that its author writes out: dims, weights, and steps that are einsums and what is between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, ClassVar

from ledger.spec.parts import PartHeader, PartOf
from ledger.spec.structures import OPTIONAL, Fields, KeyStated, ListOf, MappingOf, Needed, Row, Values
from ledger.spec.values import Choice, Integer, String
from ledger.spec.windows import Term, Window, parse_einsum, sides, terms, window

LOWER_NAME = "^[a-z][a-z0-9_]*$"
IS_CUSTOM = KeyStated("kind", "custom")
COMMON_DIMS = ("batch", "seq", "d_model")  # dims that every layer has
NONLINEARITIES = ("silu", "gelu", "gelu_tanh", "relu", "relu2")  # rows of `ACTIVATIONS` in model/activations.py
KEY = "key"  # the sequence once more: of each token those that it sees
PAIRS = ("multiply", "add", "scan")
REDUCTIONS = ("max", "mean")
STEPS = ("einsum", "activation", "softmax", "norm", *REDUCTIONS, *PAIRS)  # what a step may do
TWO_RESULTS = ListOf(String(), 2, 2)
PAIR_MEANINGS = {
    "multiply": "Two results, element by element; one that lacks dims of the other is seen again along them.",
    "add": "Two results, element by element.",
    "scan": "Of a decay and an input the states along the sequence: state = decay * state before + input.",
}


@dataclass(frozen=True)
class ComponentStep:
    """One step of a custom component: `kind` is what it does, one of `STEPS`; `of` names what it is from."""

    spec: ClassVar[PartHeader] = PartHeader(
        companion_keys={"bias": ("weight",), "mask": ("softmax",), "dtype": ("scan",), "in_place": ("add",)},
        extra=tuple(Row(key, TWO_RESULTS, meaning, key) for key, meaning in PAIR_MEANINGS.items()),
    )

    name: Annotated[
        str, String(pattern=LOWER_NAME), "What the result goes by, and the last part of its account.", OPTIONAL
    ]
    kind: str
    of: Annotated[
        tuple[str, ...],
        ListOf(String(), 1, 2),
        "Results it is computed from; the one before where not given.",
        OPTIONAL,
    ]
    einsum: Annotated[str, "`batch seq d_model, latent d_model -> batch seq latent`."] = ""
    weight: Annotated[str, "The einsum's second operand, where it is a weight; or a norm's factor."] = ""
    bias: Annotated[str, "A weight that the same kernel adds."] = ""
    activation: Annotated[str, Choice(*NONLINEARITIES, "sigmoid"), "A nonlinearity."] = ""
    softmax: Annotated[str, Choice(KEY), "Shares over the last dim: those of the tokens that each token sees."] = ""
    norm: Annotated[
        str,
        Choice("batch"),
        "Each channel less its mean over all images and places, over their deviation: batch norm in training. Channels "
        "are the dims of its weight, after the first one.",
    ] = ""
    max: Annotated[str, "The largest in each window: `batch wide (2*rows+tall-1) -> batch wide rows`."] = ""
    mean: Annotated[str, "The mean over dims that the result lacks: `batch wide rows columns -> batch wide`."] = ""
    in_place: Annotated[bool, "Whether a sum is written over the first of both."] = False
    mask: Annotated[str, Choice("none", "causal"), "Whether a token sees those before it alone."] = "none"
    dtype: Annotated[str, Choice("compute", "fp32"), "The dtype of a scan's states and of all that it reads."] = (
        "compute"
    )

    @classmethod
    def from_spec(cls, values: Values) -> ComponentStep:
        """The step whose kind is the key that it has; `custom` adds a name and operands that it does not state."""
        kind = next((kind for kind in STEPS if kind in values), "")
        pair = {key: values.pop(key) for key in PAIRS if key in values}
        return cls(**({"name": "", "kind": kind, "of": ()} | values | ({"of": pair[kind]} if kind in pair else {})))


@dataclass(frozen=True)
class CustomPart:
    """A component of its author's own: sizes of its dims, dims of its weights, its steps, and which axis cuts what.

    `takes` are the dims of what it starts from. `like`: the layer group whose steps and weights it has.
    """

    dims: tuple[tuple[str, int], ...]
    weights: tuple[tuple[str, tuple[str, ...]], ...]
    steps: tuple[ComponentStep, ...]
    split: tuple[tuple[str, tuple[str, ...]], ...] = ()
    takes: Term = COMMON_DIMS
    like: str = ""

    @property
    def causal(self) -> bool:
        """Whether each token sees those before it alone."""
        return any(step.mask == "causal" for step in self.steps)

    @property
    def mixes(self) -> bool:
        """Whether tokens see each other, so that each device needs whole sequences."""
        scans = any(step.kind == "scan" or KEY in step.einsum.replace(",", " ").split() for step in self.steps)
        return scans or any(self._token_windows())

    @property
    def sees_later(self) -> bool:
        """Whether a window over the sequence reaches beyond the token that it is for."""
        sizes = dict(self.dims)
        return any(span.padding < span.dilation * (sizes.get(span.tap, 1) - 1) for _, span in self._token_windows())

    def _token_windows(self) -> Iterator[tuple[ComponentStep, Window]]:
        """The windows over the sequence, each with its step."""
        for step in self.steps:
            einsum = parse_einsum(step.einsum) if step.kind == "einsum" else None
            operand = einsum[0] if einsum else ()
            yield from ((step, span) for index in operand if (span := window(index)) and span.over == COMMON_DIMS[1])

    @property
    def shapes(self) -> Mapping[str, Term]:
        """The dims of `x` and of every result, by name."""
        dims_by_name: dict[str, Term] = {"x": self.takes}
        for step in self.steps:
            dims_by_name[step.name] = shape(step, dims_by_name)
        return dims_by_name

    @property
    def gives(self) -> Term:
        """The dims of its result."""
        return self.shapes[self.steps[-1].name]

    def sizes_of(self, term: Term) -> tuple[int, ...]:
        """The sizes of the dims of a term that are the component's own."""
        sizes = dict(self.dims)
        return tuple(sizes[name] for name in term if name in sizes)

    def pads(self, step: ComponentStep) -> tuple[tuple[int, int], ...]:
        """Zeros before and after each dim that is read through windows, where one has them before it alone; else none.

        A sequence, whatever its length is, has so many windows as tokens.
        """
        sizes, padding, causal = dict(self.dims), [], False
        for name, index in zip(self.shapes[step.of[0]], terms(step.einsum)[0], strict=True):
            span = window(index)
            if span is None:
                continue
            tap = sizes[span.tap]
            if name in sizes:
                before_only = not span.fits(sizes[name], sizes[span.over], tap)
            else:
                before_only = span.padding == span.dilation * (tap - 1) > 0
            causal |= before_only
            padding.append((span.padding, 0 if before_only else span.padding))
        return tuple(padding) if causal else ()

    @property
    def cached(self) -> int:
        """Elements that a decoder keeps for each token: of every result that later tokens read as keys."""
        return sum(self._elements(self.shapes[name]) for name in {*self._keys()})

    def states(self, dtype: str) -> int:
        """Elements that a decoder keeps whatever the length is: one state of every scan in this dtype."""
        scans = (step for step in self.steps if step.kind == "scan" and step.dtype == dtype)
        return sum(self._elements(self.shapes[step.name]) for step in scans)

    def windows(self, d_model: int) -> int:
        """Elements that a decoder keeps of earlier tokens for windows over the sequence."""
        sizes, elements = {**dict(self.dims), COMMON_DIMS[2]: d_model}, 0
        for step, span in self._token_windows():
            elements_per_token = prod(sizes[name] for name in self.shapes[step.of[0]] if name in sizes)
            elements += span.dilation * (sizes[span.tap] - 1) * elements_per_token
        return elements

    def _keys(self) -> Iterator[str]:
        for step in self.steps:
            if step.kind == "einsum":
                yield from (
                    name
                    for name, term in zip(step.of, terms(step.einsum), strict=False)
                    if KEY in term and KEY not in self.shapes[name]
                )

    def _elements(self, dims: Term) -> int:
        """Elements of one token of one sequence; the residual stream has no cache of its own."""
        return prod(size for name, size in self.dims if name in dims)


def shape(step: ComponentStep, shapes: Mapping[str, Term]) -> Term:
    """The dims of a step's result."""
    if step.kind == "einsum":
        return terms(step.einsum)[2]
    if step.kind in REDUCTIONS:
        return sides(getattr(step, step.kind))[1]
    first, *other_dims = (shapes[name] for name in step.of)
    if step.kind == "scan":
        return other_dims[0]
    return (*first, *(name for dims in other_dims for name in dims if name not in first))


def custom(
    dims: Mapping[str, int],
    weights: Mapping[str, str],
    steps: tuple[ComponentStep, ...],
    split: Mapping[str, tuple[str, ...]],
) -> CustomPart:
    """The component; a step is from the one before, and named by what it does, where it does not say."""
    named_steps: list[ComponentStep] = []
    for step in steps:
        name = step.name or f"{step.kind}_{len(named_steps) + 1}"
        previous = named_steps[-1].name if named_steps else "x"
        named_steps.append(replace(step, name=name, of=step.of or (previous,)))
    pairs = tuple((name, tuple(axes.split())) for name, axes in weights.items())
    return CustomPart(tuple(dims.items()), pairs, tuple(named_steps), tuple(split.items()))


def take_custom_part(values: Values) -> Values:
    """The component that the fields of a part write out, which are taken from the others; nothing where none does."""
    component_fields = {row.attribute: values.pop(row.attribute, {}) for row in CUSTOM_ROWS}
    return {"custom": custom(**component_fields)} if component_fields["steps"] else {}


# Fields of a custom component, which stand among those of the part.
CUSTOM_ROWS = (
    Row(
        "dims",
        MappingOf(Integer(1, 100_000_000), 1, "^[a-z][a-z0-9_]+$"),
        "Of a custom component: its own dims with their sizes, `{latent: 512}`. `batch`, `seq` and `d_model` are "
        "there.",
        "dims",
        Needed(when=IS_CUSTOM),
    ),
    Row(
        "weights",
        MappingOf(String(pattern="^[a-z][a-z0-9_]*( [a-z][a-z0-9_]*)*$"), 1, LOWER_NAME),
        "Of a custom component: its weights by the names of their dims, `{w_down: latent d_model}`.",
        "weights",
        Needed(when=IS_CUSTOM),
    ),
    Row(
        "steps",
        ListOf(PartOf(ComponentStep), 1, 200),
        "Of a custom component: what it does, in order, from `x` (batch seq d_model) to a result of that shape.",
        "steps",
        Needed(when=IS_CUSTOM),
    ),
    Row(
        "split",
        Fields((Row("tensor", ListOf(String(), 1, unique=True), "Dims that tensor parallelism cuts.", "tensor"),)),
        "Of a custom component: which of its dims tensor parallelism cuts, `{tensor: [latent]}`.",
        "split",
    ),
)
