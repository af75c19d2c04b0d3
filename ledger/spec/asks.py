"""What a question of a lecture may ask for: one frozen record, one builder and one row of `ASKS` for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from ledger.spec import load
from ledger.spec.plan import Accelerator, Plan, Precision
from ledger.spec.problems import Problem, SpecError
from ledger.spec.reader import Node
from ledger.spec.view import View

Loaded = TypeVar("Loaded")


# --- operations and tensors ---------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One operation: an einsum of `left` and `right` (roles), or `flops` for each element `over` some dims."""

    einsum: str = ""
    name: str = ""
    over: tuple[str, ...] = ()
    into: tuple[str, ...] = ()  # dims of the result; those of `over` where empty
    flops: int = 1
    left: str = "activation"
    right: str = "weight"


@dataclass(frozen=True)
class OperationAsk:
    """Operations in a row. A size is a number, or the name of another dim of the same size."""

    steps: tuple[Step, ...]
    sizes: Mapping[str, int | str]
    dtype: str
    accelerator: Accelerator | None = None


@dataclass(frozen=True)
class ActivationAsk:
    """A nonlinearity over (rows x columns), spelt out in its operators and as the one kernel that runs them."""

    kind: str
    elements: int
    precision: Precision
    accelerator: Accelerator


@dataclass(frozen=True)
class TensorAsk:
    """So many tensors of one shape; `memory` is a device's, to be compared with."""

    shape: Mapping[str, int]
    dtype: str
    copies: int = 1
    memory: int | None = None


@dataclass(frozen=True)
class DtypeAsk:
    """A number format."""

    name: str


@dataclass(frozen=True)
class RidgeAsk:
    """An accelerator's rate in a dtype over its bandwidth."""

    accelerator: Accelerator
    dtype: str


# --- state --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateAsk:
    """Bytes of state of so many parameters; `memory` is a device's, to be compared with `parts` of the state."""

    precision: Precision
    optimizer: str
    parameters: int = 1
    parts: tuple[str, ...] = ()
    memory: int | None = None


@dataclass(frozen=True)
class OptimizerAsk:
    """What an optimizer keeps for one matrix, per element."""

    name: str
    dtype: str
    rows: int
    columns: int


@dataclass(frozen=True)
class OffloadAsk:
    """Optimizer states in host memory: what that frees, and what the host link then carries each step."""

    state: StateAsk
    accelerator: Accelerator


@dataclass(frozen=True)
class SolveAsk:
    """The largest model whose state fits `devices` of a kind: the closed form, inverted."""

    precision: Precision
    optimizer: str
    devices: int
    accelerator: Accelerator


# --- plans --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanAsk:
    """Totals of a compiled plan by the names they go by here, and ratios of two."""

    plan: Plan
    totals: Mapping[str, str]
    ratios: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class LevelsAsk:
    """Plans by the headroom policy that each is to leave free."""

    plans: Mapping[str, Plan]


@dataclass(frozen=True)
class CompareAsk:
    """Totals of a plan, and of the same plan with something changed."""

    plan: Plan
    changed: Mapping[str, Plan]
    totals: Mapping[str, str]


@dataclass(frozen=True)
class AccountsAsk:
    """Matmul FLOPs of the forward pass per token and occurrence, summed over accounts."""

    plan: Plan
    sums: Mapping[str, tuple[str, ...]]
    totals: Mapping[str, str]


@dataclass(frozen=True)
class MomentsAsk:
    """What is alive at each moment of a step."""

    plan: Plan


@dataclass(frozen=True)
class ChecksAsk:
    """Lines of plans' checklists whose names begin with `only`."""

    plans: Mapping[str, Plan]
    only: str = ""


@dataclass(frozen=True)
class FitAsk:
    """The largest model of one shape that really fits, by depth, beside the bound that counts only state."""

    plan: Plan
    others: Mapping[str, Plan]


@dataclass(frozen=True)
class SegmentsAsk:
    """Layers recomputed in segments: what is kept and what is run again, by the length of a segment."""

    plan: Plan


@dataclass(frozen=True)
class StorageAsk:
    """Weights and states written to storage at so many bytes per second; `restart` in seconds."""

    plan: Plan
    bandwidth: float


@dataclass(frozen=True)
class InferenceAsk:
    """Prefill and decoding on one device, with `context` tokens in the cache, for several batch sizes."""

    plan: Plan
    context: int
    batches: tuple[int, ...]


@dataclass(frozen=True)
class Offer:
    """An accelerator with the price of an hour of it, and where and when that was asked."""

    accelerator: Accelerator
    price: float
    date: str
    source: str


@dataclass(frozen=True)
class BudgetAsk:
    """What an amount of money trains: the model for which `tokens_per_parameter` tokens are just paid for."""

    dollars: float
    mfu: float
    tokens_per_parameter: int
    precision: Precision
    offers: tuple[Offer, ...]
    plans: Mapping[str, Plan] = field(default_factory=dict)


# --- builders -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """Reads the parts that a question names; `folder` is that of its file."""

    folder: Path
    plans: dict[tuple[str, ...], Plan] = field(default_factory=dict)

    def plan(self, view: View, more: tuple[str, ...] = ()) -> Plan:
        """The plan at `plan`, with the overrides at `set` and further ones; each is read once."""
        changes = (*(str(item.value) for item in view.inner("set").node.items), *more)
        name = view.text("plan")
        key = (name, *changes)
        if key not in self.plans:
            path = str(self.folder / name) if name.endswith((".yaml", ".yml")) else name
            self.plans[key] = located(lambda given: load.load_plan(given, changes), path, view.node.fields["plan"])
        return self.plans[key]

    def changed(self, view: View, key: str) -> dict[str, Plan]:
        """The plan under each of several named lists of overrides."""
        lists = view.inner(key).node.fields
        return {name: self.plan(view, tuple(str(item.value) for item in node.items)) for name, node in lists.items()}

    def precision(self, view: View) -> Precision:
        """The precision at `precision`."""
        return located(load.load_precision, view.text("precision"), view.node.fields["precision"])

    def accelerator(self, view: View) -> Accelerator:
        """The accelerator at `accelerator`."""
        return located(load.load_accelerator, view.text("accelerator"), view.node.fields["accelerator"])


def located(read: Callable[[str], Loaded], name: str, node: Node) -> Loaded:
    """What `read` gives; a name that it does not know is a problem in the place that names it."""
    try:
        return read(name)
    except SpecError as error:
        moved = (
            Problem(node.where, problem.message, problem.help) if problem.where.file == name else problem
            for problem in error.problems
        )
        raise SpecError(moved, error.sources) from error


def texts(view: View, key: str) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(str(item.value) for item in view.inner(key).node.items)


def names(view: View, key: str) -> dict[str, str]:
    """A mapping of texts."""
    return {name: str(node.value) for name, node in view.inner(key).node.fields.items()}


def whole(value: object) -> int:
    """A count, also as it is written with an exponent."""
    return int(Fraction(str(value)))


def _operation(view: View, reader: Reader) -> OperationAsk:
    steps = tuple(
        Step(
            einsum=step.text("einsum"),
            name=step.text("name"),
            over=tuple(step.text("over").split()),
            into=tuple(step.text("into").split()),
            flops=step.size("flops", 1),
            left=step.text("left", "activation"),
            right=step.text("right", "weight"),
        )
        for step in view.each("steps")
    )
    sizes = {
        name: node.value if isinstance(node.value, str) else whole(node.value)
        for name, node in view.inner("sizes").node.fields.items()
    }
    device = reader.accelerator(view) if view.has("accelerator") else None
    return OperationAsk(steps, sizes, view.text("dtype", "bf16"), device)


def _activation(view: View, reader: Reader) -> ActivationAsk:
    return ActivationAsk(view.text("kind"), view.size("elements"), reader.precision(view), reader.accelerator(view))


def _tensor(view: View, _: Reader) -> TensorAsk:
    shape = {name: whole(node.value) for name, node in view.inner("shape").node.fields.items()}
    return TensorAsk(shape, view.text("dtype"), view.size("copies", 1), _memory(view))


def _memory(view: View) -> int | None:
    return view.whole("memory", "B") if view.has("memory") else None


def _state(view: View, reader: Reader) -> StateAsk:
    count = view.whole("parameters", "parameters", 1)
    return StateAsk(reader.precision(view), view.text("optimizer"), count, texts(view, "parts"), _memory(view))


def _optimizer(view: View, _: Reader) -> OptimizerAsk:
    return OptimizerAsk(view.text("name"), view.text("dtype"), view.size("rows"), view.size("columns"))


def _solve(view: View, reader: Reader) -> SolveAsk:
    return SolveAsk(reader.precision(view), view.text("optimizer"), view.size("devices"), reader.accelerator(view))


def _plan(view: View, reader: Reader) -> PlanAsk:
    pairs = {name: tuple(str(item.value) for item in node.items) for name, node in view.inner("ratios").node.fields.items()}
    ratios = {name: (first, second) for name, (first, second) in pairs.items()}
    return PlanAsk(reader.plan(view), names(view, "totals"), ratios)


def _accounts(view: View, reader: Reader) -> AccountsAsk:
    sums = {name: tuple(str(item.value) for item in node.items) for name, node in view.inner("sums").node.fields.items()}
    return AccountsAsk(reader.plan(view), sums, names(view, "totals"))


def _budget(view: View, reader: Reader) -> BudgetAsk:
    offers = tuple(
        Offer(reader.accelerator(offer), offer.amount("price", "USD"), offer.text("date"), offer.text("source"))
        for offer in view.each("offers")
    )
    plans = {plan.title: plan for plan in (reader.plan(entry) for entry in view.each("plans"))}
    share = view.amount("mfu", "1")
    per = view.size("tokens_per_parameter")
    return BudgetAsk(view.amount("dollars", "USD"), share, per, reader.precision(view), offers, plans)


def _inference(view: View, reader: Reader) -> InferenceAsk:
    batches = tuple(whole(item.value) for item in view.inner("batches").node.items)
    return InferenceAsk(reader.plan(view), view.size("context"), batches)


ASKS: Mapping[str, Callable[[View, Reader], Any]] = {
    "operation": _operation,
    "activation": _activation,
    "tensor": _tensor,
    "dtype": lambda view, _: DtypeAsk(view.text("name")),
    "ridge": lambda view, reader: RidgeAsk(reader.accelerator(view), view.text("dtype")),
    "state": _state,
    "optimizer": _optimizer,
    "offload": lambda view, reader: OffloadAsk(_state(view, reader), reader.accelerator(view)),
    "solve": _solve,
    "totals": _plan,
    "compare": lambda view, reader: CompareAsk(reader.plan(view), reader.changed(view, "changed"), names(view, "totals")),
    "accounts": _accounts,
    "levels": lambda view, reader: LevelsAsk(reader.changed(view, "levels")),
    "moments": lambda view, reader: MomentsAsk(reader.plan(view)),
    "checks": lambda view, reader: ChecksAsk(reader.changed(view, "plans"), view.text("only")),
    "fit": lambda view, reader: FitAsk(reader.plan(view), reader.changed(view, "others")),
    "segments": lambda view, reader: SegmentsAsk(reader.plan(view)),
    "storage": lambda view, reader: StorageAsk(reader.plan(view), view.amount("bandwidth", "B/s")),
    "inference": _inference,
    "budget": _budget,
}
