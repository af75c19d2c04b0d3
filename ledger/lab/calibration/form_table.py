"""The price forms as a section of a document: formulas, parameters and the kernel classes that each prices."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.lab.markdown import MadeSection, table
from ledger.price_forms import PRICE_FORMS
from ledger.spec.kernel_families import KERNEL_FAMILIES, classes_of
from ledger.spec.price_lists import priced_forms, range_of, written

FORMS = MadeSection(
    "<!-- price forms: made by `make calibration` from ledger/price_forms.py -->", "<!-- end of price forms -->"
)


def form_lines() -> Iterator[str]:
    """What each form computes of what, its parameters with unit and range, and what it prices."""
    yield from table(("form", "seconds", "of"), map(_formula, PRICE_FORMS))
    head = ("form", "parameter", "what it is", "unit", "range", "typical")
    yield from table(head, (row for form in PRICE_FORMS for row in _parameters(form)))
    yield from table(("form", "kernel classes that it prices"), map(_classes, priced_forms()))


def _formula(form: str) -> tuple[str, ...]:
    row = PRICE_FORMS[form]
    sizes = "; ".join(f"`{name}`: {meaning}" for name, meaning in row.sizes.items())
    return f"`{form}`", f"`{row.formula}`", sizes


def _parameters(form: str) -> Iterator[tuple[str, ...]]:
    for one in PRICE_FORMS[form].parameters:
        unit = "–" if one.unit == "1" else one.unit
        yield f"`{form}`", f"`{one.name}`", one.meaning, unit, range_of(one), written(one.typical, one.unit)


def _classes(form: str) -> tuple[str, ...]:
    families = (family for family, row in KERNEL_FAMILIES.items() if row.form == form)
    return f"`{form}`", ", ".join(f"`{what}`" for family in families for what in classes_of(family))
