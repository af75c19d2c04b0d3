"""What an import gives: the text of a spec, and what of the file is not in it."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.spec.problems import Problem


@dataclass(frozen=True)
class Imported:
    """A spec's text; `notes` are settings that were left out or had to be taken otherwise, each in its place."""

    text: str
    notes: tuple[Problem, ...] = ()
