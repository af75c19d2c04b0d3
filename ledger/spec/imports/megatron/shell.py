"""The `--name value` arguments of a shell script or a file of arguments, each with its place; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ledger.spec.expressions import ExpressionError, evaluate
from ledger.spec.problems import Location, Problem, SpecError

# What is not closed within so many characters is not opened: each opening would be looked for to the end of the line.
WORD = re.compile(
    r'(?:"(?:[^"\\]|\\.){0,500}+"|\'[^\']{0,500}+\'|\$\(\(.{0,300}?\)\)|\$\([^)]{0,300}+\)|\$\{[^}]{0,300}+\}|`[^`]{0,300}+`'
    r"|[^\s\"'#]|(?<=\S)#)+|#.*"
)
ASSIGNED = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
ENDS = re.compile(r"[();&|]+|\d*(?:<|>|&>).*")  # of an array or of a command
INSIDE = re.compile(r"(?:^|\s)--\w")  # arguments within quotes: a variable of them, or a command for another shell
ARITHMETIC = re.compile(r"\$\(\((.{0,300}?)\)\)")
LONGEST_VALUE = 20_000  # characters of a word with its variables in place: each may hold two of the one before it
LONGEST_SCRIPT = 200_000  # characters
NAMED = re.compile(r"\$(?:\{(\w{1,300})(?::-([^}]{0,300}+))?\}|(\w+))")
OPENS, CLOSES = ("if", "case", "for", "while", "until", "select"), ("fi", "esac", "done")  # a branch or a loop


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
    """Every argument in order, and the variables that the script sets; what it does not set stays as `$NAME`.

    So does what it sets to several values in branches. Raises SpecError for a script that is too long.
    """
    if len(text) > LONGEST_SCRIPT:
        message = f"a script of more than {LONGEST_SCRIPT:,} characters"
        raise SpecError([Problem(Location(file), message, "give the lines that hold the arguments")])
    variables = _Variables()
    given: list[tuple[str, list[str], Location]] = []
    takes_values, line = False, 0  # whether a word belongs to the last argument
    for word, where in _words(text, file):
        begins, line = where.line != line, where.line
        assigned = ASSIGNED.fullmatch(word)
        if word in (*OPENS, *CLOSES) and (begins or not takes_values):
            variables.depth = max(0, variables.depth + (1 if word in OPENS else -1))
            takes_values = False
        elif assigned:
            variables.assign(assigned[1], _expanded(assigned[3], variables), appended=bool(assigned[2]))
            takes_values = False
        elif word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            values = [_expanded(value, variables)] if equals else []
            given.append((name.replace("_", "-"), values, where))
            takes_values = True
        elif ENDS.fullmatch(word):
            takes_values = False
        elif takes_values:
            given[-1][1].append(_expanded(word, variables))
    return tuple(Argument(name, tuple(values), where) for name, values, where in given), variables


class _Variables(dict[str, str]):
    """Variables with the values that a script gives them; one that branches give different values has none."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0  # of branches around what is read
        self.unsure: set[str] = set()

    def assign(self, name: str, value: str, *, appended: bool) -> None:
        """Sets a variable, or appends to it; one that is too long has no value either."""
        if appended:
            value = self.get(name, "") + value
        elif not self.depth:
            self.unsure.discard(name)
        if len(value) > LONGEST_VALUE or (self.depth and self.get(name, value) != value):
            self.unsure.add(name)
            self.pop(name, None)
        if name not in self.unsure:
            self[name] = value


def _words(text: str, file: str) -> Iterator[tuple[str, Location]]:
    """Words with their places: what opens and closes an array or ends a command stands apart, comments are left out."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() in ('"', "'"):  # the end of a text over several lines
            yield ")", Location(file, number)
        for match in WORD.finditer(line):
            if match[0].startswith("#"):
                break
            if match[0] != "\\":
                for word, column in _without_brackets(match[0], match.start() + 1):
                    yield word, Location(file, number, column)


def _without_brackets(word: str, column: int) -> Iterator[tuple[str, int]]:
    """A word without the brackets of an array and the end of a command that it is written together with."""
    assigned = ASSIGNED.fullmatch(word)
    if assigned and assigned[3].startswith("("):
        yield "(", column
        word, column = assigned[3][1:], column + assigned.start(3) + 1
    quoted = assigned[3] if assigned else word
    if quoted[:1] in ('"', "'") and INSIDE.search(quoted.strip("\"'")):
        start = column + len(word) - len(quoted) + 1
        yield from ((match[0], start + match.start()) for match in WORD.finditer(quoted.strip("\"'")))
        yield ")", start
        return
    bare = word.rstrip(";&|")
    over = min(bare.count(")") - bare.count("("), len(bare) - len(bare.rstrip(")")))
    bare = bare[:-over] if over > 0 else bare
    if bare:
        yield bare, column
    if bare != word:
        yield ")", column + len(bare)


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    """A word without quotes, variables and sums in place; one that they would make too long stays as it is written."""
    text = word.strip("\"'").strip("\"'")
    if len(text) > LONGEST_VALUE:
        return text
    put_in = sum(len(variables.get(match[1] or match[3], "")) for match in NAMED.finditer(text))
    if len(text) + put_in > LONGEST_VALUE:
        return text
    text = NAMED.sub(lambda match: variables.get(match[1] or match[3], match[2] or match[0]), text)
    return ARITHMETIC.sub(lambda match: _sum(match[1], variables) or match[0], text)


def _sum(text: str, variables: Mapping[str, str]) -> str:
    """A sum in shell arithmetic, whose division drops what is left; empty where it cannot be known."""
    if "/" in text and "-" in text:  # of what is negative, dropping is not rounding down
        return ""
    try:
        return str(evaluate(text.replace("/", "//"), lambda name: int(variables[name])))
    except (ExpressionError, KeyError, ValueError):
        return ""
