"""Problems -> the text a user reads: place and message, the source line, a caret, a help line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ledger.spec.problems import MOST_PROBLEMS, Location, Problem
from ledger.spec.reader import LARGEST_TEXT, lines
from ledger.spec.sources import read_bounded

EXCERPT_WIDTH = 160  # characters of a source line that are shown


def render_problems(problems: Iterable[Problem], sources: Mapping[str, str] | None = None) -> str:
    """The problems as `file:line:column: message`, their line with a caret, and `help:`; blank lines between."""
    return "\n\n".join(problem_paragraphs(problems, sources))


def problem_paragraphs(problems: Iterable[Problem], sources: Mapping[str, str] | None = None) -> list[str]:
    """The text of each problem, of which the first line is what is wrong; of very many, how many more there are."""
    told = tuple(problems)
    shown = told[:MOST_PROBLEMS]
    texts = sources or {}
    split = {
        file: lines(texts[file] if file in texts else _file_text(file))
        for file in {problem.where.file for problem in shown}
    }
    rest = [f"and {len(told) - MOST_PROBLEMS} further problems"] if len(told) > MOST_PROBLEMS else []
    return [*(_problem(problem, split[problem.where.file]) for problem in shown), *rest]


def _problem(problem: Problem, text: Sequence[str]) -> str:
    parts = [str(problem), *_excerpt(problem.where, text)]
    if problem.help:
        parts.append(f"help: {problem.help}")
    return "\n".join(parts)


def _excerpt(where: Location, found: Sequence[str]) -> list[str]:
    if where.line > len(found) or not found[where.line - 1].strip():
        return []
    line = found[where.line - 1]
    if not line.replace("\t", " ").isprintable():
        return []
    start = max(0, where.column - EXCERPT_WIDTH // 2) if len(line) > EXCERPT_WIDTH else 0
    shown = line[start : start + EXCERPT_WIDTH]
    lead = "".join("\t" if character == "\t" else " " for character in shown[: where.column - 1 - start])
    return [f"  {shown}", f"  {lead}^"]


def _file_text(file: str) -> str:
    """The text of a file, as far as it is one."""
    try:
        return read_bounded(file, LARGEST_TEXT)[:LARGEST_TEXT].decode(errors="replace")
    except (OSError, ValueError):
        return ""
