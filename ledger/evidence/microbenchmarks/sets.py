"""Measurements sorted into sets: what one fit is made on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ledger import numbers
from ledger.evidence.documents import Evidence, citation
from ledger.evidence.microbenchmarks.records import REGIMES, Record
from ledger.evidence.microbenchmarks.samples import class_of, fitted_form, is_with_others
from ledger.price_forms import PRICE_FORMS, DataSheet
from ledger.spec.kernel_classes import ATTENTION, KernelClass, form_of, number_format
from ledger.spec.plan import Accelerator
from ledger.spec.quantities import parse, parse_any
from ledger.spec.reader import Node

# Sizes by which a measurement is told from others, in this order.
SIZES_IN_NAMES = (
    *("m", "n", "k", "batch", "seq", "heads", "head_dim", "tokens", "experts", "top_k"),
    *("groups", "rows", "width", "d_ff", "ranks"),
)
BYTES = "bytes"
PAGEABLE = "pageable"  # host memory that no training framework copies from


@dataclass(frozen=True)
class PublishedFit:
    """A fit over everything that was published, where only a part of it is carried: its parameters, and its error.

    `here`: its mean absolute error on the part that is carried, where its form is another; 0 where nobody says so.
    `in_sample`: the error is of the samples that the fit had seen.
    """

    points: int
    error: float
    held_out: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    here: float = 0.0
    in_sample: bool = False


@dataclass(frozen=True)
class MeasurementKind:
    """What the records of a set have in common: a kernel class, and the cases that it tells apart.

    `kernel`: which implementation of an optimizer. `with_others`: the timing has kernels beside the one that is meant.
    """

    what: KernelClass
    regime: str
    ranks: int = 0
    head_dim: int = 0
    causal: bool = True
    dtype: str = ""
    kernel: str = ""
    with_others: bool = False

    @property
    def form(self) -> str:
        """The form that is fitted to such records."""
        return fitted_form(self.what, with_others=self.with_others)

    @property
    def price(self) -> tuple[KernelClass, str, int, int]:
        """What tells the price of such records from others: class, regime, ranks, head size."""
        return self.what, self.regime, self.ranks, self.head_dim

    @property
    def number_format(self) -> str:
        """The row of a data sheet's peaks that prices such records; empty where none does."""
        return number_format(self.what, self.dtype or "bf16")

    def data_sheet(self, accelerator: Accelerator) -> DataSheet:
        """What the device's data sheet promises such records; raises KeyError where it has no peak for them."""
        peak = accelerator.peak[self.number_format] if self.number_format else accelerator.vector
        return DataSheet(peak, accelerator.bandwidth, accelerator.multiprocessors)


@dataclass(frozen=True)
class MeasurementSet:
    """Records of one kind from one file of evidence on one device."""

    kind: MeasurementKind
    device: str
    file: str
    source: str
    records: tuple[Record, ...]
    published: PublishedFit | None = None

    @property
    def citation(self) -> str:
        """The publication or the command that measured, and the file, as prices cite them."""
        return f"{self.source} ({self.file})"


def measurement_sets(evidence: Evidence) -> tuple[MeasurementSet, ...]:
    """One set for each kind of record in a file, in the order of their first records."""
    origin = evidence.header.get("origin")
    regime = str(origin.get("regime", "")) if isinstance(origin, Mapping) else ""
    sets: dict[MeasurementKind, list[Record]] = {}
    for record in evidence.microbenchmarks:
        if is_priced(record) and record.get("memory") != PAGEABLE:
            sets.setdefault(_kind(record, regime), []).append(record)
    published = dict(_published_fits(evidence.node, regime))
    origins = (evidence.device, citation(evidence.path), evidence.source)
    return tuple(MeasurementSet(kind, *origins, tuple(records), published.get(kind)) for kind, records in sets.items())


def is_priced(record: Record) -> bool:
    """Whether a price list may have a price of such a record."""
    return bool(form_of(class_of(record)))


def record_name(record: Record) -> str:
    """A measurement by its operation and its sizes."""
    stated = ((name, record.get(name)) for name in SIZES_IN_NAMES)
    sizes = [f"{name} {numbers.integer(value)}" for name, value in stated if isinstance(value, int)]
    sizes += [numbers.size(moved)] if isinstance(moved := record.get(BYTES), int) else []
    return ", ".join([*([str(record["operation"])] if "operation" in record else []), *sizes])


def _kind(record: Record, stated: str) -> MeasurementKind:
    """The kind of a record; `stated` is the regime of its file.

    What nobody states is a burst where power limits the rate, as short timings are.
    """
    what = class_of(record)
    regime = str(record.get("regime") or stated)
    return MeasurementKind(
        what=what,
        regime=regime if regime in REGIMES else "burst" if PRICE_FORMS[form_of(what)].computes else "sustained",
        ranks=_whole_number(record, "ranks"),
        head_dim=_whole_number(record, "head_dim"),
        causal=bool(record.get("causal", True)),
        dtype=str(record.get("dtype", "")) if what.family == ATTENTION else "",
        kernel=str(record.get("kernel", "")),
        with_others=is_with_others(record),
    )


def _whole_number(record: Record, name: str) -> int:
    value = record.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


def _published_fits(document: Node, regime: str) -> Iterator[tuple[MeasurementKind, PublishedFit]]:
    """What tables of a file say of the publication that they are a part of."""
    series = document.fields.get("series")
    for table in series.items if series else ():
        if stated := table.fields.get("whole"):
            shared = {key: node.value for key, node in table.fields.items()}
            yield _kind(shared, regime), _published_fit(stated)


def _published_fit(stated: Node) -> PublishedFit:
    text = {key: str(node.value) for key, node in stated.fields.items()}
    error, here = (float(parse(text[key], "1")) if key in text else 0.0 for key in ("error", "here"))
    given = stated.fields["parameters"].fields if "parameters" in stated.fields else {}
    parameters = {key: float(parse_any(str(node.value))[0]) for key, node in given.items()}
    held_out = text["held_out"]
    return PublishedFit(int(text["points"]), error, held_out, parameters, here, in_sample=held_out.startswith("none"))
