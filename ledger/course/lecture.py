"""A lecture: chapters of questions that the compiler answers, each with the answer that is expected of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ledger.course.asked import Reader
from ledger.course.asks import ASKS
from ledger.course.questions import LECTURE
from ledger.spec.expressions import ExpressionError, ratio
from ledger.spec.faults import Faults, Written
from ledger.spec.library import Library, default_library, read_once
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.quantities import NUMBER, QuantityError, parse_any
from ledger.spec.reader import Node, read
from ledger.spec.sources import Source, exists, open_source
from ledger.spec.structures import Values

LARGEST = 10**60  # of any part of a formula
CLOSE = Fraction(1, 10**9)  # relative; where a formula is compared with a number that went through floats


@dataclass(frozen=True)
class Expected:
    """What a figure must be: a number in its base unit within `tolerance`, a word, or true or false."""

    figure: str
    value: Fraction | str | bool
    text: str
    tolerance: Fraction = Fraction(0)


@dataclass(frozen=True)
class Question:
    """A question and what is known of its answer.

    `formulas` are what one would write by hand, by figure; `printed` is what the notes print where that differs, `why`
    how it comes to differ. `ask` is one of the records of `ledger.course.asks`.
    """

    name: str
    asks: str
    ask: object
    expected: tuple[Expected, ...]
    formulas: Mapping[str, str]
    values: Mapping[str, str]  # of the letters in the formulas, as written
    printed: str
    why: str
    show: tuple[str, ...]  # figures that the page shows; all where empty
    source: str
    where: Location


@dataclass(frozen=True)
class Chapter:
    """Questions about one thing."""

    name: str
    title: str
    about: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Lecture:
    """Chapters in order; `source` is what they are about, `text` the specs as written."""

    name: str
    title: str
    about: str
    source: str
    chapters: tuple[Chapter, ...]
    text: str


def is_lecture(path: str) -> bool:
    """Whether a spec is a lecture; what cannot be read is none, nor is standard input, which is read only once."""
    if path == "-":
        return False
    try:
        return "lecture" in read(_opened(path, default_library()).text, path).fields
    except SpecError:
        return False


def load_lecture(path: str | Path) -> Lecture:
    """The lecture of a file, `REV:path`, or the name of one of the library; raises SpecError."""
    library = default_library()
    source = _opened(str(path), library)
    node, given = _document(source)
    sources = [source]
    if "questions" not in given:
        chapters = node.fields["chapters"].items if "chapters" in given else ()
        sources = [library.find("lecture", str(one.value), one.where, source) for one in chapters]
    return Lecture(
        name=source.name,
        title=given["lecture"],
        about=given.get("about", ""),
        source=given["source"],
        chapters=tuple(_chapter(one) for one in sources),
        text="\n".join(dict.fromkeys(one.text for one in (source, *sources))),
    )


def _opened(path: str, library: Library) -> Source:
    if path in library.names("lecture") and not exists(path):
        return read_once(library.path("lecture", path)).source
    return open_source(path)


def _document(source: Source) -> tuple[Node, Values]:
    """A file whose fields are sound, and their values."""
    try:
        node = read(source.text, source.file)
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text}) from error
    faults: Faults = []
    given: Values = LECTURE.read(Written(node), faults)
    if faults:
        raise SpecError((fault.problem for fault in faults), {source.file: source.text})
    return node, given


def _chapter(source: Source) -> Chapter:
    node, given = _document(source)
    reader = Reader(Path(source.folder))
    entries = zip(_items(node, "questions"), given.get("questions", ()), strict=True)
    try:
        questions = tuple(_question(entry, values, reader, given["source"]) for entry, values in entries)
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text, **error.sources}) from error
    return Chapter(source.name, given["lecture"], given.get("about", ""), questions)


def _question(node: Node, given: Values, reader: Reader, source: str) -> Question:
    kinds = [kind for kind in ASKS if kind in given]
    if len(kinds) != 1:
        message = f"`{given['id']}` asks for {' and '.join(kinds) or 'nothing'}"
        raise SpecError([Problem(node.where, message, f"one of {', '.join(ASKS)}")])
    return Question(
        name=given["id"],
        asks=given["asks"],
        ask=reader.ask(given[kinds[0]]),
        expected=tuple(_expected(node)),
        formulas=given.get("is", {}),
        values=given.get("with", {}),
        printed=given.get("printed", ""),
        why=given.get("why", ""),
        show=given.get("show", ()),
        source=given.get("source", source),
        where=node.where,
    )


def _items(node: Node, key: str) -> tuple[Node, ...]:
    return node.fields[key].items if key in node.fields else ()


def _entries(node: Node, key: str) -> Mapping[str, Node]:
    return node.fields[key].fields if key in node.fields else {}


def _expected(question: Node) -> Iterator[Expected]:
    for figure, node in _entries(question, "expect").items():
        yield stated(figure, node)
    known = {name: _number(node) for name, node in _entries(question, "with").items()}
    for figure, node in _entries(question, "is").items():
        text = str(node.value)
        try:
            value = ratio(text, known.__getitem__, lambda: list(known), LARGEST)
        except ExpressionError as error:
            raise SpecError([Problem(node.where, error.message, error.help)]) from error
        yield Expected(figure, value, text, abs(value) * CLOSE)


def _number(node: Node) -> Fraction:
    try:
        return parse_any(str(node.value))[0]
    except QuantityError as error:
        raise SpecError([Problem(node.where, error.message, error.help)]) from error


def stated(figure: str, node: Node) -> Expected:
    """A value as written. A number with decimals holds to half its last digit, one without exactly."""
    text = str(node.value)
    if isinstance(node.value, bool):
        return Expected(figure, node.value, text)
    try:
        value, _ = parse_any(text)
    except QuantityError:
        return Expected(figure, text, text)
    return Expected(figure, value, text, last_digit(text) / 2)


def last_digit(text: str) -> Fraction:
    """What one step in the last decimal of a written quantity is worth, in its base unit; 0 without decimals."""
    match = NUMBER.fullmatch(text)
    digits, unit = match.groups() if match else ("", "")
    mantissa, _, power = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return parse_any(f"1e{int(power or 0) - decimals} {unit}")[0] if decimals else Fraction(0)
