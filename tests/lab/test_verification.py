"""How a plan is verified: few layers for many, causes, records, and the table that is made from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledger.books import compile_plan
from ledger.books.compiled_roles import compile_roles
from ledger.evidence import verification as records
from ledger.evidence.verdicts import (
    EXACT,
    HALF_PERCENT,
    ROUNDING,
    ComparedFigure,
    KnownDifference,
    Tolerance,
    total,
    unchecked,
)
from ledger.evidence.verification import JudgeOrigin, Verification
from ledger.lab.judges.metered_rank import STANDING
from ledger.lab.observed.device_step import AllocatedBytes
from ledger.lab.verification import frameworks, predicted
from ledger.lab.verification.accuracy import rewrite_section
from ledger.lab.verification.causes import causes
from ledger.lab.verification.checks import compare_figures, judges
from ledger.lab.verification.depth import samples, sum_weighted_figures, with_counts
from ledger.lab.verification.peaks import HEAD
from ledger.lab.verification.stages import ledger_figures
from ledger.lab.verification.suites import Depth, judged_plan, verify
from ledger.model.schedule import roles
from ledger.spec.load import load_plan
from ledger.spec.plan import Model, Plan
from ledger.spec.suite import SuiteCase, load_suite
from tests.model import plans
from tests.sampling import sampled

ACCURACY = Path(__file__).parents[2] / "docs" / "accuracy.md"
RECORDS = {found.name: found for found in records.every(records.folder())}
CASES = {case.name: case for case in load_suite("pytorch").cases}
FRAMEWORKS = ("megatron", "deepspeed", "torchtitan")
BY_FRAMEWORKS = {case.name: case for suite in FRAMEWORKS for case in load_suite(suite).cases}


# --- few layers for many ------------------------------------------------------------------------


def model(name: str, repeats: tuple[int, ...]) -> Model:
    """A small model with so many layers of each group."""
    parts = {"llama": plans.LLAMA, "gemma2": plans.GEMMA2}[name]
    return with_counts(plans.compiled(model=parts).plan.model, repeats)


@pytest.mark.parametrize(
    ("name", "repeats"), [("llama", (32,)), ("llama", (2,)), ("gemma2", (13, 13)), ("gemma2", (3, 3))]
)
def test_weights_of_runs_give_any_affine_figure(name: str, repeats: tuple[int, ...]) -> None:
    """7 beside the layers, and 11 and 13 for a layer of each group, come out at the whole depth."""
    per_layer = (11, 13)

    def figure(layers: tuple[int, ...]) -> int:
        return 7 + sum(count * size for count, size in zip(layers, per_layer, strict=False))

    runs = samples(model(name, repeats))
    assert sum(run.weight for run in runs) == 1
    assert sum(run.weight * figure(run.layers) for run in runs) == figure(repeats)
    assert all(sum(run.layers) <= 8 for run in runs)


def test_groups_that_take_turns_grow_together() -> None:
    """A local layer more without its global one would be another order of layers."""
    assert {run.layers for run in samples(model("gemma2", (13, 13)))} == {(3, 3), (4, 4)}


def test_rounding_is_extrapolated_beside_the_bytes() -> None:
    """Both parts are affine: 2 x (5, 1) - (3, 0)."""
    assert sum_weighted_figures([(2, {"a": AllocatedBytes(5, 1)}), (-1, {"a": AllocatedBytes(3, 0)})]) == {
        "a": AllocatedBytes(7, 2)
    }


@pytest.mark.parametrize("recompute", [pytest.param("none", marks=pytest.mark.long), "full"])
def test_extrapolated_figures_are_those_of_all_layers(recompute: str) -> None:
    """Three and four layers say of seven what seven say themselves, at every figure."""
    plan = plans.compiled(model=plans.layer(plans.LLAMA, repeat=7), recompute=recompute).plan
    found = [verify(plan, Depth(full=full), "", lambda _: None) for full in (False, True)]
    few, all_of_them = ({v.account: (v.found, v.where, v.causes) for v in one.verdicts} for one in found)
    assert few == all_of_them
    assert "7 layers" in found[1].layers


# --- verdicts -----------------------------------------------------------------------------------


def verdict(predicted: int, found: int, tolerance: Tolerance = EXACT, *causes: KnownDifference) -> ComparedFigure:
    """A comparison of bytes."""
    return ComparedFigure("memory.backward", "B", predicted, found, tolerance, causes=causes)


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (verdict(1000, 1000), "equal"),
        (verdict(1000, 1012, ROUNDING, KnownDifference("rounding", 12)), "explained"),
        (verdict(1000, 1012, ROUNDING, KnownDifference("rounding", 11)), "differs"),
        (verdict(1000, 1004, HALF_PERCENT), "within"),
        (verdict(1000, 1006, HALF_PERCENT), "differs"),
        (verdict(1000, 1006, HALF_PERCENT, KnownDifference("a buffer", 3)), "within"),
        (verdict(1000, 999), "differs"),
        (unchecked("memory", "why not"), "not checked"),
    ],
)
def test_outcomes(one: ComparedFigure, status: str) -> None:
    """What is left once causes are taken away decides; half a percent of 1006 is 5.03."""
    assert one.status == status
    assert one.agrees == (status != "differs")


TIED = ("backward/decoder/end", "backward/input")


def judged_moments(plan: Plan, **beside: int) -> dict[str, AllocatedBytes]:
    """A judge that holds what the ledger says and the named causes, and so much more at single moments."""
    said = predicted.memory(compile_plan(plan))
    held = {name: size + total(causes(plan, name)) + 512 for name, size in said.items()}
    return {name: AllocatedBytes(size + beside.get(name, 0), 512) for name, size in held.items()}


def layers_verdict(plan: Plan, judge: dict[str, AllocatedBytes], raised: str = "") -> ComparedFigure:
    """Of the fullest instant in the layers, where the ledger says 1 GB more of one moment."""
    said = {name: size + 10**9 * (name == raised) for name, size in predicted.memory(compile_plan(plan)).items()}
    return next(
        v for v in compare_figures(compile_plan(plan), said, judge, "") if v.account == "memory.backward.layers"
    )


def test_a_peak_that_is_too_high_disagrees_at_whichever_moment() -> None:
    """That the ledger is fullest elsewhere is no excuse: only bytes that the judge holds explain a difference."""
    plan = plans.compiled(model=plans.GPT2, recompute="full", precision="bf16-true").plan
    judge = judged_moments(plan)
    moments = [name for name in judge if name.startswith("backward/") and name not in HEAD]
    assert len(moments) > 1
    for moment in moments:
        assert layers_verdict(plan, judge, moment).status == "differs"


def test_a_cause_that_makes_another_moment_the_fullest_is_followed() -> None:
    """A tied weight's sum, which only the judge holds, lifts the embedding's moment above that of the layers."""
    model = {**plans.GPT2, "vocab": 1024}
    plan = plans.compiled(model=model, recompute="full", precision="bf16-true").plan
    judge = judged_moments(plan)
    found = {name: judge[name].bytes for name in TIED}
    clean = {name: found[name] - 512 - total(causes(plan, name)) for name in TIED}
    one = layers_verdict(plan, judge)
    assert max(found, key=found.__getitem__) != max(clean, key=clean.__getitem__)
    assert (one.status, one.where) == ("explained", "backward/input")
    assert one.causes[-1] == KnownDifference(
        "without these backward/decoder/end is fuller", clean[TIED[1]] - clean[TIED[0]]
    )


def test_nothing_checked_is_no_agreement() -> None:
    """A plan that the judge cannot build at all does not pass."""
    origin = JudgeOrigin("2", "5", "2026-01-01", "ledger verify x")
    assert not Verification("x", "X", "m", "d", "", (unchecked("flops", "no class"),), origin).agrees


def test_a_compiled_stack_is_judged_as_eager() -> None:
    """What PyTorch is asked instead of what the plan says is told, one sentence each, and nothing else changes."""
    plan = plans.compiled(stack="pytorch-fsdp2-compile-2025").plan
    asked, notes = judged_plan(plan)
    assert not asked.stack.compiled
    assert asked.kernels == replace(plan.kernels, loss="eager", rotary="eager")
    assert replace(asked, stack=plan.stack, kernels=plan.kernels) == plan
    assert [note.partition(" = ")[0] for note in notes] == ["stack.compiled", "kernels.loss", "kernels.rotary"]


def test_kernels_that_pytorch_does_not_have_are_not_judged() -> None:
    """Counts of another kernel would say nothing of the plan's; parameters are the same under all."""
    plan = plans.compiled(kernels={"attention": "cudnn_grouped"}).plan
    asked = {judge.title: judge.reason(plan) for judge in judges(plan)}
    assert asked.pop("parameters") == ""
    assert all("kernels.attention = cudnn_grouped" in reason for reason in asked.values())


# --- records ------------------------------------------------------------------------------------


def test_a_record_reads_back_as_what_was_found(tmp_path: Path) -> None:
    """Verdicts, causes, reasons and origin survive the file."""
    verdicts = (
        verdict(1000, 1012, ROUNDING, KnownDifference("rounding", 12)),
        unchecked("comm", "no judge: why"),
    )
    origin = JudgeOrigin("2.13.0", "5.23.0", "2026-01-01", "ledger verify small.yaml --set 'a=b: c'")
    found = Verification("small", "A small plan: two", "small Llama", "ab" * 32, "3 layers", verdicts, origin, ("x",))
    assert records.read(records.write(found, tmp_path)) == found


def test_the_nearest_record_is_the_plans_own_then_its_models(tmp_path: Path) -> None:
    """The digest decides; another plan of the model is better than nothing; another model is nothing."""
    plan = plans.compiled().plan
    origin = JudgeOrigin("2", "5", "2026-01-01", "")
    other = Verification("a", "A", plan.model.title, "00" * 32, "", (verdict(1, 1),), origin)
    assert records.nearest(plan, tmp_path) is None
    records.write(replace(other, model="another"), tmp_path)
    assert records.nearest(plan, tmp_path) is None
    records.write(other, tmp_path)
    assert records.nearest(plan, tmp_path) == other
    own = replace(other, name="b", digest=plan.judged_digest)
    records.write(own, tmp_path)
    assert records.nearest(plan, tmp_path) == own


def test_every_case_of_the_suite_is_on_record() -> None:
    """What is claimed was run, and what was run is still part of a suite."""
    assert RECORDS.keys() == CASES.keys() | BY_FRAMEWORKS.keys()


def asked(case: SuiteCase) -> set[str]:
    """What is there once: every plan, and all that is set in one but sizes, of which every name."""
    sizes = ("cluster.", "run.", "parallelism.")
    return {str(case.plan), *(text.partition("=")[0] if text.startswith(sizes) else text for text in case.overrides)}


@pytest.mark.parametrize("case", sampled(CASES.values(), asked, lambda case: case.name))
def test_a_record_holds_what_the_compiler_says_today(case: SuiteCase) -> None:
    """A change of the compiler that moves a verified figure asks for a new verdict: `make verify-all`."""
    kept = {v.account: v.predicted for v in RECORDS[case.name].verdicts if v.predicted is not None}
    plan, _ = judged_plan(load_plan(case.plan, case.overrides))
    compiled = compile_plan(plan)
    said = {
        key: size for judge in judges(plan) if not judge.reason(plan) for key, size in judge.tells(compiled).items()
    }
    if plan.parallelism.pipeline > 1:
        for role, figures in ledger_figures(compiled).items():
            said |= {f"{key}/{role}": size for key, size in figures.items()}
            backward = max(size for key, size in figures.items() if key.startswith("backward/"))
            assert kept[f"memory.backward/{role}"] == backward
            assert kept[f"memory.static/{role}"] == figures["static"]
    counts = {key: size for key, size in kept.items() if not key.startswith("memory.")}
    assert counts == {key: said.get(key, 0) for key in counts}
    if "memory.backward" in kept:
        assert kept["memory.backward"] == max(size for key, size in said.items() if key.startswith("backward/"))
        assert kept["memory.static"] == said["static"]


@pytest.mark.parametrize("case", sampled(BY_FRAMEWORKS.values(), asked, lambda case: case.name))
def test_a_framework_s_record_holds_what_the_compiler_says_today(case: SuiteCase) -> None:
    """Bytes between steps, saved bytes and collectives of every role that was asked."""
    compiled = compile_plan(load_plan(case.plan, case.overrides))
    plan, books = compiled.plan, compile_roles(compiled.plan, roles(compiled.plan))
    said: dict[str, int] = {}
    for book in books:
        suffix = f"/{book.role.name}" if len(books) > 1 else ""
        held = {f"standing.{name}": predicted.stock_bytes(book, name) for name in STANDING}
        held["standing.gradients"] = frameworks._lasting_gradients(plan, book)
        saved = {f"saved.{group}": size for group, size in predicted.saved_layers(book).items()}
        figures = {**held, **saved, **predicted.collectives(compiled, book.role.name)}
        said |= {f"{name}{suffix}": amount for name, amount in figures.items()}
    kinds = ("standing.", "saved.", "comm.")
    kept = {v.account: v.predicted for v in RECORDS[case.name].verdicts if v.account.startswith(kinds)}
    assert kept
    assert kept == {key: said.get(key, 0) for key in kept}


def test_the_table_in_the_docs_is_made_from_the_records() -> None:
    """`make accuracy` would change nothing."""
    text = ACCURACY.read_text(encoding="utf-8")
    assert rewrite_section(text, tuple(RECORDS.values())) == text
