"""A lecture: chapters of questions that the compiler answers, each with the answer that is expected of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ledger.course.asked import ASKS, Reader, names
from ledger.spec.expressions import ExpressionError, ratio
from ledger.spec.library import Library, default_library, read_once
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.quantities import NUMBER, QuantityError, parse_any
from ledger.spec.reader import Node, read
from ledger.spec.sources import Source, exists, open_source
from ledger.spec.validate import findings
from ledger.spec.view import View

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
    view = View(_document(source))
    if view.has("questions"):
        sources = [source]
    else:
        chapters = view.inner("chapters").node.items
        sources = [library.find("lecture", str(node.value), node.where, source) for node in chapters]
    whole = View(_document(sources[0]))
    return Lecture(
        name=source.name,
        title=view.text("lecture"),
        about=view.text("about"),
        source=view.text("source", whole.text("source")),
        chapters=tuple(_chapter(one) for one in sources),
        text="\n".join(dict.fromkeys(one.text for one in (source, *sources))),
    )


def _opened(path: str, library: Library) -> Source:
    if path in library.names("lecture") and not exists(path):
        return read_once(library.folder("lecture") / f"{path}.yaml").source
    return open_source(path)


def _document(source: Source) -> Node:
    """A file that its schema allows."""
    try:
        node = read(source.text, source.file)
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text}) from error
    problems = [finding.problem for finding in findings(node, "lecture")]
    if problems:
        raise SpecError(problems, {source.file: source.text})
    return node


def _chapter(source: Source) -> Chapter:
    view = View(_document(source))
    reader = Reader(Path(source.folder))
    try:
        questions = tuple(_question(entry, reader, view.text("source")) for entry in view.each("questions"))
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text, **error.sources}) from error
    return Chapter(source.name, view.text("lecture"), view.text("about"), questions)


def _question(view: View, reader: Reader, source: str) -> Question:
    kinds = [kind for kind in ASKS if view.has(kind)]
    if len(kinds) != 1:
        message = f"`{view.text('id')}` asks for {' and '.join(kinds) or 'nothing'}"
        raise SpecError([Problem(view.node.where, message, f"one of {', '.join(ASKS)}")])
    return Question(
        name=view.text("id"),
        asks=view.text("asks"),
        ask=ASKS[kinds[0]](view.inner(kinds[0]), reader),
        expected=tuple(_expected(view)),
        formulas=names(view, "is"),
        values=names(view, "with"),
        printed=view.text("printed"),
        why=view.text("why"),
        show=view.words("show"),
        source=view.text("source", source),
        where=view.node.where,
    )


def _expected(view: View) -> Iterator[Expected]:
    for figure, node in view.inner("expect").node.fields.items():
        yield stated(figure, node)
    known = {name: _number(node) for name, node in view.inner("with").node.fields.items()}
    for figure, node in view.inner("is").node.fields.items():
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
