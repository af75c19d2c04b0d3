"""Publications of measured runs: what their text states beside their tables, and how their words are spelt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from ledger.spec.parts import PartHeader
from ledger.spec.structures import ListOf, MappingOf
from ledger.spec.values import Anything, Choice, String

ALLOCATED, RESERVED, DRIVER, UNSTATED = CONVENTIONS = ("allocated", "reserved", "driver", "unstated")
PATHS = MappingOf(Anything())


@dataclass(frozen=True)
class SomeRuns:
    """Runs of a publication that were made in another way than its others, and how; the source says which."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Runs that the source says were made in another way.", sourced=True)

    where: Annotated[
        Mapping[str, Any],
        MappingOf(Anything(), least=1),
        "By column what a row says of them: a text in which `*` stands for anything, true or false, a list of such, "
        "or a bound such as `>= 128`.",
    ]
    stack: Annotated[str, String(), "Their stack."] = ""
    software: Annotated[str, String(), "What ran, where no stack on file is of it: their rows are skipped."] = ""
    plan: Annotated[Mapping[str, Any], PATHS, "Paths of the plan, where a row leaves them open."] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class Publication:
    """The statements of a publication about all its runs; a row's own columns win over them."""

    spec: ClassVar[PartHeader] = PartHeader(
        title="A publication of measured runs: what its text states beside its tables", kind="publication", inline=False
    )

    name: str
    title: str
    stack: Annotated[str, String(), "The stack that ran, by its name in the library."] = ""
    memory: Annotated[str, Choice(*CONVENTIONS), "Which bytes it prints, where a row does not say."] = UNSTATED
    rank: Annotated[str, Choice("worst", "first", "last"), "Of which rank, where a row does not say."] = "worst"
    plan: Annotated[Mapping[str, Any], PATHS, "Paths of the plan that it states, where a row leaves them open."] = (
        field(default_factory=dict)
    )
    devices: Annotated[
        Mapping[str, str], MappingOf(String()), "The device that a name of hardware stands for on its machines."
    ] = field(default_factory=dict)
    runs: Annotated[
        tuple[SomeRuns, ...], "Runs that were made in another way; the first that a row is one of holds."
    ] = ()
    source: str = ""


@dataclass(frozen=True)
class Spelling:
    """The words of a column of published runs: what each spelling means.

    A spelling that is not among them means what `marks` say: whatever has one of its words in the text, if nothing
    else has. `qualifiers` are what may stand behind a spelling in brackets.
    """

    spec: ClassVar[PartHeader] = PartHeader(
        title="How publications spell what a column says", kind="spelling", inline=False
    )

    name: str
    title: str
    spellings: Annotated[
        Mapping[str, Any],
        MappingOf(Anything(), least=1),
        "What each spelling means; null in a meaning takes a path away.",
    ]
    marks: Annotated[
        Mapping[str, tuple[str, ...]],
        MappingOf(ListOf(String(), 1)),
        "Words that give a meaning away, where no other meaning's stand beside them.",
    ] = field(default_factory=dict)
    qualifiers: Annotated[Mapping[str, Any], PATHS, "What a word in brackets behind a spelling adds to it."] = field(
        default_factory=dict
    )
    source: str = ""
