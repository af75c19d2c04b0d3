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
    listed = tuple(problems)
    printed = listed[:MOST_PROBLEMS]
    texts = sources or {}
    split = {
        file: lines(texts[file] if file in texts else _file_text(file))
        for file in {problem.where.file for problem in printed}
    }
    further = [f"and {len(listed) - MOST_PROBLEMS} further problems"] if len(listed) > MOST_PROBLEMS else []
    return [*(_problem_text(problem, split[problem.where.file]) for problem in printed), *further]


def _problem_text(problem: Problem, text: Sequence[str]) -> str:
    parts = [str(problem), *_excerpt(problem.where, text)]
    if problem.help:
        parts.append(f"help: {problem.help}")
    return "\n".join(parts)


def _excerpt(where: Location, text_lines: Sequence[str]) -> list[str]:
    if where.line > len(text_lines) or not text_lines[where.line - 1].strip():
        return []
    line = text_lines[where.line - 1]
    if not line.replace("\t", " ").isprintable():
        return []
    start = max(0, where.column - EXCERPT_WIDTH // 2) if len(line) > EXCERPT_WIDTH else 0
    excerpt = line[start : start + EXCERPT_WIDTH]
    lead = "".join("\t" if character == "\t" else " " for character in excerpt[: where.column - 1 - start])
    return [f"  {excerpt}", f"  {lead}^"]


def _file_text(file: str) -> str:
    """The text of a file, as far as it is one."""
    try:
        return read_bounded(file, LARGEST_TEXT)[:LARGEST_TEXT].decode(errors="replace")
    except (OSError, ValueError):
        return ""
