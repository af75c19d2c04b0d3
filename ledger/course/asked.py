"""A question as written -> the record of what it asks for: one builder and one row of `ASKS` for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from ledger.course.asks import (
    AccountsAsk,
    ActivationAsk,
    BudgetAsk,
    ChecksAsk,
    CompareAsk,
    DtypeAsk,
    FitAsk,
    InferenceAsk,
    LevelsAsk,
    MomentsAsk,
    Offer,
    OffloadAsk,
    OperationAsk,
    OptimizerAsk,
    PlanAsk,
    RidgeAsk,
    SegmentsAsk,
    SolveAsk,
    StateAsk,
    Step,
    StorageAsk,
    TensorAsk,
)
from ledger.spec import load
from ledger.spec.plan import Accelerator, Optimizer, Plan, Precision
from ledger.spec.problems import Problem, SpecError
from ledger.spec.reader import Node
from ledger.spec.view import View

Loaded = TypeVar("Loaded")


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

    def optimizer(self, view: View, key: str) -> Optimizer:
        """The optimizer at a key."""
        return located(load.load_optimizer, view.text(key), view.node.fields[key])

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
    return StateAsk(
        reader.precision(view), reader.optimizer(view, "optimizer"), count, view.words("parts"), _memory(view)
    )


def _optimizer(view: View, reader: Reader) -> OptimizerAsk:
    return OptimizerAsk(reader.optimizer(view, "name"), view.text("dtype"), view.size("rows"), view.size("columns"))


def _solve(view: View, reader: Reader) -> SolveAsk:
    return SolveAsk(
        reader.precision(view), reader.optimizer(view, "optimizer"), view.size("devices"), reader.accelerator(view)
    )


def _plan(view: View, reader: Reader) -> PlanAsk:
    pairs = {
        name: tuple(str(item.value) for item in node.items) for name, node in view.inner("ratios").node.fields.items()
    }
    ratios = {name: (first, second) for name, (first, second) in pairs.items()}
    return PlanAsk(reader.plan(view), names(view, "totals"), ratios)


def _accounts(view: View, reader: Reader) -> AccountsAsk:
    sums = {
        name: tuple(str(item.value) for item in node.items) for name, node in view.inner("sums").node.fields.items()
    }
    return AccountsAsk(reader.plan(view), sums, names(view, "totals"))


def _budget(view: View, reader: Reader) -> BudgetAsk:
    offers = tuple(
        Offer(reader.accelerator(offer), offer.amount("price", "USD"), offer.text("date"), offer.text("source"))
        for offer in view.each("offers")
    )
    plans = {plan.title: plan for plan in (reader.plan(entry) for entry in view.each("plans"))}
    share = view.amount("mfu", "1")
    per = view.size("tokens_per_parameter")
    return BudgetAsk(
        view.amount("dollars", "USD"),
        share,
        per,
        reader.precision(view),
        reader.optimizer(view, "optimizer"),
        offers,
        plans,
    )


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
    "compare": lambda view, reader: CompareAsk(
        reader.plan(view), reader.changed(view, "changed"), names(view, "totals")
    ),
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
