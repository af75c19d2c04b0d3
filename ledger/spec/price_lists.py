"""The fitted prices of an accelerator as they are written, held to the tables of price forms and kernel classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.price_forms import PRICE_FORMS, PriceForm, PriceParameter
from ledger.spec.faults import Fault, Faults, StatedValue
from ledger.spec.kernel_classes import form_of, kernel_class
from ledger.spec.near import nearest
from ledger.spec.parts import PartOf
from ledger.spec.problems import Problem
from ledger.spec.quantities import DIMENSIONS, QuantityError, parse, write
from ledger.spec.reader import Node
from ledger.spec.structures import NEEDED, Fields, MappingOf, Row
from ledger.spec.values import Quantity, Schema, String

DIGITS = 4  # of a parameter
# How a parameter of a unit is written: what it is multiplied by, and the unit behind it.
WRITTEN: Mapping[str, tuple[float, str]] = {"s": (1e6, " us"), "B/s": (1e-9, " GB/s"), "1": (1.0, "")}


def priced_forms() -> tuple[str, ...]:
    """The forms that a price list may have."""
    return tuple(name for name, form in PRICE_FORMS.items() if form.priced)


@dataclass(frozen=True)
class NameOf(String):
    """A name of a table: what it is a name of, and which there are."""

    noun: str = ""
    names: Callable[[], tuple[str, ...]] = tuple

    def value(self, written: StatedValue, faults: Faults) -> str:
        """The name; of an unknown one, the fault offers the nearest."""
        name = super().value(written, faults)
        if name not in (names := self.names()):
            problem = Problem(written.node.where, f"no {self.noun} is named `{name}`", nearest(name, names))
            faults.append(Fault(written.path, problem, harmless=True))
        return name

    @property
    def bounds(self) -> Schema:
        """The names there are."""
        return {"enum": list(self.names())}


class PriceParameters(MappingOf):
    """The parameters of a fitted price; `PriceOf` holds them to the form and its ranges."""

    def schema(self) -> Schema:
        """The parameters of any form."""
        return {"anyOf": [_parameter_fields(PRICE_FORMS[form]).schema() for form in priced_forms()]}


def _parameter_fields(form: PriceForm) -> Fields:
    """The parameters of a form as fields."""
    rows = []
    for parameter in form.parameters:
        kind = Quantity(parameter.unit, zero=not parameter.positive, greatest=int(parameter.most))
        rows.append(Row(parameter.name, kind, parameter.meaning, needed=NEEDED))
    return Fields(tuple(rows))


@dataclass(frozen=True)
class PriceOf(PartOf):
    """A fitted price: a part whose parameters are those of its form, with their units and within their ranges."""

    def value(self, written: StatedValue, faults: Faults) -> Any:
        """The price; faults of its class and parameters are in the words of its form."""
        fault_count, price = len(faults), written.node
        kernel, stated = _plain_text(price, "what"), _plain_text(price, "form")
        parameters = price.fields.get("parameters")
        form = form_of(kernel_class(kernel)) or stated
        if stated in priced_forms() and stated != form:
            message = f"{kernel} is priced by the form {form}, not {stated}"
            problem = Problem(
                price.fields["form"].where, message, f"`form: {form}`, which is {PRICE_FORMS[form].formula}"
            )
            faults.append(Fault(written.path, problem, harmless=True))
        if parameters is not None and form in priced_forms():
            faults += (Fault(written.path, problem) for problem in parameter_problems(kernel, form, parameters))
        value = super().value(written, faults)
        return value if all(fault.harmless for fault in faults[fault_count:]) else None


def _plain_text(price: Node, key: str) -> str:
    value = price.fields[key].value if key in price.fields else ""
    return value if isinstance(value, str) else ""


def parameter_problems(kernel: str, form: str, parameters: Node, beyond: float = 1.0) -> Iterator[Problem]:
    """Problems of a class's parameters: missing, none of its form, of another unit, or out of range.

    `beyond`: how many times the greatest value of its range a parameter may be.
    """
    row = PRICE_FORMS[form]
    by_name = {parameter.name: parameter for parameter in row.parameters}
    if missing := [f"`{name}`" for name in by_name if name not in parameters.fields]:
        message = f"{kernel}: form {form} lacks {', '.join(missing)}"
        yield Problem(parameters.where, message, f"it has {', '.join(by_name)}: {row.formula}")
    for name, node in parameters.fields.items():
        if name not in by_name:
            message = f"{kernel}: form {form} has no parameter `{name}`"
            yield Problem(parameters.keys.get(name, node.where), message, nearest(name, list(by_name)))
        elif isinstance(node.value, str | int | float) and not isinstance(node.value, bool):
            fault, help_text = _fault(by_name[name], node.value, beyond)
            if fault:
                yield Problem(node.where, f"{kernel}: `{name}`{fault}", help_text)


def _fault(parameter: PriceParameter, stated: str | float, beyond: float) -> tuple[str, str]:
    """The fault of a value, and what to write instead; empty where there is none."""
    try:
        value = parse(str(stated), parameter.unit)
    except QuantityError as error:
        return f": {error.message}", error.help if error.help.startswith("did you mean") else _parameter_help(parameter)
    outside = value < parameter.least or value > parameter.most * beyond or (parameter.positive and value == 0)
    return (f" cannot be {stated}", _parameter_help(parameter)) if outside else ("", "")


def _parameter_help(parameter: PriceParameter) -> str:
    """The meaning of a parameter, its range, and an example."""
    example = parameter_text(parameter.typical, parameter.unit)
    return f"`{parameter.name}`: {parameter.meaning}, {range_of(parameter)}, for example {example}"


def range_of(parameter: PriceParameter) -> str:
    """The range of a parameter in words: `above 0 and at most 1`, `from 0 to 1 s`."""
    most = write(parameter.most, parameter.unit)
    return (
        f"above {parameter.least:g} and at most {most}" if parameter.positive else f"from {parameter.least:g} to {most}"
    )


def parameter_text(value: float, unit: str) -> str:
    """A parameter with the unit that it is read with; zero where it is too small to be read again."""
    scale, name = WRITTEN[unit]
    value = value if value >= DIMENSIONS[unit].smallest else 0.0
    return f"{float(f'{value * scale:.{DIGITS}g}'):g}{name}"
