"""Fitted prices as the text of an accelerator spec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ledger.price_forms import PRICE_FORMS
from ledger.spec.plan import Curve
from ledger.spec.price_lists import written


def spec_head(parts: Iterable[tuple[str, str]]) -> str:
    """How the spec of an accelerator begins, each part as it is written."""
    return "\n".join(["spec: ledger/1", *(f"{key}: {value}" for key, value in parts), ""])


def spec_text(head: str, curves: Iterable[Curve]) -> str:
    """The spec that begins so, with its prices."""
    return head + "\n".join(["calibration:", *(line for curve in curves for line in _price_lines(curve)), ""])


def _price_lines(curve: Curve) -> Iterator[str]:
    """What is stated of a price, a line each."""
    units = {one.name: one.unit for one in PRICE_FORMS[curve.form].parameters}
    parameters = ", ".join(f"{name}: {written(curve.parameters[name], unit)}" for name, unit in units.items())
    stated = {
        "what": curve.what,
        "form": curve.form,
        "regime": curve.regime,
        "ranks": curve.ranks,
        "head_dim": curve.head_dim,
        "parameters": f"{{{parameters}}}",
        "error": percent(curve.error),
        "bias": curve.bias and percent(curve.bias),
        "held_out": curve.held_out and quoted(curve.held_out),
        "region": curve.region and quoted(curve.region),
        "source": quoted(curve.source),
    }
    lines = (f"{key}: {value}" for key, value in stated.items() if value)
    yield f"  - {next(lines)}"
    yield from (f"    {line}" for line in lines)


def percent(share: float) -> str:
    """A share to a tenth of a percent."""
    return f"{share * 100:.1f} %"


def quoted(text: str) -> str:
    """Text as YAML reads it back, whatever it holds."""
    return json.dumps(text, ensure_ascii=False)
