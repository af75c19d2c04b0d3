"""The order of modules in a step, as DeepSpeed hooks see them: those with weights, and those that hold several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ledger.model.fsdp_units import ENDS, INPUT, OUTPUT
from ledger.model.operations import Operation
from ledger.model.program import Program
from ledger.model.tensors import Tensor
from ledger.model.units import Unit

FORWARD, BACKWARD = "forward", "backward"
END = -1  # the layer of what is no layer
Key = tuple[str, int]  # a weight and its layer


@dataclass(frozen=True)
class Visit:
    """A module that runs in a pass; one that has no weights of its own still fetches ahead. `again`: it is rebuilt."""

    phase: str
    unit: str
    layer: int
    module: str
    weights: tuple[Key, ...] = ()
    again: bool = False


@dataclass(frozen=True)
class ModuleOrder:
    """The modules of a micro-batch on a device that holds these layers in this order."""

    program: Program
    layers: tuple[str, ...]  # the unit of each

    @cached_property
    def units(self) -> Mapping[str, Unit]:
        """The units of the device by the names that layers have in `layers`."""
        return {unit.name: unit for unit in self.program.units}

    def places(self, unit: str) -> Sequence[int]:
        """The layers that are of a unit."""
        return (END,) if unit in ENDS else [place for place, name in enumerate(self.layers) if name == unit]

    def events(self) -> Iterator[tuple[bool, Visit]]:
        """Modules as they begin (true) and end."""
        yield from self._forward()
        yield from self._backward()

    def _forward(self) -> Iterator[tuple[bool, Visit]]:
        if INPUT in self.units:
            for name in ("", "model"):
                yield True, Visit(FORWARD, INPUT, END, name)
            yield from self._run(FORWARD, INPUT, END)
            if any(tensor.role == "table" for op in self._operations() for tensor in op.inputs):
                yield True, Visit(FORWARD, INPUT, END, "rotary")
        for place, name in enumerate(self.layers):
            yield True, Visit(FORWARD, name, place, "layer")
            yield from self._run(FORWARD, name, place)
        if OUTPUT in self.units:
            yield from self._run(FORWARD, OUTPUT, END)

    def _operations(self) -> Iterator[Operation]:
        return (op for unit in self.program.units for op in unit.forward)

    def _run(self, phase: str, unit: str, layer: int, *, again: bool = False) -> Iterator[tuple[bool, Visit]]:
        """The modules of a unit in order; of a rebuilt one the last never ends, since rebuilding stops there."""
        operations = self.units[unit].kept.again if again else self.units[unit].forward
        found = [Visit(phase, unit, layer, *module, again) for module in self.modules(operations, layer)]
        for visit in found:
            yield True, visit
            if visit.weights and not (again and visit is found[-1]):
                yield False, visit

    def _backward(self) -> Iterator[tuple[bool, Visit]]:
        if OUTPUT in self.units:
            yield True, Visit(BACKWARD, OUTPUT, END, "")
            for place, visit in enumerate(self._reversed(OUTPUT, END)):
                if place == 1:
                    yield True, Visit(BACKWARD, OUTPUT, END, "model")
                yield True, visit
                yield False, visit
        for place, name in reversed(tuple(enumerate(self.layers))):
            yield True, Visit(BACKWARD, name, place, "layer")
            visits = tuple(self._reversed(name, place))
            first = next((index for index, visit in enumerate(visits) if visit.weights), 0)
            for index, visit in enumerate(visits):
                yield True, visit
                if index == first and self.units[name].kept.again:
                    yield True, Visit(BACKWARD, name, place, "layer", again=True)
                    yield from self._run(BACKWARD, name, place, again=True)
                if visit.weights:
                    yield False, visit
        if INPUT in self.units:
            for visit in self._reversed(INPUT, END):
                yield True, visit

    def _reversed(self, unit: str, layer: int) -> Iterator[Visit]:
        """The modules of a unit as backward visits them: what holds others begins before them."""
        found = list(self.modules(self.units[unit].forward, layer))
        holding = {name for name, weights in found if not weights and "/" not in name}
        begun: set[str] = set()
        for name, weights in reversed([each for each in found if each[0] not in holding]):
            part = name.split("/")[0]
            if part in holding - begun:
                begun.add(part)
                yield Visit(BACKWARD, unit, layer, part)
            yield Visit(BACKWARD, unit, layer, name, weights)

    def modules(self, operations: Iterable[Operation], layer: int) -> Iterator[tuple[str, tuple[Key, ...]]]:
        """Modules by the weights that operations read, with the activation's, and the parts that hold several."""
        found: dict[str, dict[str, None]] = {}
        for operation in operations:
            for tensor in weights_of(operation):
                found.setdefault(module_of(tensor.storage), {})[tensor.storage] = None
            if operation.name.endswith("/activation"):
                found.setdefault(operation.name, {})
        parts = Counter(name.split("/")[0] for name in found)
        begun: set[str] = set()
        for name, weights in found.items():
            part = name.split("/")[0]
            if parts[part] > 1 and part not in begun and layer != END:
                begun.add(part)
                yield part, ()
            yield name, tuple((weight, layer) for weight in weights)


def weights_of(operation: Operation) -> Iterator[Tensor]:
    """The weights that an operation reads."""
    return (tensor for tensor in operation.inputs if tensor.role == "weight")


def module_of(weight: str) -> str:
    """The module of a weight: all but the last part of its name."""
    return weight.rpartition(".")[0]
