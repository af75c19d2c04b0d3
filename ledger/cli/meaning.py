"""What a total means, with the values and places of what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.books.results import Compiled

DEFAULT = "default"
NONE = "none"  # the specs' word for what a plan does without


def meaning_record(compiled: Compiled, key: str) -> dict[str, Any]:
    """The formula, the rule, and every input that this plan has; empty for a total without a row."""
    from ledger.books.links import LINKS, links
    from ledger.books.meanings import meanings

    unused = LINKS - links(compiled) if key == "time.comm" else frozenset()
    for row in meanings(compiled.plan, key):
        inputs = [record for name in row.inputs if name not in unused and (record := input_record(compiled, name))]
        return {"formula": row.formula, "basis": row.basis, "inputs": inputs}
    return {"formula": "", "basis": "", "inputs": []}


def input_record(compiled: Compiled, name: str) -> dict[str, Any]:
    """A total with its value, or a value of the spec with its place; empty where the plan has neither."""
    from ledger.books.meanings import known
    from ledger.numbers import unit_of
    from ledger.report.contract import number
    from ledger.spec.inputs import origin, unit

    try:
        value = known(compiled, name)
    except KeyError:
        return {}
    if name in compiled.totals:
        return {"input": name, "value": number(value), "unit": unit_of(name), "where": "total", "source": ""}
    found = origin(compiled.plan, name)
    shown = value if isinstance(value, int | float | str) else getattr(value, "name", str(value))
    return {
        "input": name,
        "value": NONE if value is None else shown,
        "unit": unit(name),
        "where": str(found.where) if found else DEFAULT,
        "source": found.source if found else "",
    }


def input_row(record: dict[str, Any]) -> tuple[str, str, str, str]:
    """An input as a table shows it."""
    from ledger.cli.tables import amount

    value = record["value"]
    shown = str(value) if isinstance(value, str | bool) else amount(value, record["unit"])
    return record["input"], shown, record["where"], record["source"]
