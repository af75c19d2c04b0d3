"""What is to be measured: cases, the sizes a device allows, and how long a case may take. Data alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.lab.bench.rig import Rig

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Limits:
    """What decides which cases there are: the sort of device, its memory and last cache in bytes, how many there are.

    `dtypes` are those it multiplies in, `quick` a suite for a first look.
    """

    sort: str  # cpu | cuda
    memory: int
    cache: int
    devices: int
    dtypes: tuple[str, ...]
    quick: bool = False


@dataclass(frozen=True)
class Case:
    """One measurement: the row of the table that makes it, the kernel class, and what tells it from its like."""

    kind: str
    what: str
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def record(self) -> dict[str, Any]:
        """The record of this case before anything is measured."""
        return {"what": self.what, **self.keys}


@dataclass(frozen=True)
class Measured:
    """A case with what was found, or with the `error` that it could not run."""

    case: Case
    result: Result

    @property
    def failed(self) -> bool:
        """Whether it could not run."""
        return "error" in self.result


@dataclass(frozen=True)
class Kind:
    """One kind of measurement: which cases a device is given, and how a number of them is measured, one by one."""

    name: str
    cases: Callable[[Limits], Iterator[Case]]
    measure: Callable[[Sequence[Case], Rig], Iterator[Measured]]
