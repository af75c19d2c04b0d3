"""A lecture: chapters of questions that the compiler answers, each with the answer that is expected of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ledger.course.answers import AnswerContent, Expected, Figure, Outcome, expected
from ledger.course.asks import Find, Sought
from ledger.course.claims import Claim, claims
from ledger.course.questions import ABOUT, FORMS, LECTURE, SUBJECTS
from ledger.spec.faults import Faults, StatedValue
from ledger.spec.library import Library, default_library, read_once
from ledger.spec.named_parts import PartLoader
from ledger.spec.plan import Accelerator, Plan
from ledger.spec.problems import Location, Problem, SpecError, collect_results
from ledger.spec.reader import Node, read_again
from ledger.spec.sources import Source, exists, open_source
from ledger.spec.structures import Values


@dataclass(frozen=True)
class About:
    """The source of figures: a plan, with an input that is solved for, a device, records of subjects, numbers.

    Without `figures`, all figures of its records are shown.
    """

    plan: Plan | None
    find: Find | None
    accelerator: Accelerator | None
    records: Mapping[str, object]
    values: Mapping[str, str]
    figures: Mapping[str, Sought]


@dataclass(frozen=True)
class Cases:
    """The cases of a question, by name; `against` is the case that the others are compared with.

    `best` is the figure that chooses one, the largest where `most`; `then` are figures over those of all cases.
    """

    by_name: Mapping[str, About]
    against: str
    best: str
    most: bool
    then: Mapping[str, Sought]


@dataclass(frozen=True)
class Question:
    """A question, the sources of its figures, and the expected answer.

    `formulas` are what one would write by hand, by figure; `printed` is what the notes print where that differs, `why`
    how it comes to differ. `table`: moments, or checks whose lines begin with one of `only`; `curve`: two figures.
    """

    name: str
    asks: str
    about: About
    cases: Cases | None
    table: str
    only: tuple[str, ...]
    curve: tuple[str, ...]
    expected: tuple[Expected, ...]
    formulas: Mapping[str, str]
    values: Mapping[str, str]  # of the letters in the formulas, as written
    printed: str
    why: str
    show: tuple[str, ...]  # figures that the page shows; all where empty
    right: tuple[str, ...]  # figures that stand beside what the notes print; the first where empty
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
    """Chapters in order, and what the notes print; `source` is what they are about, `text` the specs as written."""

    name: str
    title: str
    about: str
    source: str
    chapters: tuple[Chapter, ...]
    text: str
    claims: tuple[Claim, ...] = ()


def is_lecture(path: str) -> bool:
    """Whether a spec is a lecture; what cannot be read is none, nor is standard input, which is read only once."""
    if path == "-":
        return False
    try:
        return "lecture" in read_again(_open(path, default_library()).text, path).fields
    except SpecError:
        return False


def load_lecture(path: str | Path) -> Lecture:
    """The lecture of a file, `REV:path`, or the name of one of the library; raises SpecError."""
    library = default_library()
    source = _open(str(path), library)
    node, values = _read_document(source)
    sources = [source]
    if "questions" not in values:
        chapters = node.fields["chapters"].items if "chapters" in values else ()
        sources = [library.find("lecture", str(chapter.value), chapter.where, source) for chapter in chapters]
    chapters_read = tuple(map(_chapter, sources))
    asked = [question.name for chapter in chapters_read for question in chapter.questions]
    nodes = node.fields["claims"].items if "claims" in values else ()
    try:
        all_claims = claims(nodes, values.get("claims", ()), asked)
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text}) from error
    return Lecture(
        name=source.name,
        title=values["lecture"],
        about=values.get("about", ""),
        source=values["source"],
        chapters=chapters_read,
        claims=all_claims,
        text="\n".join(dict.fromkeys(part.text for part in (source, *sources))),
    )


def _open(path: str, library: Library) -> Source:
    if path in library.names("lecture") and not exists(path):
        return read_once(library.path("lecture", path)).source
    return open_source(path)


def _read_document(source: Source) -> tuple[Node, Values]:
    """A file whose fields are sound, and their values."""
    try:
        node = read_again(source.text, source.file)
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text}) from error
    faults: Faults = []
    values: Values = LECTURE.read(StatedValue(node), faults)
    if faults:
        raise SpecError((fault.problem for fault in faults), {source.file: source.text})
    return node, values


def _chapter(source: Source) -> Chapter:
    node, stated = _read_document(source)
    reader = PartLoader(Path(source.folder))
    nodes = node.fields["questions"].items if "questions" in node.fields else ()
    entries = zip(nodes, stated.get("questions", ()), strict=True)
    try:
        questions = tuple(_question(entry, values, reader, stated["source"]) for entry, values in entries)
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text, **error.sources}) from error
    return Chapter(source.name, stated["lecture"], stated.get("about", ""), questions)


def _question(node: Node, stated: Values, reader: PartLoader, source: str) -> Question:
    general = _general_form(node, stated)
    about = _about(reader, {}, general)
    return Question(
        name=stated["id"],
        asks=stated["asks"],
        about=about,
        cases=_cases(node, general, reader),
        table=general.get("table", ""),
        only=general.get("only", ()),
        curve=general.get("curve", ()),
        expected=tuple(expected(node)),
        formulas=stated.get("is", {}),
        values=stated.get("with", {}),
        printed=stated.get("printed", ""),
        why=stated.get("why", ""),
        show=stated.get("show", ()),
        right=stated.get("right", ()),
        source=stated.get("source", source),
        where=node.where,
    )


def _general_form(node: Node, stated: Values) -> Values:
    """A question in its general form; one that asks for nothing, or for two things at once, is a problem."""
    forms = [name for name in FORMS if name in stated]
    about = [*forms, *(name for name in (*SUBJECTS, "plan") if name in stated)]
    asks = {"figures", "table", "cases"} & {*stated}
    if (not about and not asks) or (len(about) > 1 and (forms or not asks)):
        message = f"`{stated['id']}` asks for {' and '.join(about) or 'nothing'}"
        raise SpecError([Problem(node.where, message, f"one of {', '.join((*SUBJECTS, *FORMS, 'plan'))}")])
    if about == ["plan"] and not asks:
        message = f"`{stated['id']}` asks nothing of its plan"
        raise SpecError([Problem(node.where, message, "name totals: `figures: {days: napkin.days}`")])
    of_form = stated[forms[0]] if forms else {}
    return {**stated, **of_form, "with": {**stated.get("with", {}), **of_form.get("with", {})}}


def _cases(node: Node, stated: Values, reader: PartLoader) -> Cases | None:
    if "cases" not in stated:
        return None
    names, best = tuple(stated["cases"]), stated.get("most") or stated.get("least") or ""
    if (against := stated.get("against", "")) and against not in names:
        raise SpecError(
            [Problem(node.fields["against"].where, f"there is no case `{against}`", f"one of {', '.join(names)}")]
        )
    makers = (partial(_about, reader, stated, case) for case in stated["cases"].values())
    abouts = dict(zip(names, collect_results(makers), strict=True))
    return Cases(abouts, against, best, "most" in stated, stated.get("then", {}))


def _about(reader: PartLoader, of_question: Values, of_case: Values) -> About:
    """The sources of figures of a question, or of a case, which has the fields of its question beside its own."""
    stated = {row.attribute: of_question[row.attribute] for row in ABOUT if row.attribute in of_question} | of_case
    changes = (*of_question.get("set", ()), *of_case.get("set", ()))
    records = {name: reader.loaded(stated[name]) for name in SUBJECTS if name in stated}
    return About(
        plan=reader.plan(stated["plan"], changes) if "plan" in stated else None,
        find=stated.get("find"),
        accelerator=reader.loaded(stated.get("accelerator")),
        records=records,
        values={**of_question.get("with", {}), **of_case.get("with", {})},
        figures=stated.get("figures", {}),
    )


@dataclass(frozen=True)
class Answer:
    """A question with its answer, and how that compares with what was expected."""

    question: Question
    found: AnswerContent
    outcomes: tuple[Outcome, ...]

    @property
    def holds(self) -> bool:
        """Whether every expectation holds."""
        return all(outcome.holds for outcome in self.outcomes)

    @property
    def figures(self) -> Mapping[str, Figure]:
        """The figures by name, of several of one name the first."""
        return {figure.name: figure for figure in reversed(self.found.figures)}

    def figure(self, name: str) -> Figure | None:
        """The figure of that name."""
        return self.figures.get(name)
