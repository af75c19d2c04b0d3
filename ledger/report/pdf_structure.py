"""What a tagged PDF must say of its tables that WeasyPrint leaves out: which way a header goes, and how it is found.

ISO 32000-1: an element with an identifier stands in the tree of identifiers (table 322), a header says whether it is
that of a column or of a row (table 349).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HEADER, HEAD = "/TH", "/THead"


def complete_structure(_: Any, pdf: Any) -> None:
    """Puts the identifiers of a PDF's headers into a tree, and their scopes into their attributes."""
    import pydyf

    elements = [one for one in pdf.objects if _is(one, "Type", "/StructElem")]
    by_reference = {one.reference: one for one in elements}
    identified = sorted((one["ID"].string, one) for one in elements if "ID" in one)
    names = pydyf.Array(item for _, one in identified for item in (one["ID"], one.reference))
    tree = pydyf.Dictionary({"Names": names})
    if identified:
        root = next(one for one in pdf.objects if _is(one, "Type", "/StructTreeRoot"))
        # At one node a name tree has no limits: its names are sorted, however many they are.
        pdf.add_object(tree)
        root["IDTree"] = tree.reference
    for one in elements:
        if one["S"] == HEADER:
            above = {outer["S"] for outer in _above(one, by_reference)}
            one["A"]["Scope"] = "/Column" if HEAD in above else "/Row"


def _is(given: Any, key: str, value: str) -> bool:
    return isinstance(given, dict) and given.get(key) == value


def _above(element: Any, by_reference: dict[Any, Any]) -> Iterator[Any]:
    """The elements around one, as far as its table."""
    while (element := by_reference.get(element["P"])) and element["S"] != "/Table":
        yield element
