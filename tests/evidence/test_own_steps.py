"""A device of one's own: its measurements stand beside a plan that is priced by them, kernels and whole steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import ledger
from ledger.books import compile_plan
from ledger.books.compiled import Compiled
from ledger.evidence.citations import missing_files
from ledger.evidence.documents import read_evidence
from ledger.evidence.nearest import basis, nearest_microbenchmarks, nearest_runs
from ledger.evidence.verification import head_text
from ledger.lab.bench.step_plans import step_records_plan
from ledger.lab.calibration.calibrate import fit_all
from ledger.report.seals.opening import sealed
from ledger.report.views.nearby import basis_sentence, no_microbenchmarks_sentence

NARROW = {
    "model.d_model": 256,
    "model.vocab": 16384,
    "model.layers.0.repeat": 2,
    "model.layers.0.attention.heads": 4,
    "model.layers.0.attention.kv_heads": 4,
    "model.embedding.dropout": 0,
    "model.residual_dropout": 0,
    "model.layers.0.attention.dropout": 0,
    "run.seq_len": 128,
    "run.micro_batch": 2,
    "run.global_batch": 2,
}
SECONDS = 0.2


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """A small GPT priced by measurements that lie beside its accelerator."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.yaml").write_text(measurements(), encoding="utf-8")
    (fitted,) = fit_all([read_evidence(folder / "own.yaml")])
    spec = fitted.spec.replace(str(folder / "own.yaml"), "own.yaml")
    (folder / "my-device.yaml").write_text(spec, encoding="utf-8")
    (folder / "plan.yaml").write_text(yaml.safe_dump(step_records_plan("cpu", "my-device.yaml")), encoding="utf-8")
    return ledger.compile(folder / "plan.yaml", [f"{key}={value}" for key, value in NARROW.items()])


def measurements() -> str:
    """A processor of 100 GFLOP/s and 20 GB/s, exactly, and one step of the plan."""
    said = {"kind": "cpu", "name": "a CPU", "cores": 2, "threads": 1, "memory": "8 GiB", "cache": "8 MiB"}
    top = {
        "spec": "ledger/1",
        "evidence": "a CPU, measured",
        "device": "a-cpu",
        "source": "a test",
        "origin": {"a": "b"},
    }
    text = head_text({**top, "hardware": said, "plan": step_records_plan("cpu", "a-cpu")})
    rows = [
        f"what: matmul.fp32, m: {m}, n: {n}, k: {n}, dtype: fp32, value: {2 * m * n * n / 1e11 * 1e6:.6g}, unit: us"
        for m in (128, 256, 512)
        for n in (256, 768, 1024)
    ]
    rows += [
        f"what: {what}, bytes: {size}, value: {size / 2e10 * 1e6:.6g}, unit: us"
        for what in ("elementwise", "norm.forward", "norm.backward")
        for size in (1 << 18, 1 << 20, 1 << 22)
    ]
    step = f"what: step, id: narrow, set: {yaml.safe_dump(NARROW, default_flow_style=True, width=9999).strip()}"
    rows.append(f"{step}, measured: {{time.step: {SECONDS} s}}")
    return text + "".join(f"  - {{{row}, regime: sustained}}\n" for row in rows)


def test_prices_lead_to_the_measurements_they_were_fitted_on(own: Compiled) -> None:
    """The file is named by the price and found beside the accelerator's spec; it is about this very device."""
    found = nearest_microbenchmarks(own)
    assert "matmul.fp32" in {one.what for one in found}
    assert all("own.yaml" in one.origin and one.device == "" and one.unseen is not None for one in found)
    assert basis(own).measured_share > 0.5


def test_a_step_of_the_device_is_a_run_near_the_plan(own: Compiled) -> None:
    """Measured in the same file, compiled under the same prices: this very plan, so the predictions are equal."""
    (found,) = nearest_runs(own)
    assert found.measured == SECONDS
    assert found.predicted == pytest.approx(float(own.totals["time.step"]), rel=1e-9)
    assert found.differs == ""


def test_a_sealed_report_carries_the_measurements_and_the_step(own: Compiled) -> None:
    """Made from its seal, it shows what it shows here: the files that prices cite go with it."""
    with sealed(own.plan) as (plan, seal):
        compiled = compile_plan(plan)
        kernels, runs = nearest_microbenchmarks(compiled), nearest_runs(compiled)
        assert missing_files(plan) == ()
    assert seal is not None
    assert {"plan.yaml", "my-device.yaml", "own.yaml"} <= {one.name for one in seal.files}
    here = nearest_microbenchmarks(own)
    assert [(one.what, one.name, one.predicted) for one in kernels] == [
        (one.what, one.name, one.predicted) for one in here
    ]
    assert {one.origin for one in kernels} == {"a test (own.yaml)"}
    assert [(one.measured, one.predicted) for one in runs] == [
        (one.measured, one.predicted) for one in nearest_runs(own)
    ]


def test_measurements_that_are_gone_are_missed(tmp_path: Path, own: Compiled) -> None:
    """A price list that was moved away from what it was fitted on: nothing can be shown, which is said."""
    origins = own.plan.origins
    beside = Path(origins["accelerator.calibration"].where.file)
    for name in ("my-device.yaml", "plan.yaml"):
        (tmp_path / name).write_text((beside.parent / name).read_text(encoding="utf-8"), encoding="utf-8")
    moved = ledger.compile(tmp_path / "plan.yaml", [f"{key}={value}" for key, value in NARROW.items()])
    assert missing_files(moved.plan) == ("own.yaml",)
    assert nearest_microbenchmarks(moved) == () == nearest_runs(moved)
    assert "cite own.yaml, which is no longer there" in no_microbenchmarks_sentence(moved)
    assert "single published figures" in basis_sentence(moved)


def test_a_data_sheet_alone_is_uncalibrated() -> None:
    """Nothing was measured on an L4: the verdict, the share and the sentence say the same."""
    compiled = ledger.compile(Path(__file__).parents[2] / "specs" / "8b.yaml", ["accelerator=l4"])
    assert compiled.verdict.evidence == "uncalibrated"
    assert compiled.verdict.by_data_sheet == basis(compiled).sheets == 1
    assert basis_sentence(compiled).startswith("Uncalibrated: ")


def test_shares_of_a_basis_sum_to_one(own: Compiled) -> None:
    """Whatever the prices are from, every second of a kernel is counted once; data sheets are the verdict's share."""
    for name in ("70b", "deepseek-v3"):
        compiled = ledger.compile(Path(__file__).parents[2] / "specs" / f"{name}.yaml")
        found = basis(compiled)
        assert sum(found.devices.values()) + found.figures + found.sheets == pytest.approx(1)
        assert found.sheets == pytest.approx(compiled.verdict.by_data_sheet)
    assert sum(basis(own).devices.values()) + basis(own).figures + basis(own).sheets == pytest.approx(1)
