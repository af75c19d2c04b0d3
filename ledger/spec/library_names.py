"""Names of the library as values of a field: editors complete them, and any other text may be a path or a new name."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.spec.library import default_library
from ledger.spec.value_types import Schema
from ledger.spec.values import String


@dataclass(frozen=True)
class LibraryName(String):
    """A text that may be the name of a spec of this `kind`."""

    kind: str = ""

    def schema(self) -> Schema:
        """The names of the library as it is now, or any text."""
        return {"anyOf": self.alternatives()}

    def alternatives(self) -> list[Schema]:
        """The two, without descriptions: editors would show those instead of the key's own."""
        return [{"enum": list(default_library().names(self.kind))}, super().schema()]
