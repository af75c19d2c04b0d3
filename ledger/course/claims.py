"""What course notes claim, number by number: the question that answers it, or why it is no matter of accounting.

A claim about a figure is compared with it. Where the two differ, the question has to say so: what the notes print is
then corrected, and what nothing says is a contradiction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ledger.course.answers import Expected, Figure, compare_figure, stated
from ledger.spec.near import nearest
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import Node
from ledger.spec.structures import NEEDED, AnyOf, Fields, MappingOf, Row, Values
from ledger.spec.values import Flag, Label, String

ANSWERED, CORRECTED, OUTSIDE, CONTRADICTED = "answered", "corrected", "outside", "contradicted"
CLAIM = Fields(
    (
        Row("says", AnyOf((MappingOf(AnyOf((Label(), Flag())), 1), Label())),
            "What the notes print: of figures of the answer, each by its name, or in words.", "says", NEEDED),
        Row("question", String(), "The question that answers it.", "question"),
        Row("of", String(least=3), "What it is about, where the question does not say it.", "of"),
        Row("outside", String(least=3), "Why it is no matter of accounting, where no question answers it.", "outside"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """What the notes print: `figures` of an answer, with the values that they print, or else `words`.

    `question` names what answers it, empty where `outside` says why nothing does; `of` what it is about.
    """

    words: str
    figures: tuple[Expected, ...]
    question: str
    of: str
    outside: str
    where: Location


def claims(nodes: Sequence[Node], values: Iterable[Values], questions: Sequence[str]) -> tuple[Claim, ...]:
    """The claims as written about questions of these names; raises SpecError with all that name none of them."""
    pairs = tuple(zip(nodes, values, strict=True))
    if problems := [problem for node, claim in pairs for problem in _problems(node, claim, questions)]:
        raise SpecError(problems)
    return tuple(
        Claim(
            words="" if node.fields["says"].fields else claim["says"],
            figures=tuple(stated(figure, value) for figure, value in node.fields["says"].fields.items()),
            question=claim.get("question", ""),
            of=claim.get("of", ""),
            outside=claim.get("outside", ""),
            where=node.where,
        )
        for node, claim in pairs
    )


def _problems(node: Node, claim: Values, questions: Sequence[str]) -> Iterator[Problem]:
    question = claim.get("question", "")
    if bool(question) == ("outside" in claim):
        both = "both a question and why none answers it" if question else "neither a question nor why none answers it"
        yield Problem(node.where, f"this claim has {both}", "`question: run.days`, or `outside:` and why")
    elif not question and "of" not in claim:
        yield Problem(node.where, "this claim does not say what it is about", "`of:`, as no question says it")
    elif question and question not in questions:
        named = node.fields["question"].where
        yield Problem(named, f"there is no question `{question}`", nearest(question, questions))
    elif node.fields["says"].fields and not question:
        yield Problem(node.fields["says"].where, "figures are those of a question", "say it in words")


def outcome(claim: Claim, printed: str, figures: Mapping[str, Figure]) -> str:
    """How the lecture meets a claim, by what its question prints of the notes and the figures of the answer."""
    if claim.outside:
        return OUTSIDE
    agrees = all(compare_figure(expected, figures.get(expected.figure)).holds for expected in claim.figures)
    if claim.figures and agrees:
        return ANSWERED
    return CORRECTED if printed else CONTRADICTED if claim.figures else ANSWERED


def contradictions(claim: Claim, printed: str, figures: Mapping[str, Figure]) -> Iterator[Problem]:
    """Figures that the answer does not have, and a claim that it contradicts without saying so."""
    unknown = [expected for expected in claim.figures if expected.figure not in figures]
    for expected in unknown:
        yield Problem(
            expected.where,
            f"`{claim.question}` has no figure `{expected.figure}`",
            nearest(expected.figure, [*figures]),
        )
    if not unknown and outcome(claim, printed, figures) == CONTRADICTED:
        printed_figures = ", ".join(f"{expected.figure} {expected.text}" for expected in claim.figures)
        wrong = f"the notes print {printed_figures}; `{claim.question}` answers otherwise"
        yield Problem(claim.where, wrong, "`printed:` of the question says what the notes print, `why:` how that comes")


def counted(outcomes: Iterable[str]) -> str:
    """How many claims are answered, corrected, outside, in a sentence."""
    numbers = Counter(outcomes)
    parts = [f"{numbers[name]} {name}" for name in (ANSWERED, CORRECTED, OUTSIDE, CONTRADICTED) if numbers[name]]
    return f"{sum(numbers.values())} numbers and sentences of the notes: {', '.join(parts)}."
