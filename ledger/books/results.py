"""What a compiled plan holds: plain frozen data, the contract between the books and every view of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sympy

    from ledger.books.resources import Resource
    from ledger.model.causes import Cause, HostTransfer, HostWork, Transfer
    from ledger.spec.kernel_classes import KernelClass

Number = int | Fraction | float


@dataclass(frozen=True)
class Account:
    """One leaf of the ledger with its value: `amount` in the resource's unit, per occurrence, `times` a step.

    `formula` is plain text in the form its author wrote (`2*B*S*D*H*E`), `expression` the same in sympy;
    `basis` says by which rule it was posted, with citation. `when` is a phase, or `first..last` moment of a stock.
    """

    cause: Cause
    role: str
    resource: Resource
    when: str
    amount: Number
    times: int
    formula: str
    basis: str
    expression: sympy.Expr = field(repr=False)

    @property
    def account(self) -> str:
        """The name of the account: `unit/component/operation`."""
        return self.cause.account

    @property
    def unit(self) -> str:
        """The unit of its amount: FLOP of what computes, else bytes (B)."""
        return self.resource.unit


@dataclass(frozen=True)
class KernelTime:
    """One kernel or collective: work of one occurrence, and the seconds of one occurrence under each price list.

    `kind` is the class that prices it, or what is sent over which axis; `bound` is what limits it: `compute`, `memory`,
    `network`, `launch`. `calibrated` is False where only a data sheet stands behind `seconds`; `error` is the relative
    error of the fit.
    """

    cause: Cause
    when: str  # forward | backward | recompute | optimizer | step
    kind: KernelClass | Transfer | HostTransfer | HostWork
    times: int
    flops: float
    bytes: float
    payload: float  # bytes sent, for collectives
    seconds: float
    roofline: float
    bound: str
    error: float
    calibrated: bool
    per: str = "micro-batch"  # or "step"
    compute: float = 0.0  # seconds of its FLOPs alone at the data sheet's rate
    exposed: float = 0.0  # seconds of `seconds` that nothing hides (collectives)
    shares: bool = False  # spent on sharing weights between devices, not on what a unit computes

    @property
    def account(self) -> str:
        """The name of the account: `unit/component/operation`."""
        return self.cause.account

    @property
    def open(self) -> float:
        """Seconds of a step in which nothing hides it."""
        return (self.exposed if self.bound == "network" else self.seconds) * self.times


@dataclass(frozen=True)
class Moment:
    """Bytes alive at one moment of a step, by category; `title` says which moment in words."""

    name: str
    title: str
    parts: Mapping[str, int]  # weights, master, gradients, optimizer, cache, activations, logits, workspace, unsharded
    details: tuple[tuple[str, int], ...] = ()  # largest stocks by account

    @property
    def total(self) -> int:
        """Bytes alive at this moment, all categories together."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Outside:
    """Bytes that a device holds beside the tensors of a step, and the measurement or source code that says so."""

    name: str
    bytes: int
    basis: str


@dataclass(frozen=True)
class RoleResult:
    """One kind of device: `stages` it stands for, how many `devices` play it, its memory and its time.

    `reserved` is the peak and all that lies `outside` its tensors.
    """

    name: str
    stages: tuple[int, ...]
    devices: int
    moments: tuple[Moment, ...]  # in the order of a step
    peak: Moment
    reserved: int
    kernels: tuple[KernelTime, ...]
    outside: tuple[Outside, ...] = ()


@dataclass(frozen=True)
class WaterfallPart:
    """One part of the step's waterfall: `seconds` on the critical path, of a transfer or of anything else."""

    name: str
    title: str
    seconds: float
    transfer: bool = False


UNANSWERED = "serve.unanswered"  # the share of arriving requests that a service does not answer as fast
QUEUE, UNDER_LOAD = "serve.queue", "serve.ttft.under_load"  # seconds before a first pass, and to a first token
EXCESS = "serve.excess"  # sequences in flight beyond those that the engine takes at once
UNANSWERED_AT_MOST = 0.001  # of them at most: what the search for the sequences in flight may miss
ENDS = ("low", "high")  # of a total, between which 80 of 100 runs lie
OF_A_RUN = ("time.calendar", "cost.run", "energy.run", "carbon.run")  # what does not run has none of them
OPERATIONS = "operations"  # the name of the check that a run gets anywhere


@dataclass(frozen=True)
class Check:
    """One line of the checklist: `status` is pass, warn or fail; `figure` is printed, `detail` says why."""

    name: str
    title: str
    status: str
    figure: str
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a reviewer reads first. `evidence` is `calibrated`, `partly calibrated` or `uncalibrated`.

    `by_data_sheet` is the share of what its kernels and open transfers take of the step that no measured curve prices.
    """

    fits: bool
    bottleneck: str
    evidence: str
    headline: str
    checks: tuple[Check, ...]
    by_data_sheet: float = 1.0

    @property
    def runs(self) -> bool:
        """Whether the plan can run to its end, so that its days and dollars mean something."""
        return self.fits and not any(check.name == OPERATIONS and check.status == "fail" for check in self.checks)


@dataclass(frozen=True)
class Symbol:
    """A symbol of the formulas: printed name, meaning, value, and the spec path it comes from."""

    name: str
    meaning: str
    value: Number
    path: str
