"""Measurements become prices that say what they rest on; what is wrong in a file is told with its place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ledger
from ledger.books.prices import KernelWork, kernel
from ledger.evidence.documents import read_evidence
from ledger.evidence.microbenchmarks.sets import measurement_sets
from ledger.lab.calibration.calibrate import FittedDevice, fit_all, library_evidence, read_all
from ledger.lab.calibration.curves import SetFit, choose, curves, fit_set, price_key, relative_errors
from ledger.lab.calibration.device import find_device
from ledger.lab.calibration.page import AT_OR_UNDER, FITS, NO_PRICE, section, set_fits, verdict
from ledger.spec.kernel_classes import COPY, kernel_class
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from ledger.spec.problems import SpecError

LIBRARY = default_library().folder("evidence")
HEAD = """spec: ledger/1
evidence: A device of this test
device: {device}
source: "this test, made by a formula"
origin: {{method: made by a formula}}
"""
CPU = "hardware: {kind: cpu, name: A CPU, threads: 2, cores: 2, memory: 8 GiB, cache: 16 MiB}\n"
PERCENT = re.compile(r"[-+]?\d+\.\d ?%")
SOME = ("a100-pcie-80gb", "b200")  # devices that `make test` fits anew
SIZES = (512, 1024, 2048, 4096, 8192)


def _write(path: Path, device: str, body: str, more: str = "") -> Path:
    path.write_text(f"{HEAD.format(device=device)}{more}{body}", encoding="utf-8")
    return path


def _matmul_rows(rate: float) -> str:
    """Matmuls that all run at one rate in FLOP/s, as a table of microseconds."""
    lines = [
        f"      {m} {n} {k} {2e6 * m * n * k / rate:.6g}"
        for m in SIZES
        for n, k in ((512, 1024), (2048, 512), (4096, 8192))
    ]
    return "\n".join(("  - what: matmul.fp32", "    unit: us", "    columns: [m, n, k, value]", "    rows: |", *lines))


def _copies(rate: float) -> str:
    lines = [f"      {size} {1e6 * size / rate:.6g}" for size in (10**7, 10**8, 10**9)]
    return "\n".join(("  - what: copy", "    unit: us", "    columns: [bytes, value]", "    rows: |", *lines))


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "all"])
def library(request: pytest.FixtureRequest) -> tuple[FittedDevice, ...]:
    """Every device of the library with its fits, or a few of them."""
    return fit_all([one for one in library_evidence() if request.param or one.device in SOME])


def test_the_rate_that_made_the_data_comes_back(tmp_path: Path) -> None:
    """Matmuls at half of H100's fp32 peak give e = 0.5 and no error to speak of."""
    h100 = load_accelerator("h100-sxm")
    path = _write(tmp_path / "one.yaml", "h100-sxm", f"series:\n{_matmul_rows(0.5 * h100.peak['fp32'])}\n")
    (fitted,) = fit_all(read_all([path]))
    curve = next(one for one in fitted.accelerator.calibration if str(one.what) == "matmul.fp32")
    work = KernelWork(kernel_class("matmul.fp32"), 2.0 * 4096**3, 3 * 4 * 4096**2, "fp32", m=4096, n=4096, k=4096)
    seconds = kernel(replace(h100, calibration=(curve,)), work).seconds
    assert seconds == pytest.approx(2 * 4096**3 / (0.5 * h100.peak["fp32"]), rel=0.02)
    assert curve.error < 0.02


def test_measurements_that_scatter_too_far_are_no_price(tmp_path: Path) -> None:
    """Of sizes far apart that all took one tick of a busy machine's scheduler no rate can be read, and none is."""
    ticks = [f"      {size} {micros}" for size, micros in ((10**5, 9000), (10**6, 8), (10**7, 8000), (10**8, 90))]
    body = "\n".join(("  - what: copy", "    unit: us", "    columns: [bytes, value]", "    rows: |", *ticks))
    (fitted,) = fit_all(read_all([_write(tmp_path / "busy.yaml", "h100-sxm", f"series:\n{body}\n")]))
    (one,) = fitted.sets
    assert one.fit is not None
    assert not one.is_usable
    assert choose(fitted.sets) == ()
    assert verdict(one) == NO_PRICE


@pytest.mark.parametrize("sizes", [(1, 10**15), (10**14, 10**15), (1, 2)])
def test_sizes_that_nothing_can_be_read_of_end_no_fit(tmp_path: Path, sizes: tuple[int, int]) -> None:
    """One picosecond, or eleven days, for a byte or a petabyte: an error beside the fit, or no price, but a result."""
    for micros in (1e-6, 1e12):
        rows = [f"      {size} {micros:g}" for size in sizes]
        body = "\n".join(("  - what: copy", "    unit: us", "    columns: [bytes, value]", "    rows: |", *rows))
        (fitted,) = fit_all(read_all([_write(tmp_path / "odd.yaml", "h100-sxm", f"series:\n{body}\n")]))
        (one,) = fitted.sets
        assert one.fit is not None
        assert np.isfinite(one.fit.error)
        assert fitted.spec.startswith("spec: ledger/1")


def test_prices_that_nobody_measured_here_are_kept(tmp_path: Path) -> None:
    """A file of one class replaces the prices of that class and no other."""
    own = {price_key(c): c for c in load_accelerator("h100-sxm").calibration}
    path = _write(tmp_path / "one.yaml", "h100-sxm", f"series:\n{_copies(2.0e12)}\n")
    (fitted,) = fit_all(read_all([path]))
    made = {price_key(c): c for c in fitted.accelerator.calibration}
    changed = {key for key in own if made[key] != own[key]}
    assert changed == {(COPY, "sustained", 0, 0)}


def test_a_processor_without_a_data_sheet_is_what_it_was_measured_at_best(tmp_path: Path) -> None:
    """100 GFLOP/s and 20 GB/s measured: the spec says so, is valid, and calls both measured."""
    path = _write(tmp_path / "cpu.yaml", "a-cpu", f"series:\n{_matmul_rows(1e11)}\n{_copies(2e10)}\n", CPU)
    (fitted,) = fit_all(read_all([path]))
    spec = tmp_path / "spec.yaml"
    spec.write_text(fitted.spec, encoding="utf-8")
    plan = Path(__file__).parents[2] / "specs" / "8b.yaml"
    built = ledger.compile(plan, [f"accelerator={spec}", "precision=fp32", "kernels.attention=math"]).plan.accelerator
    assert built.kind == "cpu"
    assert built.peak["fp32"] == pytest.approx(1e11, rel=1e-3)
    assert built.bandwidth == pytest.approx(2e10, rel=1e-3)
    assert fitted.spec.count("measured: the fastest") == 3  # peak, bandwidth, and the link that is the same memory


@pytest.mark.parametrize(
    ("body", "more", "message"),
    [
        (_copies(2e10), CPU, "no matmul"),
        (_matmul_rows(1e11), CPU, "no kernel that moves bytes"),
        (_matmul_rows(1e11), "hardware: {kind: cpu, memory: 8 GiB}\n", "hardware says no cache, threads"),
    ],
)
def test_a_processor_that_is_not_fully_measured_is_refused(tmp_path: Path, body: str, more: str, message: str) -> None:
    """Its spec would have holes, so what is missing is said."""
    path = _write(tmp_path / "cpu.yaml", "a-cpu", f"series:\n{body}\n", more)
    with pytest.raises(SpecError, match=message):
        fit_all(read_all([path]))


def test_a_device_that_nobody_knows_is_refused_with_near_misses(tmp_path: Path) -> None:
    """Without a data sheet there is no peak, so `h100-sxn` is told with its line and what it may mean."""
    path = _write(tmp_path / "one.yaml", "h100-sxn", f"series:\n{_copies(2.0e12)}\n")
    with pytest.raises(SpecError) as caught:
        fit_all(read_all([path]))
    (problem,) = caught.value.problems
    assert (problem.where.file, problem.where.line) == (str(path), 3)
    assert "h100-sxn" in problem.message
    assert "h100-sxm" in problem.help


def test_a_group_larger_than_a_domain_is_priced_as_one_between_domains(tmp_path: Path) -> None:
    """Eight H100 share a domain, sixteen do not: their all-reduce is another class."""
    body = "\n".join(
        f"  - {{what: all_reduce, ranks: {ranks}, bytes: {size}, value: {size / 1e5 + 20}, unit: us}}"
        for ranks in (8, 16)
        for size in (10**5, 10**7, 10**9)
    )
    path = _write(tmp_path / "one.yaml", "h100-sxm", f"records:\n{body}\n")
    (fitted,) = fit_all(read_all([path]))
    made = {(str(one.kind.what), one.kind.ranks) for one in fitted.sets}
    assert made == {("all_reduce", 8), ("all_reduce.scaleout", 16)}


def test_a_named_accelerator_stands_in_for_an_unknown_device(tmp_path: Path) -> None:
    """--accelerator says which data sheet measurements are held against."""
    path = _write(tmp_path / "one.yaml", "a-cloud-h100", f"series:\n{_copies(2.0e12)}\n")
    (fitted,) = fit_all(read_all([path]), "h100-sxm")
    assert fitted.device.accelerator.name == "h100-sxm"


def test_a_processor_is_held_against_no_gpu(tmp_path: Path) -> None:
    """An H100 that computes as a CPU does would be a price list of nothing."""
    path = _write(tmp_path / "one.yaml", "my-cpu", f"{CPU}series:\n{_copies(2.0e10)}\n")
    with pytest.raises(SpecError, match="a CPU was measured, and `h100-sxm` is a GPU"):
        fit_all(read_all([path]), "h100-sxm")


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        (
            "series:\n  - what: copy\n    unit: us\n    columns: [bytes, value]\n    rows: |\n      1000 2\n      5\n",
            12,
            "1 values",
        ),
        (
            "series:\n  - what: copy\n    unit: us\n    columns: [bytes, value]\n    rows: |\n      1000 two\n",
            11,
            "`two` is no number",
        ),
        (
            "series:\n  - what: copy\n    unit: us\n    columns: [bytes, value]\n    rows: |\n      1000 -2\n",
            11,
            "is -2",
        ),
        ("records:\n  - {what: copy, unit: us, bytes: 1000}\n", 7, "no `value`"),
        ("records:\n  - {what: copy, unit: parsec, bytes: 1000, value: 3}\n", 7, "`parsec` is unknown"),
        ("records:\n  - {what: matmull.fp32, unit: us, m: 1, n: 1, k: 1, value: 3}\n", 7, "is named `matmull.fp32`"),
        ("records:\n  - {what: matmul.bf61, unit: us, m: 1, n: 1, k: 1, value: 3}\n", 7, "is named `matmul.bf61`"),
        ("records:\n  - {what: copy, unit: us, bytes: 1000, value: 1.0e+300}\n", 7, "beyond reason"),
        ("records:\n  - {what: copy, unit: us, bytes: 1000, value: 1.0e-30}\n", 7, "beyond reason"),
        ("records:\n  - {what: copy, unit: us, bytes: 1.0e+30, value: 3}\n", 7, "`bytes` is 1e+30, beyond reason"),
        ("records:\n  - {what: copy, unit: us, bytes: 1000, low: 4, value: 3, high: 5}\n", 7, "outside its quartiles"),
        ("records:\n" + 2 * "  - {what: copy, unit: us, bytes: 1000, value: 3}\n", 8, "stands here twice"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(tmp_path: Path, body: str, line: int, message: str) -> None:
    """What is short, no number, negative, missing, of no unit, of no class, beyond reason, or there twice."""
    path = _write(tmp_path / "bad.yaml", "h100-sxm", body)
    with pytest.raises(SpecError) as caught:
        read_all([path])
    told = {problem.where.line: problem.message for problem in caught.value.problems}
    assert message in told[line]


def test_a_published_fit_has_the_parameters_of_its_form(tmp_path: Path) -> None:
    """Units, names and ranges of a fit over a whole publication are those of the table; all problems are told at once.

    A share may pass 1, as that of a cache does over the memory's bandwidth.
    """
    body = """series:
  - what: copy
    unit: us
    whole: {points: 9, error: 4 %, held_out: "none: in sample", parameters: {b: 2.9, t0: 3 /s, e: 0.5}}
    columns: [bytes, value]
    rows: |
      1000 3
  - what: send
    unit: us
    whole: {points: 9, error: 4 %, held_out: "none: in sample", parameters: {a: -3 us}}
    columns: [bytes, value]
    rows: |
      1000 3
"""
    path = _write(tmp_path / "bad.yaml", "h100-sxm", body)
    with pytest.raises(SpecError) as caught:
        read_all([path])
    lines = path.read_text(encoding="utf-8").splitlines()
    pointed = [
        (lines[problem.where.line - 1][problem.where.column - 1 :].rstrip("}"), problem.message)
        for problem in caught.value.problems
    ]
    assert pointed == [
        ("3 /s, e: 0.5", "copy: `t0`: `3 /s` is a frequency, not a time"),
        ("e: 0.5", "copy: form bandwidth has no parameter `e`"),
        ("{a: -3 us", "send: form send lacks `B`"),
        ("-3 us", "send: `a` cannot be -3 us"),
    ]


def test_a_rate_above_the_data_sheet_is_priced_by_the_data_sheet(tmp_path: Path) -> None:
    """Copies at 1.1 times the bandwidth that is stated: the price takes the share 1, and its spec is valid."""
    h100 = load_accelerator("h100-sxm")
    path = _write(tmp_path / "fast.yaml", "h100-sxm", f"series:\n{_copies(1.1 * h100.bandwidth)}\n")
    (fitted,) = fit_all(read_all([path]))
    assert fitted.sets[0].fit is not None
    assert fitted.sets[0].fit.parameters["b"] == pytest.approx(1.1, rel=0.02)
    spec = tmp_path / "spec.yaml"
    spec.write_text(fitted.spec, encoding="utf-8")
    assert next(one.parameters["b"] for one in load_accelerator(spec).calibration if str(one.what) == "copy") == 1.0


def test_another_version_of_the_language_is_refused(tmp_path: Path) -> None:
    """A file of `ledger/2` may mean anything."""
    path = _write(tmp_path / "bad.yaml", "h100-sxm", "records:\n  - {what: copy, unit: us, bytes: 1000, value: 3}\n")
    path.write_text(path.read_text(encoding="utf-8").replace("ledger/1", "ledger/2"), encoding="utf-8")
    with pytest.raises(SpecError, match="ledger/"):
        read_all([path])


def test_a_copy_of_a_file_is_refused(tmp_path: Path) -> None:
    """Measurements that stand in two files would count twice; other measurements of the device do not."""
    one = _write(tmp_path / "one.yaml", "h100-sxm", f"series:\n{_copies(2.0e12)}\n")
    copy = _write(tmp_path / "copy.yaml", "h100-sxm", f"series:\n{_copies(2.0e12)}\n")
    again = _write(tmp_path / "again.yaml", "h100-sxm", f"series:\n{_copies(2.1e12)}\n")
    with pytest.raises(SpecError, match="3 of its 3 measurements are those of"):
        read_all([one, copy])
    assert len(read_all([one, again])) == 2


def test_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    """Two bad files are two problems, not two runs."""
    bad = "records:\n  - {what: copy, unit: us, bytes: 1000}\n"
    paths = [_write(tmp_path / name, "h100-sxm", bad) for name in ("one.yaml", "two.yaml")]
    with pytest.raises(SpecError) as caught:
        read_all(paths)
    assert {problem.where.file for problem in caught.value.problems} == {str(path) for path in paths}


def _h100(name: str) -> tuple[SetFit, ...]:
    evidence = read_evidence(LIBRARY / f"{name}.yaml")
    return tuple(fit_set(one, find_device(evidence).accelerator) for one in measurement_sets(evidence))


def test_a_kernel_timed_alone_is_the_price_before_one_timed_in_a_module() -> None:
    """FlashAttention-3 of H100 was timed alone (Shah et al. 2024) and inside a module: the price cites the former."""
    both = (*_h100("h100-sxm-attention-module"), *_h100("h100-sxm-flash-attention-3"))
    made = [one for one in curves(choose(both)) if str(one.what) == "attention.flash3.forward"]
    assert {one.head_dim for one in made} == {64, 128}
    assert all("h100-sxm-flash-attention-3" in one.source for one in made)


def test_casts_inside_a_timing_are_no_part_of_the_price() -> None:
    """Told apart, fp8 matmuls fit within 5 %; with the casts' bytes unseen the same points err by twice as much."""
    (told,) = (one for one in _h100("h100-sxm-matmul") if str(one.kind.what) == "matmul.fp8")
    hidden = [{key: value for key, value in record.items() if key != "casts"} for record in told.measured.records]
    kind = replace(told.measured.kind, with_others=False)
    untold = fit_set(replace(told.measured, kind=kind, records=tuple(hidden)), load_accelerator("h100-sxm"))
    assert told.fit is not None
    assert untold.fit is not None
    assert told.fit.error < 0.05
    assert untold.fit.error > 2 * told.fit.error


def test_the_wider_fit_is_the_price_where_it_errs_no_more_here(library: tuple[FittedDevice, ...]) -> None:
    """By its rule, and only by it: error on the carried points at most the held-out error of a fit on them."""
    of_publications = ((one, one.measured.published) for fitted in library for one in fitted.sets)
    with_whole = [one for one, published in of_publications if published and published.parameters and one.fit]
    assert with_whole
    for one in with_whole:
        assert one.fit is not None
        assert one.prefers_published == (one.published_error <= one.fit.error)
        price, *_ = curves((one,))
        assert one.measured.published is not None
        name = next(name for name in ("a", "e", "t0") if name in price.parameters)
        assert (price.parameters[name] == one.measured.published.parameters[name]) == one.prefers_published


def test_every_gpu_meets_the_published_error_or_says_why(library: tuple[FittedDevice, ...]) -> None:
    """Error at or under that of a fit over the whole publication, that fit itself, or over it with the reason."""
    for one in set_fits(library):
        if one.measured.published is not None:
            said = verdict(one)
            assert said == AT_OR_UNDER or one.prefers_published or " on these points" in said, one.kind


def test_large_matmuls_are_within_eight_percent(library: tuple[FittedDevice, ...]) -> None:
    """bf16 matmuls of at least 512 on data-centre GPUs: 5 to 8 % is what shapes that were held out allow."""
    found = {
        (one.measured.device, one.kind.regime): one.published_error if one.prefers_published else one.fit.error
        for one in set_fits(library)
        if str(one.kind.what) == "matmul.bf16" and one.fit is not None
    }
    names = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "b300", "gb200")
    fitted = {device.device.accelerator.name for device in library}
    for name in names if len(library) > len(SOME) else fitted.intersection(names):
        assert found[name, "burst"] is not None
        assert (found[name, "burst"] or 1.0) < 0.08, name


def test_predictions_are_those_of_the_price(library: tuple[FittedDevice, ...]) -> None:
    """What the page draws has the stated error in sample."""
    fits = (one for fitted in library for one in fitted.sets if one.fit and len(one.samples) > 20)
    one = next(one for one in fits if not one.prefers_published)
    assert one.fit is not None
    measured = np.array([sample.seconds for sample in one.samples])
    assert float(np.abs(np.array(one.predicted) / measured - 1).mean()) == pytest.approx(one.fit.seen)


def test_the_table_of_the_document_is_the_one_that_is_made_today(library: tuple[FittedDevice, ...]) -> None:
    """docs/accuracy.md is written by `make calibration`, not by hand; a machine may round a percentage otherwise."""
    document = Path(__file__).parents[2] / "docs" / "accuracy.md"
    text = document.read_text(encoding="utf-8")
    if len(library) > len(SOME):
        assert PERCENT.sub("%", FITS.put_into(text, section(set_fits(library)))) == PERCENT.sub("%", text)
    else:
        _, *tables = section(set_fits(library))  # behind the sentence that counts all sets
        assert all(PERCENT.sub("%", line) in PERCENT.sub("%", text) for line in tables)


def test_the_library_s_prices_are_what_its_evidence_fits(library: tuple[FittedDevice, ...]) -> None:
    """A price that cites a file predicts the measurements of that file as `ledger calibrate` does, within 4 %.

    Some starts of kernels come from another publication, as their source says, hence the allowance.
    """
    compared = 0
    for fitted in library:
        own = {price_key(c): c for c in fitted.device.accelerator.calibration}
        for one in choose(fitted.sets):
            for curve in curves((one,)):
                price = own.get(price_key(curve))
                if price is None or one.measured.file not in price.source or one.kind.with_others:
                    continue
                given = (one.samples, one.sheet)
                here = 1 + relative_errors(price.form, price.parameters, *given)
                made = 1 + relative_errors(curve.form, curve.parameters, *given)
                assert float(np.abs(here / made - 1).mean()) < 0.04, (fitted.device.accelerator.name, curve.what)
                compared += 1
    assert compared > sum(len(fitted.sets) for fitted in library) / 2


def test_what_sustains_is_what_bursts_times_the_stated_ratio() -> None:
    """Where bursts alone were measured, e is scaled by the ratio that the source of the price states."""
    scaled = 0
    for name in ("h100-sxm", "h200-sxm", "b200", "gb200"):
        prices = load_accelerator(name).calibration
        for price in prices:
            if found := re.search(r"; e times (0\.\d{3}), the ratio of sustained to burst", price.source):
                (burst,) = (one for one in prices if one.what == price.what and one.regime == "burst")
                assert price.parameters["e"] == pytest.approx(burst.parameters["e"] * float(found[1]), rel=1e-3)
                scaled += 1
    assert scaled >= 8
