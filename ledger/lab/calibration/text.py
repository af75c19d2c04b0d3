"""Fitted prices as the text of an accelerator spec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from ledger.price_forms import PRICE_FORMS
from ledger.spec.plan import Curve
from ledger.spec.price_lists import written


def based_spec(base: str, title: str, curves: Iterable[Curve]) -> str:
    """A spec of an accelerator that the library has, with these prices in place of its own."""
    head = ("spec: ledger/1", f"base: {base}", f"accelerator: {quoted(title)}", f"aliases: [{base}]")
    return "\n".join([*head, "calibration:", *price_lines(curves), ""])


def whole_spec(parts: Mapping[str, str], curves: Iterable[Curve]) -> str:
    """A whole spec: its data sheet, each part as it is written, then the prices."""
    head = ("spec: ledger/1", *(f"{key}: {value}" for key, value in parts.items()))
    return "\n".join([*head, "calibration:", *price_lines(curves), ""])


def price_lines(curves: Iterable[Curve]) -> Iterator[str]:
    """A block of lines for each price."""
    for curve in curves:
        yield from _lines(curve)


def _lines(curve: Curve) -> Iterator[str]:
    yield f"  - what: {curve.what}"
    yield f"    form: {curve.form}"
    yield f"    regime: {curve.regime}"
    if curve.ranks:
        yield f"    ranks: {curve.ranks}"
    if curve.head_dim:
        yield f"    head_dim: {curve.head_dim}"
    form = PRICE_FORMS[curve.form]
    stated = ", ".join(f"{one.name}: {written(curve.parameters[one.name], one.unit)}" for one in form.parameters)
    yield f"    parameters: {{{stated}}}"
    yield f"    error: {percent(curve.error)}"
    if curve.bias:
        yield f"    bias: {percent(curve.bias)}"
    if curve.held_out:
        yield f"    held_out: {quoted(curve.held_out)}"
    if curve.region:
        yield f"    region: {quoted(curve.region)}"
    yield f"    source: {quoted(curve.source)}"


def percent(share: float) -> str:
    """A share to a tenth of a percent."""
    return f"{share * 100:.1f} %"


def quoted(text: str) -> str:
    """Text as YAML reads it back, whatever it holds."""
    return json.dumps(text, ensure_ascii=False)
