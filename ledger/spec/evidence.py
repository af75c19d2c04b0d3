"""What an evidence file may hold: measurements with their origin."""

from __future__ import annotations

from ledger.spec.parts import SPEC, TITLE, TITLED
from ledger.spec.structures import NEEDED, SOURCED, Fields, KeyStated, ListOf, MappingOf, Needed, Row, quantity
from ledger.spec.values import YEAR, Anything, Choice, Constants, Date, Integer, Label, Quantity, String

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
    others=Label(),
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
    others=Anything(),
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
                others=Label(),
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
    others=Anything(),
)
