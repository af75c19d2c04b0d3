"""The library's price lists: each rests on evidence that is carried here, and says its error on it honestly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator

from ledger.evidence.documents import read_evidence
from ledger.evidence.microbenchmarks.samples import samples, timing_schema
from ledger.evidence.microbenchmarks.sets import MeasurementSet, measurement_sets
from ledger.lab.calibration.curves import relative_errors
from ledger.price_forms import DataSheet
from ledger.spec.kernel_classes import form_of, passes_of
from ledger.spec.load import load_accelerator
from ledger.spec.plan import Accelerator, Curve

SPECS = Path(__file__).parents[2] / "specs"
# What `ledger bench` left there of this machine is nobody's publication.
EVIDENCE = sorted(path for path in (SPECS / "evidence").glob("*.yaml") if "\nhardware:" not in path.read_text("utf-8"))
ACCELERATORS = sorted(path.stem for path in (SPECS / "accelerators").glob("*.yaml"))
ROUNDING = 0.005  # the stated error has a tenth of a percent, the parameters four digits
MEASURED = [series for path in EVIDENCE for series in measurement_sets(read_evidence(path))]
ALONE = [series for series in MEASURED if series.kind.causal and not series.kind.with_others]


def _price(accelerator: Accelerator, series: MeasurementSet) -> Curve | None:
    """The curve fitted to such records; both passes of a kernel that were timed together share one."""
    kind = series.kind
    key = (passes_of(kind.what)[0], kind.ranks, kind.head_dim)
    curves = [curve for curve in accelerator.calibration if (curve.what, curve.ranks, curve.head_dim) == key]
    return next((curve for curve in curves if curve.regime == kind.regime), curves[0] if curves else None)


ANSWERED = [s for s in ALONE if _price(load_accelerator(s.device), s)]


def test_a_timing_is_what_its_schema_says() -> None:
    """`ledger schema timing`, held by `jsonschema` alone, takes a record of every set, and none of another unit."""
    schema = Draft202012Validator(timing_schema().content)
    for series in MEASURED:
        record = dict(series.records[0])
        schema.validate(record)
        assert not schema.is_valid({**record, "unit": "parsec"})


def _document(path: Path) -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def _named(series: MeasurementSet) -> str:
    kind = series.kind
    return f"{series.file}-{kind.what}-{kind.regime}-{kind.ranks}-{kind.head_dim}"


@pytest.mark.parametrize("series", ANSWERED, ids=_named)
def test_a_price_meets_its_stated_error_on_the_evidence_carried_for_it(series: MeasurementSet) -> None:
    """Held-out errors are the larger ones, so on all records the mean error is at most what the spec states."""
    accelerator = load_accelerator(series.device)
    curve = _price(accelerator, series)
    assert curve is not None
    errors = relative_errors(
        form_of(series.kind.what),
        curve.parameters,
        samples(series.records),
        series.kind.data_sheet(accelerator),
    )
    assert float(np.abs(errors).mean()) <= curve.error + ROUNDING


@pytest.mark.parametrize("series", [s for s in MEASURED if s.kind.with_others], ids=_named)
def test_a_kernel_takes_no_longer_than_the_module_it_was_timed_in(series: MeasurementSet) -> None:
    """A module holds the kernel and others beside it, so the kernel's own price lies below its time."""
    accelerator = load_accelerator(series.device)
    curve = _price(accelerator, series)
    assert curve is not None
    errors = relative_errors(
        form_of(series.kind.what),
        curve.parameters,
        samples(series.records),
        series.kind.data_sheet(accelerator),
    )
    assert float(np.mean(errors)) < 0


def test_no_file_of_evidence_is_idle() -> None:
    """Evidence that no price rests on, or is held to, would be dead weight."""
    answered = {series.file for series in MEASURED if _price(load_accelerator(series.device), series)}
    assert {series.file for series in MEASURED} - answered == set()


@pytest.mark.parametrize("path", EVIDENCE, ids=lambda path: path.stem)
def test_evidence_names_its_origin(path: Path) -> None:
    """Each file names its publication, its device and how it was measured, and stays small."""
    document = _document(path)
    assert document["spec"] == "ledger/1"
    assert len(str(document["source"])) > 10
    assert document["device"] in ACCELERATORS
    assert {"method"} <= set(document["origin"]) or "software" in document["origin"]
    assert path.stat().st_size < 300_000


@pytest.mark.parametrize("name", ACCELERATORS)
def test_sparse_peaks_are_twice_the_dense_ones(name: str) -> None:
    """The 2:4 figure is double the dense one (L40S rounds its own up; fp4 of GB300 is another)."""
    document = _document(SPECS / "accelerators" / f"{name}.yaml")
    dense, sparse = document["peak"], document.get("sparse_peak", {})
    assert sparse or document["architecture"] == "volta" or document.get("kind")  # sparsity came with Ampere, to GPUs
    for dtype in set(sparse) - ({"fp4"} if name == "gb300" else set()):
        ratio = float(sparse[dtype].split()[0]) / float(dense[dtype].split()[0])
        assert ratio == pytest.approx(2, rel=0.02), dtype


def test_the_h100_is_the_one_of_its_data_sheet() -> None:
    """989.5 TFLOP/s dense, 3.35 TB/s, 81559 MiB: 295 FLOP to a byte."""
    h100 = load_accelerator("h100-sxm")
    assert (h100.peak["bf16"], h100.bandwidth, h100.memory) == (989.5e12, 3.35e12, 81559 * 2**20)
    assert h100.peak["bf16"] / h100.bandwidth == pytest.approx(295.37, abs=0.01)


def test_the_a100_price_predicts_a_sustained_cublas_matmul() -> None:
    """258 TFLOP/s at 8192 cubed on normal random numbers (He 2024, thonking.ai), which the fit has never seen."""
    a100 = load_accelerator("a100-sxm-80gb")
    (curve,) = (c for c in a100.calibration if str(c.what) == "matmul.fp16")
    sheet = DataSheet(a100.peak["fp16"], a100.bandwidth, a100.multiprocessors)
    record = {"what": "matmul.fp16", "m": 8192, "n": 8192, "k": 8192, "value": 258, "unit": "TFLOP/s"}
    assert abs(relative_errors("matmul", curve.parameters, samples([record]), sheet)[0]) < 0.02
