"""Where a number of a plan comes from: records of formula, rule, citation, and every input with its value and place."""

from __future__ import annotations

from typing import Any

from ledger.books.breakdown import LINKS, breakdown, links
from ledger.books.closed_forms import PlanForms
from ledger.books.compiled import Compiled
from ledger.books.meanings import meanings, value_of_input
from ledger.books.names import unknown_name
from ledger.books.results import Account, Symbol
from ledger.report.closed_form_text import form_record
from ledger.report.contract import json_number
from ledger.spec.data import DECODED_SOURCE, WorkRate
from ledger.spec.inputs import origin
from ledger.spec.paths import is_known, unit
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
from ledger.spec.token_budget import TokensPerParameter
from ledger.units import unit_of

DEFAULT = "default"
NONE = "none"  # the specs' word for what a plan does without


def explanation(compiled: Compiled, name: str, forms: PlanForms | None = None) -> dict[str, Any]:
    """The record of an account, a total or an input; SpecError for a name that the plan does not have.

    `forms` are the plan's, which many explanations may share.
    """
    if leaves := [leaf for leaf in compiled.accounts if leaf.account == name]:
        return account_record(compiled, leaves)
    if name in compiled.totals:
        return total_record(compiled, name, forms or PlanForms(compiled))
    if is_known(name) and (record := input_record(compiled, name)):
        return record
    raise SpecError([unknown_name(compiled, name)])


def account_record(compiled: Compiled, leaves: list[Account]) -> dict[str, Any]:
    """An account: its postings in ledger order, and every symbol of their formulas."""
    postings: dict[tuple[str, ...], list[Account]] = {}
    for leaf in leaves:
        postings.setdefault((leaf.when, leaf.resource.name, leaf.formula, leaf.basis), []).append(leaf)
    names = sorted({str(symbol) for leaf in leaves for symbol in leaf.expression.free_symbols})
    return {
        "account": leaves[0].account,
        "entries": [posting_record(roles) for roles in postings.values()],
        "symbols": [symbol_record(compiled.plan, compiled.symbols[name]) for name in names],
    }


def posting_record(leaves: list[Account]) -> dict[str, Any]:
    """What leaves of several roles share when one rule posted them with one formula, and each role's amount."""
    first = leaves[0]
    return {
        "when": first.when,
        "resource": first.resource.name,
        "unit": first.unit,
        "formula": first.formula,
        "basis": first.basis,
        "roles": [{"role": leaf.role, "amount": json_number(leaf.amount), "times": leaf.times} for leaf in leaves],
    }


def symbol_record(plan: Plan, symbol: Symbol) -> dict[str, Any]:
    """A symbol with its value, the spec path, and `file:line:column` (empty: written nowhere)."""
    place = origin(plan, symbol.path)
    return {
        "symbol": symbol.name,
        "value": json_number(symbol.value),
        "meaning": symbol.meaning,
        "path": symbol.path,
        "where": str(place.where) if place else "",
        "source": place.source if place else "",
    }


def total_record(compiled: Compiled, key: str, forms: PlanForms) -> dict[str, Any]:
    """A total with its formula, inputs, parts, largest accounts and closed form."""
    parts = breakdown(compiled, key)
    return {
        "total": key,
        "value": json_number(compiled.totals[key]),
        "unit": unit_of(key),
        **meaning_record(compiled, key),
        "note": parts.note,
        "parts": [{"part": name, "value": json_number(value)} for name, value in parts.parts],
        "largest": [{"account": name, "value": json_number(value)} for name, value in parts.largest],
        "form": form_record(form) if (form := forms[key]) else None,
    }


def meaning_record(compiled: Compiled, key: str) -> dict[str, Any]:
    """The formula, the rule, and every input that this plan has; empty for a total without a row."""
    unused = LINKS - links(compiled) if key == "time.comm" else frozenset()
    for row in meanings(compiled.plan, key):
        inputs = [record for name in row.inputs if name not in unused and (record := input_record(compiled, name))]
        return {"formula": row.formula, "basis": row.basis, "inputs": inputs}
    return {"formula": "", "basis": "", "inputs": []}


def input_record(compiled: Compiled, name: str) -> dict[str, Any]:
    """A total with its value, or a value of the spec with its place; empty where the plan has neither."""
    try:
        value = value_of_input(compiled, name)
    except KeyError:
        return {}
    if name in compiled.totals:
        return {"input": name, "value": json_number(value), "unit": unit_of(name), "where": "total", "source": ""}
    place, source = origin(compiled.plan, name), ""
    if name == "data.rate" and value is None and compiled.plan.data.workers:
        value = compiled.plan.data.worker_rate(compiled.plan.model)
        source = DECODED_SOURCE if value else ""
    if value is None:
        value = NONE
    elif isinstance(value, WorkRate):
        value = value.title
    elif isinstance(value, TokensPerParameter):
        value = value.product
    elif not isinstance(value, int | float | str):
        value = getattr(value, "name", str(value))
    return {
        "input": name,
        "value": value,
        "unit": unit(name),
        "where": str(place.where) if place and not source else DEFAULT,
        "source": source or (place.source if place else ""),
    }
