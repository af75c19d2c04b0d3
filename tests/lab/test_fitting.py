"""The fitter: it recovers what made the data, resists bad samples, and judges itself on what it has not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ledger.books import prices
from ledger.evidence.microbenchmarks.samples import TimedSample
from ledger.lab.calibration.curves import fit, relative_errors
from ledger.price_forms import PRICE_FORMS, DataSheet
from ledger.spec.hardware import Curve
from ledger.spec.kernel_classes import form_of, kernel_class
from ledger.spec.load import load_accelerator, load_cluster

SHEET = DataSheet(peak=312e12, bandwidth=2.039e12, multiprocessors=108)


def _series(name: str, truth: dict[str, float], points: list[dict[str, float]]) -> list[TimedSample]:
    """Samples that obey the form exactly; every point is a group of its own."""
    columns = {key: np.array([point[key] for point in points]) for key in points[0]}
    seconds = PRICE_FORMS[name].seconds(truth, columns, SHEET)
    return [TimedSample(float(s), point, str(i)) for i, (s, point) in enumerate(zip(seconds, points, strict=True))]


def _matmuls() -> list[dict[str, float]]:
    sizes = (64.0, 1021.0, 4093.0, 16381.0)
    shapes = [(m, n, k) for m in sizes for n in sizes[1:] for k in sizes[1:]]
    return [
        {"m": m, "n": n, "k": k, "flops": 2 * m * n * k, "bytes": 2 * (m * k + k * n + m * n)} for m, n, k in shapes
    ]


@pytest.mark.parametrize(
    ("name", "truth", "points"),
    [
        ("matmul", {"e": 0.83, "t0": 5e-6, "b": 0.71, "k0": 110.0, "c": 0.04}, _matmuls()),
        ("bandwidth", {"b": 0.62, "t0": 4e-6}, [{"bytes": 10.0**p} for p in np.arange(5, 10, 0.5)]),
        ("collective", {"a": 2e-5, "B": 2.4e11}, [{"bus_bytes": 4.0**p} for p in range(6, 17)]),
        ("send", {"a": 1.5e-5, "B": 2.2e10}, [{"bytes": 4.0**p} for p in range(6, 17)]),
        (
            "attention",
            {"e": 0.61, "s0": 480.0, "t0": 2e-5},
            [{"seq": s, "flops": 2 * b * s * s * 2048} for s in (512.0, 2048.0, 8192.0) for b in (1.0, 7.0, 31.0)],
        ),
    ],
)
def test_recovers_the_parameters_that_made_the_data(
    name: str, truth: dict[str, float], points: list[dict[str, float]]
) -> None:
    """Exact data of every form give its parameters back, and a held-out error of zero."""
    result = fit(name, _series(name, truth, points), SHEET)
    assert dict(result.parameters) == pytest.approx(truth, rel=1e-3)
    assert result.error < 1e-3


def test_one_bad_sample_does_not_bend_the_fit() -> None:
    """A sample ten times too slow moves the bandwidth by less than two percent."""
    good = _series("bandwidth", {"b": 0.6, "t0": 2e-6}, [{"bytes": 10.0**p} for p in np.arange(5, 10, 0.25)])
    bad = TimedSample(good[9].seconds * 10, good[9].sizes, good[9].group)
    result = fit("bandwidth", [*good[:9], bad, *good[10:]], SHEET)
    assert result.parameters["b"] == pytest.approx(0.6, rel=0.02)


def test_the_error_is_that_of_samples_the_fit_has_not_seen() -> None:
    """Two groups, one twice as slow as the other: each is judged by the other's rate, so errors are -1/2 and +1."""
    fast = [TimedSample(1e-3 * k, {"bytes": 1e9 * k}, "fast") for k in (1, 2, 3)]
    slow = [TimedSample(2e-3 * k, {"bytes": 1e9 * k}, "slow") for k in (1, 2, 3)]
    result = fit("send", fast + slow, fixed={"a": 0.0})
    assert result.error == pytest.approx((0.5 + 1.0) / 2, rel=1e-3)
    assert result.bias == pytest.approx((1.0 - 0.5) / 2, rel=1e-3)


def test_fixed_parameters_stay() -> None:
    """At a constant number of tokens t0 and s0 act alike, so one of them is fixed and kept."""
    points = [{"seq": s, "flops": 2 * 16384 * s * 2048} for s in (512.0, 1024.0, 2048.0, 4096.0)]
    result = fit("attention", _series("attention", {"e": 0.5, "s0": 300.0, "t0": 0.0}, points), SHEET, {"t0": 0.0})
    assert result.parameters["t0"] == 0.0
    assert result.parameters["s0"] == pytest.approx(300.0, rel=1e-3)


def test_a_single_group_is_refused() -> None:
    """Nothing can be held out of one group, so no error could be stated."""
    with pytest.raises(ValueError, match="two groups"):
        fit("send", [TimedSample(1.0, {"bytes": 1.0}, "only")])


def test_relative_errors_are_predicted_over_measured() -> None:
    """A prediction of 3 s for a measured 2 s is +50 %."""
    errors = relative_errors("send", {"a": 1.0, "B": 1.0}, [TimedSample(2.0, {"bytes": 2.0}, "one")])
    assert errors.tolist() == [pytest.approx(0.5)]


PARAMETERS = {"e": 0.61, "t0": 3e-6, "b": 0.71, "k0": 113.0, "c": 0.037, "m0": 209.0, "s0": 577.0}


@pytest.mark.parametrize("what", ["matmul.bf16", "grouped.bf16", "attention.flash.forward", "norm.forward"])
def test_a_fit_and_a_price_are_one_formula(what: str) -> None:
    """The fitter's form over arrays gives the seconds that the books price one kernel with, of the same sizes."""
    h100, kind = load_accelerator("h100-sxm"), kernel_class(what)
    row = PRICE_FORMS[form_of(kind)]
    parameters = {one.name: PARAMETERS[one.name] for one in row.parameters}
    price = Curve(kind, form_of(kind), parameters, 0.0, "sustained", "this test")
    flops, dtype = (3e12, "bf16") if row.computes else (1e9, "")
    work = prices.KernelWork(kind, flops, 5e9, dtype, batch=3, m=4093, n=8191, k=1021, group=331)
    sizes = {"flops": flops, "bytes": 5e9, "m": 3 * 4093, "n": 8191, "k": 1021, "seq": 4093, "group": 331, "kernels": 1}
    columns = {name: np.array([float(sizes[name])]) for name in row.sizes}
    sheet = DataSheet(h100.peak["bf16"], h100.bandwidth, h100.multiprocessors)
    (fitted,) = row.seconds(parameters, columns, sheet)
    priced = prices.kernel(replace(h100, calibration=(price,)), work)
    assert fitted > priced.floor
    assert priced.seconds == pytest.approx(fitted, rel=1e-12)


def test_a_fit_and_a_price_of_a_transfer_are_one_formula() -> None:
    """All-gather over eight of one node: a + x + sqrt(a x), x the share that travels over the bus bandwidth."""
    h100, mesh = load_accelerator("h100-sxm"), prices.Mesh(8, 8, 8)
    (curve,) = (one for one in h100.calibration if str(one.what) == "all_gather" and one.ranks == 8)
    payload = 1e8
    price = prices.transfer(h100, load_cluster("h100-400g"), "all_gather", mesh, payload)
    columns = {"bus_bytes": np.array([payload * 7 / 8])}
    assert price.seconds == pytest.approx(PRICE_FORMS["collective"].seconds(curve.parameters, columns, SHEET)[0])


def test_what_samples_do_not_show_stays_typical() -> None:
    """Compute-bound samples alone say nothing of memory or of starts, so both stay where they begin."""
    shapes = [{"m": m, "n": 8192.0, "k": k} for m in (4096.0, 8192.0, 16384.0) for k in (4096.0, 8192.0)]
    points = [{**one, "flops": 2 * one["m"] * one["n"] * one["k"], "bytes": 1.0} for one in shapes]
    truth = {"e": 0.7, "t0": 3e-6, "b": 0.75, "k0": 100.0, "c": 0.03}
    noisy = [
        TimedSample(sample.seconds * (1.03 if index % 2 else 0.97), sample.sizes, sample.group)
        for index, sample in enumerate(_series("matmul", truth, points))
    ]
    found = fit("matmul", noisy, SHEET).parameters
    assert found["b"] == pytest.approx(PRICE_FORMS["matmul"].typical()["b"], rel=1e-3)
    assert found["t0"] == pytest.approx(PRICE_FORMS["matmul"].typical()["t0"], rel=0.2)
    assert found["e"] == pytest.approx(0.7, rel=0.05)
