"""What one case of a question gives: the quantities that its expressions may name, and its figures."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

from ledger.books.plan_quantities import DeviceQuantities, PlanQuantities
from ledger.books.results import Compiled
from ledger.course import plans
from ledger.course.answers import Figure, Found
from ledger.course.asked import Sought
from ledger.course.expected import number
from ledger.course.lecture import About
from ledger.course.plans import CompiledPlans, words
from ledger.course.questions import SUBJECTS
from ledger.spec.expressions import ExpressionError
from ledger.spec.near import nearest
from ledger.spec.problems import Problem, SpecError
from ledger.spec.quantity_expressions import Names, Quantity, Sum, Value, alike, evaluate, measured
from ledger.units import spelt

ALONE = re.compile(r"(?<![\w.'/])[a-z]\w*_\w+(?![\w.'/])")  # a name with several words, of no plan

NUMBER = re.compile(r"(?<![\w.'])\d")  # at the start of a number, of no name


@dataclass(frozen=True)
class Case:
    """What one case gives: its compiled plan, what is found of its records, its figures by name."""

    about: About
    compiled: Compiled | None
    found: tuple[Found, ...]
    figures: dict[str, Figure] = field(default_factory=dict)

    def lookup(self, name: str) -> Quantity:
        """A quantity: a figure above, a number of `with`, of a record, of the device, of the plan; KeyError else."""
        if name in self.figures:
            return quantity(self.figures[name])
        if name in self.about.values:
            return number(self.about.values[name])
        for found in self.found:
            for figure in found.figures:
                if figure.name == name:
                    return quantity(figure)
        if name.startswith("accelerator.") and self.about.accelerator:
            return DeviceQuantities(self.about.accelerator)(name)
        if self.compiled is None:
            raise KeyError(name)
        return PlanQuantities(self.compiled)(name)

    @property
    def names(self) -> Names:
        """What its expressions may name."""
        if self.compiled is None:
            known = [
                *self.figures,
                *self.about.values,
                *(figure.name for found in self.found for figure in found.figures),
            ]
            return Names(
                self.lookup, {}, lambda name: ExpressionError(f"nothing here is called `{name}`", nearest(name, known))
            )
        plan = PlanQuantities(self.compiled)
        functions: dict[str, Sum] = {
            "sum": plan.totals,
            **{when: partial(plan.spent, when) for when in ("forward", "backward")},
        }
        return Names(self.lookup, functions, plan.unknown)


def quantity(figure: Figure) -> Quantity:
    """The value of a figure with its unit."""
    return measured(figure.value, figure.unit)


def case_of(about: About, books: CompiledPlans) -> Case:
    """A case with its figures: those that are asked for, else all that is found of its records."""
    compiled, found = None, [SUBJECTS[kind].found(record) for kind, record in about.records.items()]
    plan = about.plan
    if plan is not None and about.find:
        plan, figure = plans.found(plan, about.find)
        found.append(Found((figure,)))
    if plan is not None:
        compiled = books(plan)
    case = Case(about, compiled, tuple(found))
    for name, sought in about.figures.items():
        known = (figure for one in found for figure in one.figures if figure.name == sought.expression.text)
        figure = next(known, None) or figure_of(name, sought, case.names)
        case.figures[name] = replace(figure, name=name, title=figure.title if sought.title is None else sought.title)
    if not about.figures:
        case.figures.update({figure.name: figure for one in found for figure in one.figures})
    return case


def figure_of(name: str, sought: Sought, names: Names) -> Figure:
    """A figure of an expression; what goes wrong with it is told where it stands."""
    text = sought.expression.text.strip()
    try:
        found = evaluate(text, names)
        _in_its_unit(name, found, sought)
    except ExpressionError as error:
        if sought.expression.where is None:
            raise
        raise SpecError([Problem(sought.expression.where, error.message, error.help)]) from error
    value: Value = found.value
    if isinstance(value, Fraction) and value.denominator == 1:
        value = int(value)
    is_name = text.replace(".", "").replace("_", "").isalnum()
    formula = "" if is_name else ALONE.sub(lambda name: name[0].replace("_", " "), text.partition(" if ")[0])
    title = words(text) if is_name and "." in text else name.replace("_", " ")
    title = title if sought.title is None else sought.title
    return Figure(name, title, value, sought.unit or _unit(text, found), formula)


def _in_its_unit(name: str, found: Quantity, sought: Sought) -> None:
    """A stated unit other than what follows needs a number in the expression that may hold the rest (3600 s/h)."""
    has_number = NUMBER.search(sought.expression.text)
    if sought.unit in ("", "1") or found.unit == "1" or has_number or alike(found, measured(0, sought.unit)):
        return
    raise ExpressionError(
        f"`{name}` comes out in {found.unit}, not in {sought.unit}", "leave `unit` out where it follows"
    )


def _unit(text: str, found: Quantity) -> str:
    """The unit of a quantity; a total that is a share stays one."""
    return spelt(text) if spelt(text) == "%" else found.unit
