"""YAML text -> nodes, each value and key with its place. Scalars follow the YAML 1.2 core schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import yaml

from ledger.spec.problems import MOST_PROBLEMS, Location, Problem, SpecError

Scalar = bool | int | float | str | None
LARGEST_TEXT = 1_000_000  # bytes of a text; the longest real spec has a hundredth of it
DEEPEST_NESTING = 40
MOST_VALUES = 50_000  # of a document; the longest real one has a thirtieth of them
LONGEST_KEY = 1000  # letters
LONGEST_INTEGER = 40  # digits; any count in a training run has fewer
LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
# Also of direction, without width at the start of a file, letters that are drawn as nothing, and tags.
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\u3164\ufeff\uffa0\ud800-\udfff\U000e0000-\U000e007f]"
)
BREAKS = re.compile("[\t\n\u2028\u2029]")
BLOCKS = (">", "|")  # styles of a text below its key, which ends in a line break unless `-` follows
IN_LINES = ("rows",)  # keys whose text is lines; any other value is one line
TAB_INDENT = re.compile(r"[ ]*\t[ \t]*(?=[^\s#])")

# YAML 1.2.2, section 10.3.2.
CONSTANTS: Mapping[str, Scalar] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
INTEGER = re.compile(r"[-+]?[0-9]+")
OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True, eq=False)
class Node:
    """A value with its place; `keys` holds the place of each key of a mapping. A node is equal to itself alone."""

    value: Scalar | tuple[Node, ...] | Mapping[str, Node]
    where: Location
    keys: Mapping[str, Location] = field(default_factory=dict)

    @property
    def fields(self) -> Mapping[str, Node]:
        """The entries of a mapping; none for any other value."""
        return self.value if isinstance(self.value, Mapping) else {}

    @property
    def items(self) -> tuple[Node, ...]:
        """The entries of a list; none for any other value."""
        return self.value if isinstance(self.value, tuple) else ()

    def plain(self) -> object:
        """The value without places: dicts, lists and scalars."""
        if isinstance(self.value, Mapping):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, tuple) else self.value

    def within(self, fields: Mapping[str, Node], keys: Mapping[str, Location]) -> Node:
        """The mapping with these entries put into it, or over those it has."""
        return Node({**self.fields, **fields}, self.where, {**self.keys, **keys})

    def without_key(self, key: str) -> Node:
        """The mapping as if the key had never been written."""
        fields = {name: node for name, node in self.fields.items() if name != key}
        return Node(fields, self.where, {name: place for name, place in self.keys.items() if name != key})


def as_node(value: Any, where: Location) -> Node:
    """A plain value of scalars, lists and mappings as a node, all of it in one place."""
    if isinstance(value, Mapping):
        return Node({key: as_node(item, where) for key, item in value.items()}, where, dict.fromkeys(value, where))
    return Node(tuple(as_node(item, where) for item in value) if isinstance(value, list | tuple) else value, where)


def read(text: str, file: str) -> Node:
    """The mapping that a spec's text holds; raises SpecError with every problem of its form."""
    node = read_value(text, Location(file))
    if not isinstance(node.value, Mapping):
        help_text = "write `key: value` lines, the first `spec: ledger/1`"
        raise SpecError([Problem(node.where, "a spec is a mapping", help_text)])
    return node


@lru_cache(maxsize=64)
def read_again(text: str, file: str) -> Node:
    """The mapping of a text that many plans read, such as a part of the library, cached; raises SpecError."""
    return read(text, file)


def read_value(text: str, start: Location) -> Node:
    """Any YAML value, its places counted from `start`; raises SpecError."""
    problems = list(islice(_text_problems(text, start), MOST_PROBLEMS))
    if problems:
        raise SpecError(problems)
    composer = _Composer(start)
    try:
        node = composer.document(yaml.parse(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        raise SpecError([*composer.problems, _syntax_problem(error, text, start)]) from error
    if composer.problems:
        raise SpecError(composer.problems)
    return node


def lines(text: str) -> list[str]:
    """The lines as YAML counts them."""
    return LINE_BREAK.split(text)


def _text_problems(text: str, start: Location) -> Iterator[Problem]:
    if len(text.encode()) > LARGEST_TEXT:
        message = f"more than {LARGEST_TEXT // 1_000_000} MB of text"
        yield Problem(start, message, "a spec is a few pages; is this the right file?")
        return
    if not text.strip():
        yield Problem(start, "the file is empty", "`ledger init` writes a first spec")
    for number, line in enumerate(lines(text)):
        if tab := TAB_INDENT.match(line):
            where = _location_within(start, number, tab.group().index("\t"))
            yield Problem(where, "a tab in the indentation", "YAML indents with spaces")


def _location_within(start: Location, line: int, column: int) -> Location:
    return Location(start.file, start.line + line, column + (start.column if line == 0 else 1))


def _syntax_problem(error: yaml.YAMLError, text: str, start: Location) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark, description = error.problem_mark, error.problem
        last = lines(text)[-1]
        at_end = mark.line > text.count("\n") and bool(last)  # libyaml ends a text behind its last line
        place = (mark.line - 1, len(last) - 1) if at_end else (mark.line, mark.column)
        context = f" ({error.context})" if error.context else ""
        help_text = "quote text that holds `: `" if description and description.startswith("mapping values") else ""
        return Problem(_location_within(start, *place), f"not valid YAML: {description}{context}", help_text)
    position = getattr(error, "position", 0)
    before = lines(text.encode()[:position].decode(errors="replace"))
    where = _location_within(start, len(before) - 1, len(before[-1]))
    return Problem(where, "a control character", "a spec is plain text in UTF-8")


class _Composer:
    """Turns the parser's events into nodes; what the spec language refuses is collected in `problems`."""

    def __init__(self, start: Location) -> None:
        self.start = start
        self.problems: list[Problem] = []
        self.refused: set[str] = set()
        self.values = 0

    def document(self, events: Iterator[yaml.Event]) -> Node:
        root = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self.problems.append(Problem(self.place(event), "a second document", "one file holds one spec"))
                    break
                root = self.node(next(events), events, 1)
        if root is None:
            raise SpecError([Problem(self.start, "the file is empty", "`ledger init` writes a first spec")])
        return root

    def node(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int, key: str | None = None) -> Node:
        where = self.place(event)
        self.refuse_indirection(event, where)
        text = getattr(event, "value", None)
        self.refuse_controls(text, where)
        if isinstance(event, yaml.ScalarEvent) and key not in IN_LINES:
            text = event.value.rstrip("\n") if event.style in BLOCKS else event.value
            self.refuse_breaks(text, where)
        self.values += 1
        if self.values > MOST_VALUES:
            message = f"more than {MOST_VALUES} values"
            raise SpecError([Problem(where, message, "a spec is a few pages; cut it in parts")])
        if depth > DEEPEST_NESTING:
            raise SpecError([Problem(where, f"nested more than {DEEPEST_NESTING} levels deep", "a spec has about six")])
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(where, events, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(where, events, depth)
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
            return Node(self.scalar(event.value, where), where)
        return Node(text, where)

    def mapping(self, where: Location, events: Iterator[yaml.Event], depth: int) -> Node:
        fields: dict[str, Node] = {}
        keys: dict[str, Location] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            place = self.place(event)
            key = self.key(event, events, depth)
            value = self.node(next(events), events, depth + 1, key)
            if key in fields:
                self.refuse_each(
                    f"`{key}` stands twice", place, f"it stands first in line {keys[key].line}; keep one of them"
                )
            elif key is not None:
                fields[key], keys[key] = value, place
        return Node(fields, where, keys)

    def sequence(self, where: Location, events: Iterator[yaml.Event], depth: int) -> Node:
        items = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self.node(event, events, depth + 1))
        return Node(tuple(items), where)

    def key(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> str | None:
        where = self.place(event)
        if not isinstance(event, yaml.ScalarEvent):
            self.node(event, events, depth + 1)
            self.refuse_each("a key that is no text", where, "a key is one word")
            return None
        self.refuse_indirection(event, where)
        self.refuse_controls(event.value, where)
        self.refuse_breaks(event.value, where)
        if len(event.value) > LONGEST_KEY:
            self.refuse("a key longer than any name", where, "a key is one word")
            return None
        if event.value == "<<" and event.implicit[0]:
            self.refuse("a merge key", where, "`base: NAME` takes a named part and overrides single values")
            return None
        return str(event.value)

    def scalar(self, text: str, where: Location) -> Scalar:
        if text in CONSTANTS:
            return CONSTANTS[text]
        if NO_NUMBER.fullmatch(text):
            self.refuse_each(f"`{text}` is no value of a spec", where, "leave out what is not known")
            return None
        if INTEGER.fullmatch(text) or OTHER_BASE.fullmatch(text):
            if len(text) <= LONGEST_INTEGER:
                return int(text, 10 if INTEGER.fullmatch(text) else 0)
        elif not FLOAT.fullmatch(text):
            return text
        elif math.isfinite(float(text)):
            return float(text)
        self.refuse_each("a number beyond reason", where, "no size of a training run is that large")
        return None

    def refuse_controls(self, text: object, where: Location) -> None:
        """Escapes within quotes can write what a terminal or a page would obey instead of showing."""
        if isinstance(text, str) and CONTROLS.search(text):
            self.refuse("a control character", where, "a spec is plain text in UTF-8")

    def refuse_breaks(self, text: object, where: Location) -> None:
        """A title or a name of several lines would be several lines wherever it is printed."""
        if isinstance(text, str) and BREAKS.search(text):
            self.refuse("a line break or a tab in a value", where, "`>-` before a text joins its lines into one")

    def refuse_indirection(self, event: yaml.Event, where: Location) -> None:
        if isinstance(event, yaml.AliasEvent):
            self.refuse("an alias", where, "write the value out, or name a part with `base: NAME`")
        elif getattr(event, "anchor", None) is not None:
            self.refuse("an anchor", where, "write the value out, or name a part with `base: NAME`")
        if getattr(event, "tag", None) is not None:
            self.refuse("a tag", where, "a spec holds plain text, numbers, lists and mappings")

    def refuse_each(self, message: str, where: Location, help_text: str) -> None:
        """Raises SpecError once there are more problems than anyone reads."""
        self.problems.append(Problem(where, message, help_text))
        if len(self.problems) > MOST_PROBLEMS:
            raise SpecError(self.problems)

    def refuse(self, construct: str, where: Location, help_text: str) -> None:
        if construct not in self.refused:
            self.refused.add(construct)
            self.problems.append(Problem(where, f"{construct}, which specs do not use", help_text))

    def place(self, event: yaml.Event) -> Location:
        mark = event.start_mark
        return _location_within(self.start, mark.line, mark.column) if mark is not None else self.start
