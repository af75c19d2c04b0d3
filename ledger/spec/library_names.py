"""Names of the library as values of a field: editors complete them, and any other text may be a path or a new name."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.spec.library import default_library
from ledger.spec.value_types import Schema
from ledger.spec.values import String

NAMED = "The name of a library part, or a path relative to this file."


@dataclass(frozen=True)
class LibraryName(String):
    """A text that may be the name of a spec of this `kind`."""

    kind: str = ""

    def schema(self) -> Schema:
        """The names of the library as it is now, or any text."""
        return {"anyOf": self.alternatives()}

    def alternatives(self) -> list[Schema]:
        """The two, each with what it is."""
        names = list(default_library().names(self.kind))
        return [{"enum": names, "description": NAMED}, super().schema() | {"description": NAMED}]
