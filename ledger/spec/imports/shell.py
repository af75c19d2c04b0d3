"""The `--name value` arguments of a shell script or a file of arguments, each with its place; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ledger.spec.expressions import ExpressionError, evaluate
from ledger.spec.problems import Location

WORD = re.compile(r'(?:"(?:[^"\\]|\\.)*"|\'[^\']*\'|\$\(\(.*?\)\)|\$\{[^}]*\}|[^\s"\'#]|(?<=\S)#)+|#.*')
ASSIGNED = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)")
ARITHMETIC = re.compile(r"\$\(\((.*?)\)\)")
NAMED = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


@dataclass(frozen=True)
class Argument:
    """One argument: its name with hyphens, the values up to the next one, and where it stands."""

    name: str
    values: tuple[str, ...]
    where: Location

    @property
    def value(self) -> str:
        """Its first value, empty for a switch."""
        return self.values[0] if self.values else ""


def arguments(text: str, file: str) -> tuple[tuple[Argument, ...], Mapping[str, str]]:
    """Every argument in order, and the variables that the script sets; what it does not set stays as `$NAME`."""
    variables: dict[str, str] = {}
    found: list[Argument] = []
    going = False  # whether a word belongs to the last argument
    for number, line in enumerate(text.splitlines(), 1):
        for word, column in _words(line):
            assigned = ASSIGNED.fullmatch(word)
            if assigned and not assigned[2].startswith("("):
                variables[assigned[1]] = _settled(assigned[2], variables)
            elif word.startswith("--"):
                name, equals, value = word.removeprefix("--").partition("=")
                values = (_settled(value, variables),) if equals else ()
                found.append(Argument(name.replace("_", "-"), values, Location(file, number, column)))
                going = True
            elif not _continues(word):
                going = False
            elif going:
                last = found[-1]
                found[-1] = Argument(last.name, (*last.values, _settled(word, variables)), last.where)
    return tuple(found), variables


def _words(line: str) -> Iterator[tuple[str, int]]:
    """Words outside of comments, with their columns, line continuations left out."""
    for match in WORD.finditer(line):
        word = match[0]
        if word.startswith("#"):
            return
        if word != "\\":
            yield word, match.start() + 1


def _continues(word: str) -> bool:
    """Whether a word is a value, not the end of an array or a command of its own."""
    return word not in {")", "(", "&&", "||", ";", "|", "\\"} and not word.endswith("=(")


def _settled(word: str, variables: Mapping[str, str]) -> str:
    """A word without quotes, variables and sums in place."""
    text = word.strip("\"'").strip("\"'")
    text = NAMED.sub(lambda match: variables.get(match[1] or match[3], match[2] or match[0]), text)
    return ARITHMETIC.sub(lambda match: _sum(match[1], variables) or match[0], text)


def _sum(text: str, variables: Mapping[str, str]) -> str:
    """A sum in shell arithmetic, whose division rounds down; empty where it cannot be known."""
    try:
        return str(evaluate(text.replace("/", "//"), lambda name: int(variables[name])))
    except (ExpressionError, KeyError, ValueError):
        return ""
