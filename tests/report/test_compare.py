"""Plans side by side: figures that are those of the books, causes that add up, and a recommendation by its rule."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import weasyprint
from pypdf import PdfReader
from tinyhtml5.parser import HTMLParser as StrictParser

import ledger
from ledger import numbers
from ledger.books.compiled import Compiled
from ledger.books.results import Check, WaterfallPart
from ledger.books.time import TITLES
from ledger.report.compare.choice import (
    PlanChoice,
    PlanComparison,
    RankedPlan,
    WrittenRule,
    choice_sentences,
    compare_plans,
)
from ledger.report.compare.page import colour_of, comparison_view, memory_figure, step_figure
from ledger.report.compare.plans import file_name, unique_labels
from ledger.report.compare.record import AlignedRow, aligned_rows, comparison_record
from ledger.report.compare.write import COMPARISON_FORMATS, render
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.report.svg import STEP_ORDER
from ledger.units import unit_of
from tests.report.test_accessible_pdf import of_type, structure

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden" / "compare.md"
WRITE = "LEDGER_WRITE_GOLDEN"  # set it to write the golden file anew, and read what changed
HOUR, DAY, GB = 3600, 86400, 10**9
SPEC = """\
spec: ledger/1
plan: Llama 3 70B on 1024 H100
accelerator: h100-sxm
cluster: {base: h100-400g, devices: 1024}
model: llama-3-70b
precision: bf16-mixed
optimizer: adamw
parallelism: {data: 128, tensor: 8, sequence: save_gathered, zero: 3}
recompute: full
stack: pytorch-fsdp2-2025
run: {tokens: 15T tokens, seq_len: 8192, micro_batch: 8, global_batch: 1024}
assumptions: {mfu: 0.5}
"""
EDITS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "base": (),
    "tensor4": (("data: 128, tensor: 8", "data: 256, tensor: 4"), ("micro_batch: 8", "micro_batch: 4")),
    "keep-all": (("recompute: full", "recompute: none"),),
    "h200": (("accelerator: h100-sxm", "accelerator: h200-sxm"),),
    "never": (("run:", "operations: {checkpoint_interval: 1 min, checkpoint_cost: 10 min}\nrun:"),),
    "shorter": (("tokens: 15T tokens", "tokens: 5T tokens"),),
}


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compiled]:
    """70b and edits of it, compiled."""
    folder = tmp_path_factory.mktemp("plans")
    found = {}
    for name, edits in EDITS.items():
        text = SPEC
        for old, new in edits:
            assert text.count(old) >= 1, f"{name} edits nothing"
            text = text.replace(old, new, 1)
        (folder / f"{name}.yaml").write_text(text, "utf-8")
        found[name] = ledger.compile(folder / f"{name}.yaml")
    return found


def compared(books: Mapping[str, Compiled], *names: str, asked: WrittenRule | None = None) -> PlanComparison:
    """Some of the plans, the first as the one that others are held against."""
    return compare_plans([f"{name}.yaml" for name in names], [books[name] for name in names], asked or WrittenRule())


@pytest.fixture(scope="module")
def four(books: dict[str, Compiled]) -> PlanComparison:
    """A layout, a plan that does not fit, another device."""
    return compared(books, "base", "tensor4", "keep-all", "h200")


def row(comparison: PlanComparison, name: str) -> AlignedRow:
    """A row of the first page."""
    return next(one for one in aligned_rows(comparison.plans) if one.name == name)


# --- figures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("time of a step", "time.step"),
        ("length of the run", "time.calendar"),
        ("cost of the run", "cost.run"),
        ("energy of the run", "energy.run"),
        ("model FLOPs utilisation", "mfu"),
        ("throughput", "tokens_per_second"),
    ],
)
def test_figures_are_the_totals_of_the_books(
    books: dict[str, Compiled], four: PlanComparison, name: str, key: str
) -> None:
    """Each cell is its plan's total with its ends, and stands on the page; the change is over the first plan's."""
    page, first = render(four, screen=True), float(books["base"].totals[key])
    for plan, cell in zip(("base", "tensor4", "keep-all", "h200"), row(four, name).cells, strict=True):
        totals = books[plan].totals
        if plan == "keep-all" and key in {"time.calendar", "cost.run", "energy.run"}:
            assert (cell.text, cell.note, cell.change) == ("–", "", ""), "what does not fit has no days and no dollars"
            continue
        assert cell.text == numbers.amount_text(totals[key], unit_of(key))
        assert cell.text in page
        if f"{key}.low" in totals:
            ends = [numbers.amount_text(totals[f"{key}.{end}"], unit_of(key)) for end in ("low", "high")]
            assert cell.note == " to ".join(ends)
        if plan != "base" and key != "mfu":
            assert cell.change == numbers.change(float(totals[key]) / first - 1)


def test_bars_add_up_to_the_totals(books: dict[str, Compiled], four: PlanComparison) -> None:
    """The tables below the charts end with what the fullest device reserves, and with the step; parts sum to it."""
    for figure, key, least in (
        (memory_figure(four.plans), "memory.reserved", -2),
        (step_figure(four.plans), "time.step", -1),
    ):
        assert figure is not None
        rows = figure.table.rows
        for column, plan in enumerate(("base", "tensor4", "keep-all", "h200"), 1):
            total = float(books[plan].totals[key])
            assert float(rows[least][column].sort) == pytest.approx(total)
            assert sum(float(one[column].sort or 0) for one in rows[:least]) == pytest.approx(total)


def test_every_part_of_a_step_has_its_colour() -> None:
    """A part that the books may name is drawn in a colour of its own."""
    assert sorted(map(colour_of, TITLES)) == sorted(STEP_ORDER)


def test_a_plan_that_never_ends_has_no_days(books: dict[str, Compiled]) -> None:
    """It fits, and a checkpoint of ten minutes every minute leaves no time to train."""
    comparison = compared(books, "base", "never")
    verdict = row(comparison, "verdict").cells[1]
    assert (verdict.text, verdict.status) == ("Never ends", "fail")
    assert row(comparison, "cost of the run").cells[1].text == "–"
    assert {"dollars", "run_seconds"}.isdisjoint(comparison_record(comparison)["differences"][0]["movements"])
    assert "cannot run as planned" in comparison_view(comparison).differences[0].notes[0]


def test_what_would_make_it_run_is_told(books: dict[str, Compiled]) -> None:
    """Of a plan that does not fit, the smallest edit that does, where layouts are searched; the others need none."""
    asked: list[str] = []

    def search(plan: Any) -> Recommendations:
        asked.append(plan.name)
        edit = Recommendation({"recompute": "full"}, {"time.step": 13.0})
        return Recommendations(smallest=edit, fastest=edit, legal=7, fitting=2)

    names = ("base", "keep-all")
    found = compare_plans(names, [books[name] for name in names], WrittenRule(), search)
    missing = float(books["keep-all"].totals["memory.reserved"]) - float(books["keep-all"].totals["memory.capacity"])
    assert asked == ["keep-all"]
    assert row(found, "verdict").cells[1].note == f"{numbers.size(missing)} missing. Fits: recompute full."


def test_what_is_the_same_is_said_once(four: PlanComparison) -> None:
    """A row in which all plans agree is no row of the table; in the others a cell says where it agrees."""
    view = comparison_view(four)
    assert ("training", "15\u202ftrillion tokens") in view.alike
    assert {name for name, _ in view.alike}.isdisjoint(one.name for one in view.differing)
    layout = next(one for one in view.differing if one.name == "layout")
    assert [one.is_as_first for one in layout.cells] == [False, False, True, True]
    page = render(four, screen=True)
    assert page.count("15\u202ftrillion tokens") == 1


def test_inputs_are_aligned(four: PlanComparison) -> None:
    """Every input that any plan edits, with its value in each."""
    rows = {one.name: [cell.text for cell in one.cells] for one in comparison_view(four).inputs}
    assert rows["parallelism.tensor"] == ["8", "4", "8", "8"]
    assert rows["recompute"] == ["full", "full", "none", "full"]
    assert rows["accelerator"] == ["h100-sxm", "h100-sxm", "h100-sxm", "h200-sxm"]


# --- causes -------------------------------------------------------------------------------------


def test_causes_add_up_to_the_difference(four: PlanComparison) -> None:
    """In dollars, days, seconds of a step and bytes, of every plan against the first."""
    counted = 0
    for one in four.differences:
        for moved in one.movements:
            left = float(moved.new - moved.old - sum(cause.amount for cause in moved.causes))
            assert abs(left) <= 1e-6 * float(moved.old)
            counted += len(moved.causes)
    assert counted > 8


def test_a_cause_has_the_mean_of_first_and_last(books: dict[str, Compiled], four: PlanComparison) -> None:
    """Of a device and its price, each on top of the old plan and before the new: dollars are their product."""
    (difference,) = (one for one in four.differences if one.label == "h200")
    (dollars,) = (one for one in difference.movements if one.measure == "dollars")
    lengths = [float(books[name].totals["time.calendar"]) / HOUR * 1024 for name in ("base", "h200")]
    found = {cause.inputs: float(cause.amount) for cause in dollars.causes}
    assert found == {
        ("assumptions.price",): pytest.approx((3.5 - 2.5) * sum(lengths) / 2),
        ("accelerator",): pytest.approx((lengths[1] - lengths[0]) * (3.5 + 2.5) / 2),
    }


def test_edits_that_rules_tie_are_told_together(four: PlanComparison) -> None:
    """Degrees and the batch change together, and a sentence says why."""
    view = comparison_view(four).differences[0]
    assert view.table is not None
    assert [one[0].text for one in view.table.rows] == [
        "parallelism.data with parallelism.tensor with run.micro_batch",
        "in all",
    ]
    assert view.table.rows[0][0].note == "128 → 256; 8 → 4; 8 → 4"
    assert view.notes[0].startswith("Taken together, as the rules of a plan allow none of them without others")


def test_the_edit_that_breaks_the_fit_is_named(books: dict[str, Compiled], four: PlanComparison) -> None:
    """Of a plan that does not fit where the first does, and the other way round; in words and for programs."""
    views = {one.title: one.notes for one in comparison_view(four).differences}
    assert views["keep-all against base"][0] == "`keep-all` does not fit, and `base` does: by `recompute`."
    back = compared(books, "keep-all", "base")
    assert comparison_view(back).differences[0].notes[0] == "`base` fits, and `keep-all` does not: by `recompute`."
    record = comparison_record(four)["differences"]
    assert [one["verdict"] for one in record] == [[], [{"word": "fits", "holds": False, "inputs": ["recompute"]}], []]


# --- the recommendation -------------------------------------------------------------------------


def plans_by_hand(compiled: Compiled, **changes: Mapping[str, float]) -> tuple[list[str], list[Compiled]]:
    """The hand-made plan of 80 GB, of which 10 GB are held, under several names, with other totals."""
    usual = {"memory.reserved": 10 * GB, "memory.capacity": 80 * GB}
    made = [replace(compiled, totals={**compiled.totals, **usual, **totals}) for totals in changes.values()]
    return list(changes), made


def choice_of(compiled: Compiled, asked: WrittenRule | None = None, **changes: Mapping[str, float]) -> PlanChoice:
    """What is chosen of such plans."""
    return compare_plans(*plans_by_hand(compiled, **changes), asked or WrittenRule()).choice


def cost(amount: float, low: float, high: float) -> dict[str, float]:
    """A cost with its ends."""
    return {"cost.run": amount, "cost.run.low": low, "cost.run.high": high}


def test_the_cheapest_that_keeps_its_headroom_is_recommended(books: dict[str, Compiled], four: PlanComparison) -> None:
    """Not the faster one that does not fit; the rule, the amount and the lead stand in the sentence."""
    costs = {name: float(books[name].totals["cost.run"]) for name in ("base", "tensor4", "h200")}
    best, second = sorted(costs, key=lambda name: costs[name])[:2]
    chosen = four.choice.chosen
    assert chosen is not None
    assert chosen.label == best
    assert choice_sentences(four.choice)[0] == (
        f"`{best}` is recommended: the cheapest (`cost.run`) of the 3 of 4 that fit and keep their headroom, "
        f"{numbers.money(costs[best])}, {numbers.brief_money(costs[second] - costs[best])} less than `{second}`."
    )
    assert four.choice.left_out[0][0] == "keep-all"


def test_ranges_that_overlap_are_not_parted(compiled: Compiled) -> None:
    """The plan is named all the same, with the length that both ranges share: 12 to 13 dollars, and not 20 to 30."""
    choice = choice_of(compiled, a=cost(14, 12, 18), b=cost(10, 9, 13), c=cost(25, 20, 30))
    assert choice.chosen == RankedPlan("b", 10, (9, 13))
    assert [(other.label, shared) for other, shared in choice.rivals] == [("a", 1)]
    assert choice_sentences(choice)[1] == (
        "The ranges that hold 80 of 100 runs overlap: evidence does not part it ($9.00 to $13.00) from "
        "`a` ($12.00 to $18.00, $1.00 of overlap)."
    )


def test_ranges_apart_part_plans(compiled: Compiled) -> None:
    """Where the next begins beyond the end of the best, that is said."""
    choice = choice_of(compiled, a=cost(25, 20, 30), b=cost(10, 9, 13))
    assert choice.rivals == ()
    assert choice_sentences(choice)[1] == (
        "The ranges that hold 80 of 100 runs part it ($9.00 to $13.00) from the next, `a` ($20.00 to $30.00)."
    )


def test_of_equal_plans_the_first_is_named(compiled: Compiled) -> None:
    """And the others are said to come to the same."""
    choice = choice_of(compiled, a=cost(10, 9, 13), b=cost(10, 9, 13))
    (sentence,) = choice_sentences(choice)
    assert sentence.startswith("`a` is recommended")
    assert sentence.endswith("; `b` comes to the same, and it was named first.")


def test_where_none_fits_none_is_recommended(compiled: Compiled) -> None:
    """Each is left out with what it lacks."""
    unfit = replace(compiled, verdict=replace(compiled.verdict, fits=False))
    choice = choice_of(unfit, a={"memory.reserved": 90 * GB}, b={"memory.reserved": 85 * GB})
    assert choice.chosen is None
    assert choice_sentences(choice) == (
        "No plan is recommended: none of the 2 fits and keeps its headroom.",
        "Left out: `a` (10.0\u202fGB missing), `b` (5.00\u202fGB missing).",
    )


def test_a_plan_short_of_its_headroom_is_left_out(compiled: Compiled) -> None:
    """It fits, and is no candidate until the headroom is no condition any more."""
    wanted = replace(compiled.plan.assumptions, headroom="cloud")
    tight = replace(compiled, plan=replace(compiled.plan, assumptions=wanted))
    held = {"a": {"memory.reserved": 79 * GB, **cost(5, 4, 6)}, "b": cost(10, 9, 13)}
    assert [one.label for one in choice_of(tight, **held).candidates] == ["b"]
    assert choice_of(tight, **held).left_out[0][1].startswith("1.00\u202fGB free, ")
    assert [one.label for one in choice_of(tight, WrittenRule(conditions=("fits",)), **held).candidates] == ["a", "b"]


def test_conditions_and_totals_change_the_rule(compiled: Compiled) -> None:
    """The most of a rate, the least of a length; what misses a condition is left out, and the sentence has the rule."""
    plans = {
        "a": {"tokens_per_second": 100.0, "time.calendar": 30.0 * DAY},
        "b": {"tokens_per_second": 300.0, "time.calendar": 10.0 * DAY},
        "c": {"tokens_per_second": 400.0, "time.calendar": 8.0 * DAY, "memory.reserved": 70 * GB},
    }
    fastest = choice_of(compiled, WrittenRule("tokens_per_second", ("memory.reserved < 60 GB",)), **plans)
    assert [one.label for one in fastest.candidates] == ["b", "a"]
    assert choice_sentences(fastest)[:2] == (
        (
            "`b` is recommended: the fastest (`tokens_per_second`) of the 2 of 3 that fit and meet "
            "`memory.reserved < 60 GB`, 300\u202ftokens/s, 200\u202ftokens/s more than `a`."
        ),
        "How far `tokens_per_second` of a plan may be off is not known.",
    )
    assert choice_of(compiled, WrittenRule("time.calendar"), **plans).candidates[0].label == "c"


def test_without_a_price_plans_are_chosen_by_their_length(compiled: Compiled) -> None:
    """One that has none cannot be compared by dollars; asked for dollars, it is left out with the reason."""
    bare = replace(compiled, plan=replace(compiled.plan, assumptions=replace(compiled.plan.assumptions, price=None)))
    plans = {name: {"time.calendar": days * DAY} for name, days in (("a", 9.0), ("b", 5.0))}
    names, made = plans_by_hand(bare, **plans)
    without = [replace(one, totals={k: v for k, v in one.totals.items() if k[:5] != "cost."}) for one in made]
    choice = compare_plans(names, without, WrittenRule()).choice
    assert (choice.total, choice.stated, choice.candidates[0].label) == ("time.calendar", False, "b")
    mixed = compare_plans(names, [made[0], without[1]], WrittenRule("cost.run")).choice
    assert [one.label for one in mixed.candidates] == ["a"]
    assert "price" in mixed.left_out[0][1]
    assert "the only one of 2 that fits, keeps its headroom and has `cost.run`; " in choice_sentences(mixed)[0]


def test_plans_that_train_other_things_are_not_recommended(books: dict[str, Compiled]) -> None:
    """A third of the tokens cost a third: that is no merit. Who says by what to choose is answered, and told."""
    silent = compared(books, "base", "shorter")
    assert silent.choice.chosen is None
    assert choice_sentences(silent.choice) == (
        "No plan is recommended, as they do not do the same work; `--for` names what to choose by.",
        "`shorter` does not do the work of `base`: `run.tokens`.",
    )
    stated = compared(books, "base", "shorter", asked=WrittenRule("cost.run")).choice
    assert stated.chosen is not None
    assert stated.chosen.label == "shorter"
    assert "`shorter` does not do the work of `base`: `run.tokens`." in choice_sentences(stated)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (WrittenRule("cost.rnu"), "no total `cost.rnu`"),
        (WrittenRule("", ("cost.run < 3 d",)), "3 d"),
        (WrittenRule("", ("fits", "time.step < 1 s", "time.step > 2 s")), "contradicts"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(compiled: Compiled, asked: WrittenRule, message: str) -> None:
    """A total that no plan has, a limit in another unit, conditions that exclude each other."""
    with pytest.raises(ledger.SpecError, match=message):
        choice_of(compiled, asked, a={}, b={})


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specs", "labels"),
    [
        (("specs/70b.yaml", "b.yaml"), ("70b", "b")),
        (("old/70b.yaml", "new/70b.yaml"), ("old/70b", "new/70b")),
        (("HEAD~1:specs/70b.yaml", "specs/70b.yaml"), ("HEAD~1:specs/70b", "specs/70b")),
        (("70b", "70b.yaml"), ("70b", "70b.yaml")),
        (("-", "70b"), ("stdin", "70b")),
        (("70b", "llama-3.1-405b-meta"), ("70b", "llama-3.1-405b-meta")),
    ],
)
def test_labels_tell_plans_apart(specs: Sequence[str], labels: Sequence[str]) -> None:
    """The name of the file, with folders or as it was typed where that is not enough."""
    assert unique_labels(specs) == labels


def test_files_are_named_by_the_plans() -> None:
    """In letters that every file system takes, and no longer than names may be."""
    assert file_name(("70b", "old/70b")) == "70b-vs-old-70b"
    assert file_name(("HEAD~1:70b", "..")) == "HEAD-1-70b-vs-plan"
    long = [f"a-plan-with-a-name-{number}" for number in range(8)]
    assert len(file_name(long)) < 60
    assert file_name(long) != file_name(long[::-1])


# --- documents ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def eight(books: dict[str, Compiled]) -> PlanComparison:
    """As many plans as a page takes, under long names."""
    names = ["base", "tensor4", "keep-all", "h200", "never", "shorter", "base", "tensor4"]
    labels = [f"{name}-with_a_long_name_{number}.yaml" for number, name in enumerate(names)]
    return compare_plans(labels, [books[name] for name in names], WrittenRule())


@pytest.mark.parametrize("name", ["four", "eight"])
def test_the_page_is_valid_and_can_be_read_by_ear(name: str, request: pytest.FixtureRequest) -> None:
    """No error of HTML; headers have a scope, figures a text, tables that scroll are reached by key; no network."""
    page = render(request.getfixturevalue(name), screen=True)
    parser = StrictParser()
    parser.parse(page)
    assert parser.errors == []
    assert re.findall(r"<th(?![^>]* scope=)[ >]", page) == []
    assert re.findall(r"<th[^>]*></th>", page) == []
    assert re.findall(r'<svg (?![^>]*aria-label="[^"]+)', page) == []
    assert page.count("<table") == len(
        re.findall(r'class="scroll[^"]*" role="region" aria-label="[^"]+" tabindex="0"', page)
    )
    assert re.findall(r'(?:src|href)="(?!#|data:)', page) == []
    assert "unsafe" not in page
    assert re.findall(r' style="| on\w+="', page) == []


@pytest.mark.parametrize("name", ["four", "eight"])
def test_nothing_reaches_beyond_the_paper(name: str, request: pytest.FixtureRequest) -> None:
    """Every line of text ends before the right margin of a page of A4, with few plans and with many."""
    document = weasyprint.HTML(string=render(request.getfixturevalue(name), screen=False)).render()
    beyond = [
        text
        for page in document.pages
        for text, right in lines(page._page_box)
        if right > page._page_box.margin_left + page._page_box.width + 0.5
    ]
    assert beyond == []
    assert {(round(page.width), round(page.height)) for page in document.pages} == {(794, 1123)}  # A4 at 96 dpi


def lines(box: Any) -> list[tuple[str, float]]:
    """Each text that a box holds, and where it ends on the right."""
    found = [(box.text, box.position_x + box.width)] if getattr(box, "text", "") else []
    return found + [line for child in getattr(box, "children", ()) for line in lines(child)]


def test_the_pdf_can_be_read_by_ear(four: PlanComparison) -> None:
    """Tagged: headers of columns and rows, charts said in words, headings that skip no level, the plans attached."""
    document = PdfReader(BytesIO(COMPARISON_FORMATS["pdf"](four)))
    elements = list(structure(document.trailer["/Root"]["/StructTreeRoot"], ""))
    assert {one["/A"]["/Scope"] for one in of_type(elements, "TH")} == {"/Column", "/Row"}
    figures = of_type(elements, "Figure")
    assert [one["/Alt"].split(":")[0] for one in figures] == ["Memory of the fullest device", "Time of a step"]
    levels = [int(one["/S"][2:]) for one in of_type(elements, "H1", "H2", "H3", "H4")]
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert sorted(one.name for one in document.attachment_list) == sorted(f"{one.label}.yaml" for one in four.plans)


@pytest.mark.long
def test_the_same_plans_are_the_same_bytes(tmp_path: Path) -> None:
    """Files depend on the plans alone: not on the process, or the order of a set."""
    written = []
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "ledger", "compare", "70b", "8b", "--out", str(tmp_path / seed)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
        written.append({path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()})
    assert {name.rpartition(".")[2] for name in written[0]} == COMPARISON_FORMATS.keys()
    assert written[0] == written[1]


def test_text_of_a_plan_is_text(compiled: Compiled) -> None:
    """Neither elements nor links nor rows of a table come from a title."""
    title = "<img src=x onerror=alert(1)> | [l](http://evil.example) @team"
    sound = replace(compiled, waterfall=(WaterfallPart("forward", "forward kernels", 2.0),))
    hostile = replace(sound, plan=replace(compiled.plan, title=title))
    comparison = compare_plans(["a", "b"], [sound, hostile], WrittenRule())
    assert "<img" not in render(comparison, screen=True)
    written = COMPARISON_FORMATS["md"](comparison).decode()
    assert "<img" not in written
    assert "](http://" not in written
    line = next(one for one in written.splitlines() if one.startswith("| plan | "))
    assert len(re.findall(r"(?<!\\)\|", line)) == 4


def test_the_check_that_fails_is_named(compiled: Compiled) -> None:
    """What a plan expects and misses stands in its column; what the verdict's row says is not said twice."""
    wrong = (Check("expect.parameters", "Expected parameters", "fail", "7"), Check("state", "State", "fail", "9 GB"))
    failing = replace(compiled, verdict=replace(compiled.verdict, checks=wrong))
    comparison = compare_plans(["a", "b"], [compiled, failing], WrittenRule())
    assert [one.text for one in row(comparison, "checks that fail").cells] == ["none", "Expected parameters"]


def test_the_markdown_is_as_it_was_read(tmp_path: Path) -> None:
    """The whole text on two small plans, as someone has read it; digests are of the day."""
    text = (ROOT / "specs" / "gpt2.yaml").read_text("utf-8")
    names = ("gpt2", "gpt2-half")
    for name, old in zip(names, ("12", "6"), strict=True):
        (tmp_path / f"{name}.yaml").write_text(text.replace("micro_batch: 12", f"micro_batch: {old}"), "utf-8")
    made = [ledger.compile(tmp_path / f"{name}.yaml") for name in names]
    written = COMPARISON_FORMATS["md"](compare_plans([f"{name}.yaml" for name in names], made, WrittenRule())).decode()
    found = re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", written).replace(f"ledger {ledger.__version__}", "ledger")
    if os.environ.get(WRITE):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(found, "utf-8")
    assert found == GOLDEN.read_text("utf-8")
