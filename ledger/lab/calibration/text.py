"""Fitted prices as the text of an accelerator spec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from ledger.spec.plan import Curve

UNITS: Mapping[str, tuple[float, str]] = {"t0": (1e6, " us"), "a": (1e6, " us"), "B": (1e-9, " GB/s")}


def derived(base: str, title: str, curves: Iterable[Curve]) -> str:
    """A spec of an accelerator that the library has, with these prices in place of its own."""
    head = ("spec: ledger/1", f"base: {base}", f"accelerator: {quoted(title)}", f"aliases: [{base}]")
    return "\n".join([*head, "calibration:", *rows(curves), ""])


def fresh(parts: Mapping[str, str], curves: Iterable[Curve]) -> str:
    """A whole spec: its data sheet, each part as it is written, then the prices."""
    head = ("spec: ledger/1", *(f"{key}: {value}" for key, value in parts.items()))
    return "\n".join([*head, "calibration:", *rows(curves), ""])


def rows(curves: Iterable[Curve]) -> Iterator[str]:
    """A block of lines for each price."""
    for curve in curves:
        yield from _row(curve)


def _row(curve: Curve) -> Iterator[str]:
    yield f"  - what: {curve.what}"
    yield f"    form: {curve.form}"
    yield f"    regime: {curve.regime}"
    if curve.ranks:
        yield f"    ranks: {curve.ranks}"
    if curve.head_dim:
        yield f"    head_dim: {curve.head_dim}"
    written = ", ".join(f"{name}: {constant(name, value)}" for name, value in curve.parameters.items())
    yield f"    parameters: {{{written}}}"
    yield f"    error: {percent(curve.error)}"
    if curve.bias:
        yield f"    bias: {percent(curve.bias)}"
    if curve.held_out:
        yield f"    held_out: {quoted(curve.held_out)}"
    if curve.region:
        yield f"    region: {quoted(curve.region)}"
    yield f"    source: {quoted(curve.source)}"


def constant(name: str, value: float) -> str:
    """A parameter with the unit that it is read with."""
    scale, unit = UNITS.get(name, (1.0, ""))
    return f"{float(f'{value * scale:.4g}'):g}{unit}"


def percent(share: float) -> str:
    """A share to a tenth of a percent."""
    return f"{share * 100:.1f} %"


def quoted(text: str) -> str:
    """Text as YAML reads it back, whatever it holds."""
    return json.dumps(text, ensure_ascii=False)
