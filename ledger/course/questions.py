"""What a lecture may hold: chapters, or questions, each of which asks for one thing."""

from __future__ import annotations

from ledger.course.asked import FIGURES, TEXTS, AskOf
from ledger.course.asks import ASKS
from ledger.spec.parts import NAME, SPEC, TITLED, header_of
from ledger.spec.structures import NEEDED, SOURCED, AnyOf, Fields, ListOf, MappingOf, Row
from ledger.spec.values import Flag, Label, String

QUESTION = Fields(
    (
        Row("id", String(pattern="^[a-z0-9_.]+$"), "The name of the question, unique in the lecture.", "id", NEEDED),
        Row("asks", String(least=3), "The question.", "asks", NEEDED),
        Row(
            "expect",
            MappingOf(AnyOf((Label(), Flag()))),
            "Figures and their values; one with decimals holds to half its last digit, one without exactly.",
        ),
        Row("is", FIGURES, "Figures and what one would write for them by hand, over the names of `with`.", "is"),
        Row("with", MappingOf(Label()), "The numbers in the formulas.", "with"),
        Row("printed", String(), "What the notes print, where that differs.", "printed"),
        Row("why", String(), "What is right, and why the other is often seen.", "why"),
        Row("show", TEXTS, "The figures to show; all where not given.", "show"),
        Row(SOURCED.key, SOURCED.type, SOURCED.meaning, "source"),
        *(Row(kind, AskOf(cls), header_of(cls).meaning, kind) for kind, cls in ASKS.items()),
    )
)
LECTURE = Fields(
    (
        Row("spec", SPEC.type, SPEC.meaning, needed=NEEDED),
        Row("lecture", TITLED, "The title of the lecture or of the chapter.", "lecture", NEEDED),
        Row("about", String(), "What it is about, in a sentence or two.", "about"),
        Row(SOURCED.key, SOURCED.type, SOURCED.meaning, "source", NEEDED),
        Row("chapters", ListOf(NAME, 1), "Lectures with questions, in order.", "chapters"),
        Row("questions", ListOf(QUESTION, 1), "The questions of this chapter.", "questions"),
    )
)
