"""A compiler for training plans: the verbs of the command line, in Python.

>>> compiled = ledger.compile("specs/70b.yaml", ["run.micro_batch=2"])
>>> compiled.totals["memory.peak"]  # bytes, of the device that holds most

A spec is a path, `REV:path` for a git revision, `-` for standard input, a name of the library (`70b`), or a text of
several lines. `overrides` are `key=value` texts, as behind `--set`; one may stand alone. Every verb but `check` raises
`SpecError` with everything that is wrong with its input, each problem with its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ledger.spec.problems import Problem, SpecError
from ledger.spec.version import VERSION

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.what_if.answer import Solution
    from ledger.report.compare.choice import PlanComparison
    from ledger.report.diff import Diff
    from ledger.report.recommendations import Recommendations
    from ledger.spec.plan import Plan

__version__ = VERSION
__all__ = [
    "SpecError",
    "check",
    "compare",
    "compile",
    "diff",
    "explain",
    "reproduce",
    "show",
    "solve",
    "verify",
    "write_comparison",
    "write_report",
]

Texts = str | Iterable[str]  # one or several


def compile(spec: str | Path, overrides: Texts = ()) -> Compiled:  # noqa: A001 - the verb of this package
    """The plan with its books closed: `totals`, `accounts`, `roles`, `verdict`, in SI base units."""
    plan = _plan(spec, overrides)
    from ledger.books import compile_plan  # after the input is known to be good: algebra takes longer to load

    return compile_plan(plan)


def show(spec: str | Path, overrides: Texts = ()) -> dict[str, Any]:
    """The published form of the compiled plan, `ledger-show/1`."""
    compiled = compile(spec, overrides)
    from ledger.report.contract import show_record

    return show_record(compiled, str(spec))


def explain(spec: str | Path, name: str, overrides: Texts = ()) -> dict[str, Any]:
    """Where the number of an account or a total comes from: formula, rule, citation, and every input with its place."""
    compiled = compile(spec, overrides)
    from ledger.report.explained import explanation

    return explanation(compiled, name)


def diff(old: str | Path, new: str | Path, overrides: Texts = ()) -> Diff:
    """What two plans differ in and what causes it, with `overrides` on the new one."""
    first, second = compile(old), compile(new, overrides)
    from ledger.report.diff import diff as compared

    return compared(first, second)


def compare(
    specs: Iterable[str | Path], overrides: Texts = (), *, choose_by: str = "", subject_to: Texts = ()
) -> dict[str, Any]:
    """Plans side by side and the one that is recommended, `ledger-compare/1`; the others are held against the first.

    `choose_by` is the total that makes one plan better than another (none: the cost of the run), `subject_to` are
    conditions on the plan that is chosen (none: that it keeps its headroom). `overrides` are on all plans.
    """
    comparison = _compare_plans(specs, overrides, choose_by, subject_to)
    from ledger.report.compare.record import comparison_record

    return comparison_record(comparison)


def write_comparison(  # noqa: PLR0913 - as of a report, and what is chosen by
    specs: Iterable[str | Path],
    out: str | Path = "reports",
    formats: Texts = ("html", "pdf", "md", "json"),
    overrides: Texts = (),
    *,
    choose_by: str = "",
    subject_to: Texts = (),
) -> list[Path]:
    """Plans side by side as files, with their paths."""
    from ledger.report.files import valid_formats

    format_names = valid_formats(_texts(formats))
    comparison = _compare_plans(specs, overrides, choose_by, subject_to)
    from ledger.report.compare.write import write_comparison as written

    return written(comparison, Path(out), format_names)


def solve(  # noqa: PLR0913 - a question has these parts, and callers name those they use
    spec: str | Path,
    key: Texts,
    subject_to: Texts = (),
    overrides: Texts = (),
    *,
    maximize: str = "",
    minimize: str = "",
    keep: str = "",
) -> Solution:
    """The best value of the input `key` under conditions such as `memory.peak <= 70 GB` (none: that the plan fits).

    Of several keys it is the best combination. `maximize` or `minimize` names the total that makes one value better
    than another; `keep` (`widths` or `shape`) the sizes of the model that stay in proportion to that which is sought.
    A model or an accelerator that misses the conditions in the plan's layout is tried in the fastest that it has.
    """
    plan = _plan(spec, overrides)
    from ledger.search.part_choice import solve as solved

    return solved(plan, _texts(key), _texts(subject_to), maximize=maximize, minimize=minimize, keep=keep)


def verify(spec: str | Path, overrides: Texts = (), layers: int | None = None, *, full: bool = False) -> dict[str, Any]:
    """What PyTorch finds of the plan beside what the books say, `ledger-verify/1`; it runs `layers`, few, or all."""
    from shlex import join

    plan = _plan(spec, overrides)
    from ledger.evidence.verification import published
    from ledger.lab.verification.suites import Depth
    from ledger.lab.verification.suites import verify as verified

    command = join(["ledger", "verify", str(spec), *(word for text in _texts(overrides) for word in ("--set", text))])
    return published(verified(plan, Depth(layers, full), command, lambda _: None), str(spec))


def write_report(  # noqa: PLR0913 - what a report is made with, and callers name those they use
    spec: str | Path,
    out: str | Path = "reports",
    formats: Texts = ("html", "pdf", "md", "json"),
    overrides: Texts = (),
    *,
    search: bool = True,
    layout: Literal["", "fastest", "cheapest", "smallest"] = "",
) -> list[Path]:
    """The report of the plan as files, with their paths. (`ledger.report` is the package that makes it.)

    `layout` takes the plan with the best of its other layouts instead of its own. With `search` the layouts of the plan
    are looked at for the best of them, in this process: minutes for large plans.
    """
    from ledger.report.files import SEARCHED, valid_formats, valid_layout

    format_names, layout_name = valid_formats(_texts(formats)), valid_layout(layout)
    plan = _plan(spec, overrides)
    from ledger.books import compile_plan
    from ledger.report.recommendations import with_layout

    plan = with_layout(plan, _search_layouts(plan), layout_name) if layout_name else plan
    from ledger.report.seals.opening import sealed, with_books
    from ledger.report.write import assemble_report
    from ledger.report.write import write_report as written

    recommendations = _search_layouts(plan) if search and {*SEARCHED} & {*format_names} else None
    with sealed(plan) as (sealed_plan, seal):
        compiled = compile_plan(sealed_plan)
        report = assemble_report(compiled, format_names, recommendations, with_books(seal, compiled, recommendations))
        return written(report, Path(out), format_names)


def reproduce(file: str | Path) -> dict[str, Any]:
    """A report (HTML, PDF, JSON) made again from what it carries, and whether it says the same: ledger-reproduce/1."""
    from ledger.report.seals.reproduction import published_reproduction
    from ledger.report.seals.reproduction import reproduce as made_again

    return published_reproduction(made_again(Path(file)), str(file))


def check(spec: str | Path, overrides: Texts = (), *, strict: bool = False) -> tuple[Problem, ...]:
    """Everything in which the plan fails, or why it is none: problems of the spec are returned here, not raised.

    With `strict` also what it is warned of.
    """
    from ledger.course.answer import checked_spec

    outcome = checked_spec(str(spec), lambda: compile(spec, overrides))
    outcome = outcome.strict if strict else outcome
    return (*outcome.problems, *outcome.failures)


def _compare_plans(specs: Iterable[str | Path], overrides: Texts, choose_by: str, subject_to: Texts) -> PlanComparison:
    from ledger.report.compare.choice import WrittenRule, compare_plans
    from ledger.report.compare.plans import compile_named

    typed = [str(spec) for spec in specs]
    return compare_plans(typed, compile_named(typed, _texts(overrides)), WrittenRule(choose_by, _texts(subject_to)))


def _search_layouts(plan: Plan) -> Recommendations | None:
    from ledger.search.recommend import may_recommend
    from ledger.search.recommendation_cache import recommendations

    return recommendations(plan) if may_recommend(plan) else None


def _plan(spec: str | Path, overrides: Texts) -> Plan:
    from ledger.spec.load import load_plan

    return load_plan(spec, _texts(overrides))


def _texts(texts: Texts) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)
