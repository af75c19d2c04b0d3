"""The kinds of specs: what may stand in each, and the JSON Schema that is published of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ledger.spec.parts import SPEC, TITLE, TITLED, PartOf, ValuesOf, definition_name, header_of, nested_types, spec_type
from ledger.spec.plan import Accelerator, Cluster, Model, Optimizer, Plan, Precision, Price, Stack
from ledger.spec.publication import Publication, Spelling
from ledger.spec.structures import NEEDED, SOURCED, Fields, KeyStated, ListOf, MappingOf, Needed, Row, quantity
from ledger.spec.suite import Suite
from ledger.spec.values import YEAR, Anything, Choice, Constants, Date, Integer, Label, Quantity, String, ValueType

RELATIVE_ERROR = quantity("1", greatest=10)
POSITIVE = Integer(1)
HARDWARE = Fields(
    (
        Row("kind", Choice("cpu", "cuda"), "What kind of device it is."),
        Row("name", String(), "What the device calls itself."),
        Row("memory", Quantity("B"), "Device memory."),
        Row("cache", Quantity("B"), "The last cache before memory."),
        Row("cores", POSITIVE, "Cores of a CPU."),
        Row("threads", POSITIVE, "Threads that measurements ran on."),
        Row("multiprocessors", POSITIVE, "Streaming multiprocessors of a GPU, or its compute units."),
    ),
    further_fields=Label(),
)
WHOLE_FIT = Fields(
    (
        Row("points", POSITIVE, "Measurements in all.", needed=NEEDED),
        Row("error", RELATIVE_ERROR, "Mean absolute relative error: `5.4 %`.", needed=NEEDED),
        Row("parameters", MappingOf(Constants()), "What that fit found: times and bandwidths with units."),
        Row(
            "here",
            RELATIVE_ERROR,
            "The same of that fit on the rows that stand here, where its form is not the one that is fitted to them.",
        ),
        Row(
            "held_out",
            String(),
            "On what the error was found: `shapes of other (n, k) pairs`, or `none: in sample`.",
            needed=NEEDED,
        ),
    )
)
SERIES = Fields(
    (
        Row("what", String(), "The kernel class.", needed=NEEDED),
        Row(
            "whole",
            WHOLE_FIT,
            "Where the rows are a part of what was published: what a fit of the same form over all of it reached.",
        ),
        Row("columns", ListOf(String(), 1, unique=True), "What the numbers of a row are, in order.", needed=NEEDED),
        Row("rows", String(), "A line for each measurement: as many numbers as there are columns.", needed=NEEDED),
    ),
    further_fields=Anything(),
)
EVIDENCE = Fields(
    (
        Row("spec", SPEC.type, SPEC.meaning, needed=NEEDED),
        Row("evidence", TITLED, TITLE, needed=NEEDED),
        Row(SOURCED.key, SOURCED.type, SOURCED.meaning, needed=NEEDED),
        Row("device", String(), "The accelerator that was measured, by its name in the library."),
        Row(
            "origin",
            Fields(
                (
                    Row("date", Date(pattern=YEAR), "When it was measured, or published."),
                    Row("regime", Choice("burst", "sustained"), "Of records that say none."),
                ),
                least=1,
                further_fields=Label(),
            ),
            "What was measured with what: software and versions, method, date, fabric, power limit.",
            needed=NEEDED,
        ),
        Row(
            "hardware",
            HARDWARE,
            "Of `ledger bench`: what the device says of itself, from which an accelerator can be written.",
        ),
        Row(
            "plan",
            Anything(("object", "string")),
            "The plan that records of whole runs share, written out, or its name in the library, or a path from here; "
            "each record sets what is its own.",
        ),
        Row("subject", MappingOf(String()), "Of derivations: the plan that PyTorch judged, by name, model and digest."),
        Row("judged_as", ListOf(String()), "Of derivations: what PyTorch was asked instead of what the plan says."),
        Row(
            "series",
            ListOf(SERIES, 1),
            "Tables of microbenchmarks: what all rows share is said once, and each line of `rows` is one record.",
        ),
        Row(
            "records",
            ListOf(Anything(("object",)), 1, 100_000),
            "One mapping per measurement, whole run (`what: step`), plan that ran or ran out of memory (`what: fit`), "
            "or comparison with PyTorch (`what: derivation`).",
            needed=Needed(unless=KeyStated("series")),
        ),
    ),
    further_fields=Anything(),
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
LIBRARY_PARTS: Mapping[str, type] = {
    header_of(cls).kind: cls for cls in (Accelerator, Cluster, Price, Model, Precision, Optimizer, Stack)
}
# Parts of the library that no plan names: what is known of published runs.
EVIDENCE_PARTS: Mapping[str, type] = {header_of(cls).kind: cls for cls in (Publication, Spelling)}
TYPES: Mapping[str, ValueType] = {
    "plan": ValuesOf(Plan),
    **{kind: PartOf(cls) for kind, cls in {**LIBRARY_PARTS, **EVIDENCE_PARTS}.items()},
    "evidence": EVIDENCE,
    "suite": PartOf(Suite),
}
KINDS = tuple(TYPES)


@cache
def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of spec, complete in itself: the parts it refers to stand in its `$defs`."""
    return json_schema(TYPES[kind])


def json_schema(kind: ValueType) -> dict[str, Any]:
    """The JSON Schema of a document of that type."""
    head = kind.cls if isinstance(kind, PartOf) else None
    root = definition_schema(head) if head else kind.schema()
    title = {"title": header_of(head).title} if head else {}
    classes = [entry for entry in nested_types(kind) if isinstance(entry, type)]
    referred = [cls for cls in classes if cls is not head or cls in list(nested_types(spec_type(cls)))]
    return {
        "$schema": DIALECT,
        **title,
        **root,
        "$defs": {definition_name(cls): definition_schema(cls) for cls in referred},
    }


def definition_schema(cls: type) -> dict[str, Any]:
    """The schema of a part, with its meaning as the description."""
    meaning = header_of(cls).meaning or header_of(cls).title
    return ({"description": meaning} if meaning else {}) | spec_type(cls).schema()
