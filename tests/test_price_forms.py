"""The table of price forms: what it says in words is what it computes, and everything that knows a form reads it."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

import ledger
from ledger.books.prices import FALLBACK, KernelWork, kernel, sustained_share
from ledger.evidence.documents import read_evidence
from ledger.evidence.microbenchmarks import samples
from ledger.lab.calibration.calibrate import fit_all
from ledger.lab.calibration.page import FORMS, form_lines
from ledger.price_forms import PRICE_FORMS, DataSheet, PriceForm, PriceParameter, seconds
from ledger.spec.hardware import Curve
from ledger.spec.kernel_classes import (
    KERNEL_FAMILIES,
    KernelClass,
    KernelFamily,
    form_of,
    kernel_class,
    measured_classes,
    price_classes,
)
from ledger.spec.kinds import definition_schema
from ledger.spec.load import load_accelerator
from ledger.spec.problems import SpecError
from tests.library_plans import TRAINING

ROOT = Path(__file__).resolve().parent.parent
SHEET = DataSheet(peak=1009e12, bandwidth=3.307e12, multiprocessors=131)
# Distinct primes, so that no two of them can stand for each other.
SIZES = {
    "flops": 3.000017e12,
    "bytes": 5000011.0,
    "m": 4099.0,
    "n": 8191.0,
    "k": 1021.0,
    "group": 331.0,
    "kernels": 3.0,
    "seq": 2039.0,
    "beside": 7000003.0,
    "bus_bytes": 104729.0,
}


def _names(formula: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(formula, mode="eval")) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("name", PRICE_FORMS)
def test_a_formula_for_people_is_the_one_that_is_computed(name: str) -> None:
    """Read as arithmetic, the text of a form gives its seconds; it reads every parameter and size, and nothing else."""
    form = PRICE_FORMS[name]
    values = {**form.typical(), **SIZES, **vars(SHEET), "max": max, "sqrt": math.sqrt}
    inner = [other for other in PRICE_FORMS if other in _names(form.formula) - {*vars(SHEET)}]
    values |= {other: seconds(other, form.typical(), SIZES, SHEET) for other in inner}
    stated = eval(form.formula, {"__builtins__": {}}, values)  # noqa: S307 - the project's own text
    assert seconds(name, form.typical(), SIZES, SHEET) == pytest.approx(stated, rel=1e-12)
    read = _names(form.formula) | {one for other in inner for one in _names(PRICE_FORMS[other].formula)}
    assert read - {*vars(SHEET), "max", "sqrt", *inner} == {*form.typical(), *form.sizes}


def test_what_is_typical_lies_in_its_range() -> None:
    """Fits begin there, and messages offer it as an example."""
    for name, form in PRICE_FORMS.items():
        assert form.within(form.typical()) == form.typical(), name
        assert all(value > 0 for value in form.typical().values()), f"{name}: fits take logarithms"


def test_every_class_is_priced_by_a_form_that_a_price_list_may_have() -> None:
    """A class without a form would be refused and offered at once; fallbacks lead from class to class."""
    assert all(PRICE_FORMS[form_of(kernel_class(what))].priced for what in price_classes())
    assert {str(one) for one in (*FALLBACK, *FALLBACK.values())} <= set(price_classes())
    assert set(price_classes()) <= set(measured_classes())
    assert len(set(measured_classes())) == len(measured_classes())


@pytest.mark.parametrize("plan", [path.stem for path in TRAINING])
def test_what_a_plan_runs_may_have_a_price(plan: str) -> None:
    """A kernel whose class no price list may name could never be calibrated."""
    kinds = {kernel.kind for role in ledger.compile(plan).roles for kernel in role.kernels}
    assert {str(kind) for kind in kinds if isinstance(kind, KernelClass)} <= set(price_classes())


def test_the_documentation_is_the_one_that_is_made_today() -> None:
    """docs/measuring.md has the forms as `make calibration` writes them."""
    text = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    assert FORMS.put_into(text, form_lines()) == text


EVIDENCE = """spec: ledger/1
evidence: Sorting
device: h100-sxm
source: "this test, made by a formula"
origin: {method: made by a formula}
series:
  - what: sort
    unit: us
    columns: [bytes, flops, value]
    rows: |"""


SORTING = PriceForm(
    parameters=(
        PriceParameter("b", "1", "share of the bandwidth", 0.5, most=1.0, positive=True),
        PriceParameter("v", "1", "share of the arithmetic outside matrix units", 0.5, most=1.0, positive=True),
    ),
    sizes={"bytes": "bytes that it moves", "flops": "comparisons that it makes"},
    seconds=lambda p, of, sheet: of["bytes"] / (p["b"] * sheet.bandwidth) + of["flops"] / (p["v"] * sheet.peak),
    formula="bytes / (b * bandwidth) + flops / (v * peak)",
)


def test_a_form_is_added_by_its_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One row, and one for its class: fitted, read, held to its ranges, priced, documented, and in the schema."""
    monkeypatch.setitem(PRICE_FORMS, "sorting", SORTING)
    monkeypatch.setitem(KERNEL_FAMILIES, "sort", KernelFamily("sorting"))
    monkeypatch.setattr(samples, "timing_schema", samples.timing_schema.__wrapped__)  # with the new class
    h100, truth = load_accelerator("h100-sxm"), {"b": 0.41, "v": 0.29}
    sheet = DataSheet(h100.vector, h100.bandwidth, h100.multiprocessors)
    points = [{"bytes": 10.0**one, "flops": 10.0**other} for one in (6, 7, 8, 9) for other in (6, 8, 10)]
    micros = [1e6 * seconds("sorting", truth, point, sheet) for point in points]
    rows = [f"      {at['bytes']:.0f} {at['flops']:.0f} {time:.9g}" for at, time in zip(points, micros, strict=True)]
    evidence, spec = tmp_path / "sorted.yaml", tmp_path / "device.yaml"
    evidence.write_text("\n".join((EVIDENCE, *rows, "")), encoding="utf-8")

    (fitted,) = fit_all([read_evidence(evidence)])
    spec.write_text(fitted.spec, encoding="utf-8")
    device = load_accelerator(spec)
    (price,) = device.curves[KernelClass("sort")]
    assert dict(price.parameters) == pytest.approx(truth, rel=1e-3)
    work = KernelWork(KernelClass("sort"), points[-1]["flops"], points[-1]["bytes"])
    burst = seconds("sorting", price.parameters, points[-1], sheet)
    assert kernel(device, work).seconds == pytest.approx(burst / sustained_share(device))

    spec.write_text(fitted.spec.replace("b: 0.41", "b: 1.41"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"sort: `b` cannot be 1\.41"):
        load_accelerator(spec)
    assert any("`v`" in line and "outside matrix units" in line for line in form_lines())
    published = definition_schema(Curve)["properties"]
    assert "sorting" in published["form"]["enum"]
    assert "sort" in published["what"]["enum"]
    assert {"b", "v"} in [set(one["properties"]) for one in published["parameters"]["anyOf"]]
