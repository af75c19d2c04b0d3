"""A feed-forward part that the model's author writes as steps: einsums over named dims, activations, products, sums."""

from __future__ import annotations

from dataclasses import replace

from ledger.model.activations import activation
from ledger.model.dims import Dim, dim, own
from ledger.model.modules import Module, Parameter
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.feed_forward import GIVEN
from ledger.spec.plan import MLP, ComponentStep, Custom


def custom(tape: Tape, x: Tensor, spec: MLP) -> Tensor:
    """The steps of a component in order, each from the results it names; the last one's is the component's."""
    component = spec.custom
    if component is None:
        raise TypeError("a custom component has steps")
    table = {name: dim(name) for name in GIVEN} | {name: own(name, tape.suffix) for name, _ in component.dims}
    tape = _split(tape, component)
    results: dict[str, Tensor] = {"x": x}
    for step in component.steps:
        operands = [results[name] for name in step.of]
        results[step.name] = _step(tape, Module("mlp", step.name), operands, (component, step, table))
    return results[component.steps[-1].name]


def _split(tape: Tape, component: Custom) -> Tape:
    """The tape with the component's dims cut over the axes that its author says, where those are there at all."""
    cut = {name: axis for axis, names in component.split for name in names if axis in tape.layout.cuts}
    return replace(tape, layout=replace(tape.layout, splits={**tape.layout.splits, **cut}))


def _step(
    tape: Tape, module: Module, operands: list[Tensor], written: tuple[Custom, ComponentStep, dict[str, Dim]]
) -> Tensor:
    (component, step, table), name = written, str(module)
    if step.kind == "activation":
        return activation(tape.inside("activation"), name, operands[0], step.activation)
    if step.kind == "multiply":
        return tape.inside("activation").pointwise(name, *operands, saves=operands)
    if step.kind == "add":
        return tape.pointwise(name, *operands, add=True)
    shapes = dict(component.weights)

    def own(weight: str) -> Tensor:
        return tape.weight(Parameter(Module("mlp", weight), kind=""), tuple(table[n] for n in shapes[weight]))

    weight = own(step.weight) if step.weight else operands[1]
    return tape.contract(module, step.einsum, operands[0], weight, bias=own(step.bias) if step.bias else None)
