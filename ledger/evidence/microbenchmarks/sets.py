"""Measurements sorted into sets: what one fit is made on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledger import numbers
from ledger.evidence.microbenchmarks.measured import Evidence
from ledger.evidence.microbenchmarks.samples import Record, form_of, priced
from ledger.spec.library import default_library, shown
from ledger.spec.quantities import parse, parse_any
from ledger.spec.reader import Node

POWERED = ("matmul", "grouped", "attention")  # forms whose rate falls at the power limit
REGIMES = ("burst", "sustained")
WITH_MORE = {"matmul": "casting", "attention": "module"}  # forms of a kernel that is timed with others
# Sizes by which a measurement is told from others, in this order.
NAMED = (
    *("m", "n", "k", "batch", "seq", "heads", "head_dim", "tokens", "experts", "top_k"),
    *("groups", "rows", "width", "d_ff", "ranks"),
)
BYTES = "bytes"
UNREAD = "pageable"  # host memory that no training framework copies from


@dataclass(frozen=True)
class Whole:
    """A fit over everything that was published, where only a part of it is carried: its parameters, and its error.

    `here`: its mean absolute error on the part that is carried, where its form is another; 0 where nobody says so.
    """

    points: int
    error: float
    held_out: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    here: float = 0.0

    @property
    def in_sample(self) -> bool:
        """Whether the error is of the samples the fit had seen."""
        return self.held_out.startswith("none")


@dataclass(frozen=True)
class Kind:
    """What the records of a set have in common: a price class and the cases it tells apart.

    `kernel`: which implementation of an optimizer. `module`: the timing has kernels beside the one that is meant.
    """

    what: str
    regime: str
    ranks: int = 0
    head_dim: int = 0
    causal: bool = True
    dtype: str = ""
    kernel: str = ""
    module: bool = False

    @property
    def form(self) -> str:
        """The form that is fitted to such records."""
        form = form_of(self.what)
        return WITH_MORE[form] if self.module else form


@dataclass(frozen=True)
class Series:
    """Records of one kind from one file of evidence on one device."""

    kind: Kind
    device: str
    file: str
    source: str
    records: tuple[Record, ...]
    whole: Whole | None = None


def sets(evidence: Evidence) -> tuple[Series, ...]:
    """One set for each kind of record in a file, in the order of their first records."""
    origin = evidence.header.get("origin")
    stated = str(origin.get("regime", "")) if isinstance(origin, Mapping) else ""
    found: dict[Kind, list[Record]] = {}
    for record in evidence.records:
        if priced(record) and record.get("memory") != UNREAD:
            found.setdefault(kind(record, stated), []).append(record)
    published = dict(_whole(evidence.node, stated))
    return tuple(
        Series(one, evidence.device, _file(evidence.path), evidence.source, tuple(records), published.get(one))
        for one, records in found.items()
    )


def _file(path: Path) -> str:
    """The file as prices cite it: one of the library by its place in the repository."""
    own = path.resolve().parent == default_library().folder("evidence").resolve()
    return f"specs/evidence/{path.name}" if own else shown(path)


def named(record: Record) -> str:
    """A measurement by its operation and its sizes."""
    sizes = [f"{name} {numbers.integer(value)}" for name in NAMED if isinstance(value := record.get(name), int)]
    sizes += [numbers.size(moved)] if isinstance(moved := record.get(BYTES), int) else []
    return ", ".join([*([str(record["operation"])] if "operation" in record else []), *sizes])


def kind(record: Record, stated: str) -> Kind:
    """The kind of a record; `stated` is the regime of its file.

    What nobody states is a burst where power limits the rate, as short timings are.
    """
    what = str(record["what"])
    powered = form_of(what) in POWERED
    regime = str(record.get("regime") or stated)
    return Kind(
        what=what,
        regime=regime if regime in REGIMES else "burst" if powered else "sustained",
        ranks=_whole_number(record, "ranks"),
        head_dim=_whole_number(record, "head_dim"),
        causal=bool(record.get("causal", True)),
        dtype=str(record.get("dtype", "")) if form_of(what) == "attention" else "",
        kernel=str(record.get("kernel", "")),
        module=bool(record.get("module") or record.get("casts")),
    )


def _whole_number(record: Record, name: str) -> int:
    value = record.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


def _whole(document: Node, stated: str) -> Iterator[tuple[Kind, Whole]]:
    """What tables of a file say of the publication that they are a part of."""
    series = document.fields.get("series")
    for table in series.items if series else ():
        if said := table.fields.get("whole"):
            shared = {key: node.value for key, node in table.fields.items()}
            yield kind(shared, stated), _read_whole(said)


def _read_whole(said: Node) -> Whole:
    text = {key: str(node.value) for key, node in said.fields.items()}
    error, here = (float(parse(text[key], "1")) if key in text else 0.0 for key in ("error", "here"))
    given = said.fields["parameters"].fields if "parameters" in said.fields else {}
    parameters = {key: float(parse_any(str(node.value))[0]) for key, node in given.items()}
    return Whole(int(text["points"]), error, text["held_out"], parameters, here)
