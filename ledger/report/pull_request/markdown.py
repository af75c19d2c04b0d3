"""A comparison as a comment of a pull request (a deciding line, a row a plan, folded tables) and as problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath

from ledger import __version__
from ledger.numbers import THIN
from ledger.report.escape import code, html_code, html_text, one_line
from ledger.report.movements import BYTES, DOLLARS, SECONDS
from ledger.report.problem_formats import (
    ERROR,
    FAILED,
    INVALID,
    LEVELS,
    NOTE,
    PASSED,
    PROBLEM_FORMATS,
    SKIPPED,
    WARNING,
    JudgedSpec,
    Judgement,
)
from ledger.report.pull_request.pairs import CHANGED, DELETED, NEW, REPAIRED, Comparison, PlanChange
from ledger.report.pull_request.record import (
    NONE,
    Mark,
    amount_text,
    as_json,
    cause_texts,
    fits_text,
    flip_text,
    free_text,
    head_line,
    reason_text,
)
from ledger.spec.problems import Location, Problem, SpecError

MARKER = "<!-- ledger ci -->"  # by which a comment is found again
MOST_PLANS, MOST_GATES = 30, 8  # lines of each
MOST_INPUTS, MOST_PROBLEMS, MOST_NAMES = 50, 20, 5  # rows that are printed, and names in one
LONGEST = 60_000  # characters; GitHub takes 65536
HEAD = ("| plan | fits | headroom | time | cost | why |", "|---|---|---|---|---|---|")


@dataclass(frozen=True)
class InputRow:
    """An input that changed alike in several plans, and where it says so now."""

    path: str
    old: str
    new: str
    where: str
    plans: tuple[str, ...]


def as_markdown(comparison: Comparison) -> str:
    """The comment, which a hidden line at its end marks as ours."""
    lines = [head_line(comparison, code), ""]
    lines += [f"Fails on {code(gate)}: {failing}.  " for gate, failing in list(failures(comparison))[:MOST_GATES]]
    lines += [""] if lines[-1] else []
    if comparison.changes:
        lines += [*HEAD, *map(plan_row, comparison.changes[:MOST_PLANS]), ""]
        totals = html_table(("plan", "cost", "time", "memory reserved"), map(totals_cells, comparison.changes))
        lines += [*folded_problems(comparison), *folded_inputs(comparison), *folded("Before and after", totals), ""]
    versions = f"{code(comparison.old)} → {code(comparison.new)}, by ledger {__version__}"
    return cut("\n".join((*lines, versions)).replace(THIN, " ")) + f"\n{MARKER}\n"


def failures(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Each gate that trips, with the plans on which it does."""
    for gate in comparison.gates:
        if plans := [change.label for change in comparison.failed(gate)]:
            yield gate, first_names(plans, code)


def plan_row(change: PlanChange) -> str:
    """A plan in a line of the table."""
    cells = (
        code(change.label),
        fits_text(change, bold),
        free_text(change, bold),
        amount_text(change, SECONDS),
        amount_text(change, DOLLARS),
        reason_text(change, code),
    )
    return f"| {' | '.join(cells)} |"


def folded_problems(comparison: Comparison) -> Iterator[str]:
    """What is wrong with plans that do not compile."""
    problems = [problem for change in comparison.changes for problem in change.problems]
    if problems:
        items = []
        for problem in problems[:MOST_PROBLEMS]:
            help_text = f"<br>{html_code(problem.help)}" if problem.help else ""
            items.append(f"<li>{html_code(str(problem))}{help_text}</li>")
        yield from folded(f"Problems, {len(problems)}", f"<ul>{''.join(items)}</ul>")


def folded_inputs(comparison: Comparison) -> Iterator[str]:
    """The inputs that changed, each once."""
    rows = tuple(input_rows(comparison))
    if rows:
        cells = [
            (html_code(row.path), html_code(row.old), html_code(row.new), html_code(row.where), first_names(row.plans))
            for row in rows[:MOST_INPUTS]
        ]
        more = [(f"{len(rows) - MOST_INPUTS} more", "", "", "", "")] if rows[MOST_INPUTS:] else []
        heads = ("input", "before", "after", "where", "plans")
        yield from folded(f"Inputs that changed, {len(rows)}", html_table(heads, (*cells, *more)))


def totals_cells(change: PlanChange) -> Iterator[str]:
    """A plan by its path, and its measures before and after."""
    yield html_code(change.path)
    for measure in (DOLLARS, SECONDS, BYTES):
        side_totals = [outcome.totals if outcome else {} for outcome in (change.old, change.new)]
        keys = [measure.key(totals) for totals in side_totals]
        said = [measure.written(totals[key]) if key else NONE for totals, key in zip(side_totals, keys, strict=True)]
        yield html_text(" → ".join(dict.fromkeys(said)))


def input_rows(comparison: Comparison) -> Iterator[InputRow]:
    """What changed, those first that the most plans have."""
    plans_by_change: dict[tuple[str, str, str, str], list[str]] = {}
    for change in comparison.changes:
        for input_change in change.inputs:
            origin = input_change.new_origin or input_change.old_origin
            where = comparison.place(origin.where) if origin else NONE
            plans_by_change.setdefault((input_change.path, input_change.old, input_change.new, where), []).append(
                change.label
            )
    for key, plans in sorted(plans_by_change.items(), key=lambda item: (-len(item[1]), item[0])):
        yield InputRow(*key, tuple(plans))


def folded(summary: str, content: str) -> Iterator[str]:
    """What a reader unfolds: HTML in one line, in which no Markdown is read."""
    yield f"<details><summary>{html_text(summary)}</summary>"
    yield content
    yield "</details>"


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in one line; the cells are HTML."""
    lines = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{''.join(lines)}</table>"


def first_names(names: Sequence[str], mark: Mark = html_code) -> str:
    """The first names, and how many more there are."""
    more = [f"{len(names) - MOST_NAMES} more"] if names[MOST_NAMES:] else []
    return ", ".join([*map(mark, names[:MOST_NAMES]), *more])


def bold(text: str) -> str:
    """What must not be overlooked."""
    return f"**{text}**"


def cut(text: str) -> str:
    """A comment that a service takes: of what is beyond its limit, tables go first, then lines."""
    if len(text) <= LONGEST:
        return text
    lines = [line for line in text.splitlines() if not line.startswith(("<details>", "</details>", "<table>", "<ul>"))]
    shortened = "\n".join(lines)[:LONGEST].rpartition("\n")[0]
    return f"{shortened}\n\nTables are left out, as all of it is too long for a comment: `ledger ci --json` has them."


# --- changes as problems of a spec ---

LONGEST_FINDING = 1000  # characters of a message
RULES: Mapping[str, tuple[str, str]] = {  # level, and what it means
    "does-not-compile": (ERROR, "A plan has problems, and no totals."),
    "no-longer-fits": (ERROR, "A plan fitted its device, and does no more."),
    "does-not-fit": (ERROR, "A new plan does not fit its device."),
    "fails-on": (ERROR, "A condition of --fail-on is met."),
    "no-longer-keeps-headroom": (WARNING, "A plan left its headroom free, and does no more."),
    "totals-change": (NOTE, "A plan takes, costs or holds another amount."),
}
LOST = {"fits": "no-longer-fits", "headroom": "no-longer-keeps-headroom"}


def judgement(comparison: Comparison) -> Judgement:
    """Each affected plan with its findings; one fails by a condition of --fail-on, and is skipped once deleted."""
    specs = tuple(judged_plan(change, comparison.new) for change in comparison.changes)
    return Judgement("ci", specs, {rule: meaning for rule, (_, meaning) in RULES.items()}, head_line(comparison, str))


def judged_plan(change: PlanChange, tree: str) -> JudgedSpec:
    """A plan's findings by their levels; `tree` begins the files that were looked at."""
    placed = [in_repository(problem, change, tree) for problem in findings(change)]
    errors, warnings, notes = (
        tuple(problem for problem in placed if RULES[problem.rule][0] == level) for level in LEVELS
    )
    failed_or_not = FAILED if change.failed else SKIPPED if change.kind == DELETED else PASSED
    status = INVALID if change.problems else failed_or_not
    headline = change.kind if status == SKIPPED else ""
    return JudgedSpec(change.label, change.path, status, errors, warnings, notes, headline)


def findings(change: PlanChange) -> Iterator[Problem]:
    """What is to be said of a plan, with the rule that it meets."""
    for problem in change.problems:
        yield replace(problem, rule="does-not-compile")
    for flip in change.flips:
        if not flip.holds:
            yield Problem(input_place(change, flip.inputs), flip_text(flip, str), rule=LOST[flip.word])
    if change.kind in {NEW, REPAIRED} and change.new and not change.new.fits:
        yield Problem(Location(change.path), "does not fit", rule="does-not-fit")
    for gate in change.failed:
        said = ": ".join(filter(None, (f"meets `{gate}`", causes(change))))
        yield Problem(input_place(change), said, rule="fails-on")
    if change.kind == CHANGED and not change.failed and (said := causes(change)):
        yield Problem(input_place(change), said, rule="totals-change")


def in_repository(problem: Problem, change: PlanChange, tree: str) -> Problem:
    """The problem with the plan's name and a path of the repository: a place in the `tree`, else the plan's file."""
    prefix, where = f"{tree}:", problem.where
    is_inside = where.file.startswith(prefix)
    place = replace(where, file=where.file.removeprefix(prefix)) if is_inside else Location(change.path)
    message = one_line(f"{change.label}: {problem.message}".replace(THIN, " "), LONGEST_FINDING)
    return replace(problem, where=place, message=message, help=one_line(problem.help, LONGEST_FINDING))


def causes(change: PlanChange) -> str:
    """What each input adds or takes away."""
    return "; ".join(cause_texts(change, str))


def input_place(change: PlanChange, inputs: tuple[str, ...] = ()) -> Location:
    """Where the first of some inputs, or of all that changed, is written now; else the plan."""
    changed = [input_change for input_change in change.inputs if not inputs or input_change.path in inputs]
    return next(
        (input_change.new_origin.where for input_change in changed if input_change.new_origin), Location(change.path)
    )


# --- formats and their suffixes ---


def as_findings(write: Callable[[Judgement], str], comparison: Comparison) -> str:
    """What is found of each plan, in a format of lists of problems."""
    return write(judgement(comparison))


PULL_REQUEST_FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    "md": as_markdown,
    "json": as_json,
    **{name: partial(as_findings, write) for name, write in PROBLEM_FORMATS.items()},
}
SUFFIXES = {".md": "md", ".json": "json", ".sarif": "sarif", ".xml": "junit"}


def format_of(file: str) -> str:
    """The format of a file by its name; raises SpecError."""
    suffix = PurePath(file).suffix
    if suffix not in SUFFIXES:
        there_are = ", ".join(f"{end} ({name})" for end, name in SUFFIXES.items())
        raise SpecError([Problem(Location(file), f"no format has the suffix {suffix!r}", f"there are {there_are}")])
    return SUFFIXES[suffix]
