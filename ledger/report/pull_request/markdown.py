"""A comparison as a comment of a pull request: the first line decides, a line a plan, tables folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ledger import __version__
from ledger.numbers import THIN
from ledger.report.escape import code, html_code, html_text
from ledger.report.movements import BYTES, DOLLARS, SECONDS
from ledger.report.pull_request.plan_changes import (
    Comparison,
    PlanChange,
)
from ledger.report.pull_request.wording import (
    NONE,
    Mark,
    amount_text,
    fits_text,
    free_text,
    head_line,
    reason_text,
)

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
        lines += [*folded_problems(comparison), *folded_inputs(comparison), *folded_totals(comparison), ""]
    versions = f"{code(comparison.old)} → {code(comparison.new)}, by ledger {__version__}"
    return cut("\n".join((*lines, versions)).replace(THIN, " ")) + f"\n{MARKER}\n"


def failures(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Each gate that trips, with the plans on which it does."""
    for gate in comparison.gates:
        if plans := [change.label for change in comparison.failed(gate)]:
            yield gate, some(plans, code)


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
        shown = [f"<li>{html_code(str(one))}{help_text(one.help)}</li>" for one in problems[:MOST_PROBLEMS]]
        yield from folded(f"Problems, {len(problems)}", f"<ul>{''.join(shown)}</ul>")


def folded_inputs(comparison: Comparison) -> Iterator[str]:
    """The inputs that changed, each once."""
    rows = tuple(input_rows(comparison))
    if rows:
        cells = [
            (html_code(row.path), html_code(row.old), html_code(row.new), html_code(row.where), some(row.plans))
            for row in rows[:MOST_INPUTS]
        ]
        more = [(f"{len(rows) - MOST_INPUTS} more", "", "", "", "")] if rows[MOST_INPUTS:] else []
        heads = ("input", "before", "after", "where", "plans")
        yield from folded(f"Inputs that changed, {len(rows)}", html_table(heads, (*cells, *more)))


def folded_totals(comparison: Comparison) -> Iterator[str]:
    """Every total that counts, before and after."""
    heads = ("plan", "cost", "time", "memory reserved")
    yield from folded("Before and after", html_table(heads, map(totals_cells, comparison.changes)))


def totals_cells(change: PlanChange) -> Iterator[str]:
    """A plan by its path, and its measures before and after."""
    yield html_code(change.path)
    for measure in (DOLLARS, SECONDS, BYTES):
        totals = [outcome.totals if outcome else {} for outcome in (change.old, change.new)]
        keys = [measure.key(one) for one in totals]
        said = [measure.written(one[key]) if key else NONE for one, key in zip(totals, keys, strict=True)]
        yield html_text(" → ".join(dict.fromkeys(said)))


def input_rows(comparison: Comparison) -> Iterator[InputRow]:
    """What changed, those first that the most plans have."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for change in comparison.changes:
        for one in change.inputs:
            origin = one.new_origin or one.old_origin
            where = comparison.place(origin.where) if origin else NONE
            found.setdefault((one.path, one.old, one.new, where), []).append(change.label)
    for key, plans in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
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


def some(names: Sequence[str], mark: Mark = html_code) -> str:
    """The first names, and how many more there are."""
    more = [f"{len(names) - MOST_NAMES} more"] if names[MOST_NAMES:] else []
    return ", ".join([*map(mark, names[:MOST_NAMES]), *more])


def help_text(text: str) -> str:
    """What to type instead, where a problem says so."""
    return f"<br>{html_code(text)}" if text else ""


def bold(text: str) -> str:
    """What must not be overlooked."""
    return f"**{text}**"


def cut(text: str) -> str:
    """A comment that a service takes: of what is beyond its limit, tables go first, then lines."""
    if len(text) <= LONGEST:
        return text
    lines = [line for line in text.splitlines() if not line.startswith(("<details>", "</details>", "<table>", "<ul>"))]
    kept = "\n".join(lines)[:LONGEST].rpartition("\n")[0]
    return f"{kept}\n\nTables are left out, as all of it is too long for a comment: `ledger ci --json` has them."
