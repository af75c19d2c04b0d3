from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.books import compile_plan
from ledger.books.compiled import Compiled
from ledger.books.what_if.sensitivity import sensitivities
from ledger.model.causes import Cause
from ledger.report.charts.roofline import tick_names
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.report.views.choices import alternatives
from ledger.report.views.evidence import assumptions, calibration_table, evidence
from ledger.report.views.formulas import formulas, glossary
from ledger.report.views.memory import memory
from ledger.report.views.parts import Report, Table
from ledger.report.views.plan import plan
from ledger.report.views.served.service import serving
from ledger.report.views.time import time
from ledger.report.views.verdict import verdict
from ledger.report.views.work import communication, merge_points, roofline
from ledger.spec.hardware import Curve
from ledger.spec.kernel_classes import kernel_class
from ledger.spec.load import load_plan
from ledger.spec.problems import Location, Problem

LIBRARY = Path(__file__).parents[2] / "specs"


def column(table: Table, name: str) -> list[str]:
    """The cells of a column, by its heading, as programs read them."""
    at = [entry.title for entry in table.columns].index(name)
    return [row[at].sort or row[at].text for row in table.rows]


def tables_of(compiled: Compiled) -> tuple[Table, ...]:
    """The tables of formulas."""
    found = formulas(Report(compiled))
    assert found is not None
    return found.tables


def test_the_categories_of_memory_sum_to_what_the_driver_shows(compiled: Compiled) -> None:
    """Nothing that is alive at the peak is left out, and nothing is counted twice."""
    found = memory(Report(compiled))
    assert found is not None
    assert sum(int(value) for value in column(found.table, "at the peak")) == compiled.totals["memory.reserved"]


def test_a_plan_that_does_not_fit_says_what_is_missing_and_what_would_help(variants: dict[str, Compiled]) -> None:
    """The reader gets the amount, and changes with the largest first."""
    found = memory(Report(variants["too large"]))
    assert found is not None
    assert not found.fits
    assert found.levers is not None
    freed = [float(value) for value in column(found.levers, "frees at most")]
    assert freed == sorted(freed, reverse=True)
    assert found.levers.rows[0][0].text == "recompute = full"


def test_what_is_sharded_already_is_not_offered(compiled: Compiled) -> None:
    """ZeRO-3 leaves nothing of that kind to gain."""
    found = memory(Report(compiled))
    assert found is not None
    assert found.levers is not None
    assert not [row for row in found.levers.rows if "zero" in row[0].text]


def test_no_change_is_offered_that_the_rules_refuse() -> None:
    """An image has no context to split, blocks of convolutions no shards, and a micro-batch of three no half."""
    offered = {}
    for name, settings in {"resnet-50": (), "8b": (), "gpt2": ("run.micro_batch=3", "run.global_batch=480")}.items():
        compiled = compile_plan(load_plan(LIBRARY / f"{name}.yaml", settings))
        found = memory(Report(compiled))
        assert found is not None
        assert found.levers is not None
        offered[name] = {row[0].text for row in found.levers.rows}
    assert offered["resnet-50"] == {"recompute = full", "run.micro_batch halved"}
    assert offered["8b"] == {"recompute = full", "parallelism.context doubled"}
    assert "recompute = full" in offered["gpt2"]
    assert "run.micro_batch halved" not in offered["gpt2"]


def test_a_model_without_attention_has_no_variants_of_it() -> None:
    """One utilisation of the model, and none by a mask; a run of images grows with its images."""
    convolutions, text = (compile_plan(load_plan(LIBRARY / f"{name}.yaml")) for name in ("resnet-50", "8b"))
    written = {name: time(Report(plan)).conventions for name, plan in (("images", convolutions), ("text", text))}
    assert written["images"] is not None
    assert written["text"] is not None
    assert [row[0].text for row in written["images"].rows] == ["MFU", "hardware utilisation (HFU)"]
    assert "MFU, causal attention" in {row[0].text for row in written["text"].rows}
    notes = [
        line.note
        for plan in (convolutions, text)
        for line in verdict(Report(plan)).numbers
        if "recomputed" in line.note
    ]
    assert ["causal" in note for note in notes] == [False, True]
    paths = [{row.path for row in sensitivities(plan)} & {"run.tokens", "run.images"} for plan in (convolutions, text)]
    assert paths == [{"run.images"}, {"run.tokens"}]


def test_the_fullest_kind_of_device_is_the_one_shown(variants: dict[str, Compiled]) -> None:
    """Memory belongs to the worst role, not to the first."""
    found = memory(Report(variants["too large"]))
    assert found is not None
    assert found.role == "first stage"


def test_kernels_share_the_whole_time(compiled: Compiled) -> None:
    """The shares of all kernels sum to one."""
    found = roofline(Report(compiled))
    assert found is not None
    assert sum(float(value) for value in column(found.table, "share")) == pytest.approx(1.0)


def test_kernels_that_coincide_are_one_circle_with_their_time_together(compiled: Compiled) -> None:
    """Merging points loses no time."""
    kernels = [kernel for kernel in compiled.roles[0].kernels if kernel.flops and kernel.bytes]
    whole = sum(kernel.seconds * kernel.times for kernel in kernels)
    points = merge_points(kernels, whole)
    assert len(points) < len(kernels)
    assert sum(point.share for point in points) == pytest.approx(1.0)


def test_every_kind_of_transfer_is_listed(compiled: Compiled) -> None:
    """Each comm total is a row, with its bytes."""
    found = communication(Report(compiled))
    assert found is not None
    sent = {key: value for key, value in compiled.totals.items() if key.startswith("comm.") and key.endswith(".bytes")}
    assert sorted(float(value) for value in column(found.table, "bytes a step")) == sorted(map(float, sent.values()))


def test_every_value_of_the_plan_has_its_place_and_its_source(compiled: Compiled) -> None:
    """The table names file, line and column, and numbers each publication."""
    found = plan(Report(compiled))
    assert found.table is not None
    cells = {row[0].text: [cell.text for cell in row[1:]] for row in found.table.rows}
    bandwidth = compiled.plan.origins["accelerator.bandwidth"]
    number = found.sources.index(bandwidth.source) + 1
    assert cells["accelerator.bandwidth"] == ["3.35\u202fTB/s", str(bandwidth.where), f"source {number}"]
    assert cells["run.global_batch"][2] == "choice"


def test_uncalibrated_kernels_are_named(compiled: Compiled) -> None:
    """What only a data sheet prices is said by name, with its share of the time."""
    found = evidence(Report(compiled))
    assert found.uncalibrated == ("all_gather.data", "reduce_scatter.data")


def test_shares_of_what_is_held_are_not_claimed(compiled: Compiled) -> None:
    """Stocks peak, they do not add: their table has no shares, those of flows sum to one."""
    tables = {table.caption: table for table in tables_of(compiled)}
    assert "share" not in {column.title for column in tables["Memory held"].columns}
    assert sum(float(value) for value in column(tables["Matrix products"], "share")) == pytest.approx(1.0)


def test_devices_of_several_kinds_share_their_formulas(compiled: Compiled) -> None:
    """A formula that every stage posts is shown once, with the largest value."""
    more = [replace(account, role="last", times=2 * account.times) for account in compiled.accounts]
    doubled = tables_of(replace(compiled, accounts=(*compiled.accounts, *more)))
    single = tables_of(compiled)
    assert [len(table.rows) for table in doubled] == [len(table.rows) for table in single]
    assert int(column(doubled[0], "times")[0]) == 2 * int(column(single[0], "times")[0])


def test_a_stock_at_several_moments_is_one_row(compiled: Compiled) -> None:
    """What a device holds again and again has one formula, and says at how many moments it is held."""
    stock = next(account for account in compiled.accounts if account.resource.name.startswith("memory"))
    more = tuple(replace(stock, when=f"moment {number}") for number in (1, 2))
    tables = {table.caption: table for table in tables_of(replace(compiled, accounts=(stock, *more)))}
    (row,) = tables["Memory held"].rows
    assert [cell.note for cell in row if "other" in cell.note] == ["and at 2 other moments"]


def test_accounts_with_one_formula_share_a_row(compiled: Compiled) -> None:
    """Nine accounts alike are one row with all of their amount; the page names each, paper the first few."""
    first = next(account for account in compiled.accounts if account.resource.name == "matmul.bf16")
    causes = [Cause("decoder", f"mlp/{leaf}") for leaf in "abcdefghi"]
    alike = tuple(replace(first, cause=cause, times=2) for cause in causes)
    (table,) = tables_of(replace(compiled, accounts=alike))
    (row,) = table.rows
    assert row[0].text == "decoder/mlp/{a, b, c}, …"
    assert row[0].lines == tuple(f"{cause.account} ({first.when})" for cause in causes)
    assert (column(table, "times"), column(table, "share")) == (["18"], ["1.0"])


def test_the_lead_says_what_share_paper_shows(compiled: Compiled) -> None:
    """Of twenty rows of equal amounts seven are printed: 7/20."""
    first = next(account for account in compiled.accounts if account.resource.name == "matmul.bf16")
    apart = tuple(replace(first, basis=f"rule {number}") for number in range(20))
    more = tuple(replace(account, cause=Cause("a", str(number))) for number, account in enumerate(apart))
    found = formulas(Report(replace(compiled, accounts=more)))
    assert found is not None
    assert found.covered.split() == ["matrix", "products", "35.0", "%"]


def test_symbols_that_no_formula_uses_are_left_out(compiled: Compiled) -> None:
    """A plan whose only formula has F has F in its table of symbols, and nothing else."""
    only = replace(compiled.accounts[0], formula="2*F")
    found = glossary(Report(replace(compiled, accounts=(only,))))
    assert found is not None
    assert [row[3].text for row in found.rows] == [compiled.symbols["F"].path]


def test_this_plan_stands_beside_the_front(compiled: Compiled) -> None:
    """Fastest first; the table says how much of the front it has, and its lead how many layouts were looked at."""
    step = float(compiled.totals["time.step"])
    totals = {"memory.reserved": 4e10, "memory.capacity": 8e10, "time.step": 0.5 * step}
    other = Recommendation({"parallelism.tensor": 1}, totals)
    points = ((4e10, 0.5 * step), (3e10, 2 * step))
    found = alternatives(Report(compiled, recommendations=Recommendations(front=(other,), points=points, legal=7)))
    assert found is not None
    assert [row[0].text for row in found.table.rows] == ["tensor 1", "this plan"]
    assert found.table.caption == "1 of 2 layouts of the front, fastest first"
    assert found.lead.startswith("7 legal layouts tried")


def test_a_bare_plan_says_only_what_follows_from_it(variants: dict[str, Compiled]) -> None:
    """A parameter count gives the napkin's numbers and no others."""
    report = Report(variants["bare"])
    assert memory(report) is None
    assert roofline(report) is None
    assert formulas(report) is None
    assert verdict(report).numbers[0].total.key == "parameters"
    assert [row[1].total.key for row in time(report).run.rows if row[1].total] == ["napkin.days"]


def test_rules_of_overlap_are_those_of_what_moves(compiled: Compiled) -> None:
    """A plan without a pipeline, experts or a split sequence has no rules for their transfers."""
    found = communication(Report(compiled))
    assert found is not None
    assert {row[0].text for row in found.overlap.rows} == {"tensor", "data", "gather"}
    stated = {row[0].text for row in assumptions(Report(compiled)).rows if row[0].text.startswith("overlap")}
    assert stated == {"overlap, tensor", "overlap, data", "overlap, gathers"}


def test_fits_of_one_source_are_one_row() -> None:
    """Groups of 2 and 4 ranks from one publication share a row, with the span of their errors and both numbers."""
    fits = tuple(
        Curve(
            kernel_class("all_gather"),
            "collective",
            {"a": 1e-5, "B": 3e11},
            error,
            "sustained",
            "Somebody 2025",
            ranks=ranks,
        )
        for ranks, error in ((2, 0.062), (4, 0.041))
    )
    table = calibration_table(fits)
    assert table is not None
    ((_, error, bias, *_, where, source),) = table.rows
    assert (error.text, bias.text) == ("4.1\u202f% to 6.2\u202f%", "–")
    assert (where.text, source.text) == ("2 or 4 ranks", "Somebody 2025")


def test_names_at_a_logarithmic_axis_are_of_one_kind() -> None:
    """Powers of ten where every mark is one, else all written out."""
    assert [name for _, name in tick_names([100.0, 1000.0])] == ["100", "1\u202f000"]
    assert [name for _, name in tick_names([500.0, 1000.0])] == ["500", "1\u202f000"]


def test_serving_shows_what_the_totals_have(compiled: Compiled, variants: dict[str, Compiled]) -> None:
    """Each of the three by its own total; nothing of a parameter count."""
    keys = {"kv_cache": 12, "prefill.time": 0.25, "decode.time_per_token": 0.125}
    found = serving(Report(replace(compiled, totals={**compiled.totals, **keys})))
    assert found is not None
    assert {row[1].total.key: row[1].total.value for row in found.rows if row[1].total} == {
        key: str(value) for key, value in keys.items()
    }
    assert serving(Report(variants["bare"])) is None


def test_the_verdict_says_at_which_price_and_what_to_mind(compiled: Compiled) -> None:
    """Device and date of a price stand beside the cost, its source with the assumptions; warnings are in the box."""
    device = compiled.plan.accelerator.name
    shown = verdict(Report(compiled))
    (cost,) = (number for number in shown.numbers if number.total.key == "cost.run")
    price = compiled.plan.assumptions.price
    assert price
    assert cost.note == f"at ${price.per_device_hour:.2f} per {device} and hour, {price.date}"
    rows = {row[0].text: row[1].text for row in assumptions(Report(compiled)).rows}
    assert rows["price"] == f"${price.per_device_hour:.2f} per {device} and hour, {price.date}"
    assert rows["source of the price"] == compiled.plan.origins["assumptions.price.per_device_hour"].source
    warned = replace(compiled.plan, warnings=(Problem(Location("a.yaml"), "nodes of another device", "name others"),))
    assert not shown.warnings
    assert verdict(Report(replace(compiled, plan=warned))).warnings == ("nodes of another device",)


def test_the_paper_has_what_publications_give_and_no_choices() -> None:
    """Each source is a row with every value that cites it; what the author chose is in the attached plan."""
    sourced = plan(Report(compile_plan(load_plan(LIBRARY / "70b.yaml"))))
    assert sourced.table is not None
    assert sourced.by_source is not None
    assert [row[0].text for row in sourced.by_source.paper] == list(sourced.sources)
    given = " ".join(row[1].text for row in sourced.by_source.paper)
    assert "`cluster`: scaleout.efficiency 91\u202f%" in given
    assert "global_batch" not in given
    said = [row[1].text for row in sourced.table.rows if row[3].text != "choice"]
    assert len(said) > 50
    assert [text for text in said if text not in given] == []


def test_every_number_of_a_plan_says_what_it_is_of() -> None:
    """A number alone is no quantity: it has the unit of its field, or says what it counts."""
    for file in sorted(LIBRARY.glob("*.yaml")):
        table = plan(Report(compile_plan(load_plan(file)))).table
        assert table is not None
        bare = [(row[0].text, row[1].text) for row in table.rows if re.fullmatch(r"[\d\s.,×⁻⁰-⁹¹²³−]+", row[1].text)]
        assert [name for name, _ in bare if name != "parallelism.zero"] == [], file.name  # the name of a stage of ZeRO
