"""What each mechanism is worth: the error on the runs that the library carries, when it is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ledger.books.closed import close
from ledger.books.repricing import step_time
from ledger.lab.published.carried import Carried, carried, table
from ledger.lab.published.scores import COUNTED, Shelf, measured_step, planned
from ledger.model.schedule import roles
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from ledger.spec.plan import Plan
from ledger.spec.policies import Kernels, Stack

LIMITED = "h100-sxm-500w"
ONE_OPERATION = 18e-6  # seconds on the host, where a kernel were launched by a single one


@dataclass(frozen=True)
class Left:
    """The error without one mechanism: mean over publications of the mean absolute and the mean signed one."""

    without: str
    errors: Mapping[str, Sequence[float]]

    @property
    def absolute(self) -> float:
        """Each publication weighs the same."""
        return fmean(fmean(map(abs, found)) for found in self.errors.values())

    @property
    def signed(self) -> float:
        """Below nought where runs are predicted too fast."""
        return fmean(fmean(found) for found in self.errors.values())


def _stack(change: Callable[[Stack], Stack]) -> Callable[[Carried], Plan]:
    return lambda one: replace(one.plan, stack=change(one.plan.stack))


def _kernels(change: Callable[[Kernels], Kernels]) -> Callable[[Carried], Plan]:
    return lambda one: replace(one.plan, kernels=change(one.plan.kernels))


def _full_power(one: Carried) -> Plan:
    limited = one.plan.accelerator.name == LIMITED
    return replace(one.plan, accelerator=load_accelerator("h100-sxm")) if limited else one.plan


def _usual_network(one: Carried) -> Plan:
    cluster = one.made.plan["cluster"]
    if "scaleout" not in cluster:
        return one.plan
    usual = {key: value for key, value in cluster.items() if key != "scaleout"}
    return planned(replace(one.made, plan={**one.made.plan, "cluster": usual}), (), default_library(), Shelf())[0]


# Each mechanism, and the plan of a run without it.
MECHANISMS: Mapping[str, Callable[[Carried], Plan]] = {
    "nothing": lambda one: one.plan,
    "the level of matmuls that PyTorch calls": _stack(lambda stack: replace(stack, matmul_level=1.0)),
    "multiprocessors that transfers hold": _stack(lambda stack: replace(stack, transfer_channels=0, overlap_tax=0.0)),
    "operations on the host beside each kernel": _stack(
        lambda stack: replace(stack, launch=min(stack.launch, ONE_OPERATION))
    ),
    "hosts that compare collectives": _stack(lambda stack: replace(stack, check=0.0)),
    "gradients of a sharded optimizer summed after backward": _stack(
        lambda stack: replace(
            stack, overlap=replace(stack.overlap, data=stack.overlap.data.replace("replicas", "backward"))
        )
    ),
    "copies of gathered weights": _stack(lambda stack: replace(stack, unshard="views")),
    "attention in Triton": _kernels(
        lambda kernels: replace(kernels, attention="flash") if kernels.attention == "triton" else kernels
    ),
    "norms in several kernels": _kernels(lambda kernels: replace(kernels, norm="fused")),
    "prices of a device held to 500 W": _full_power,
    "networks that publications state": _usual_network,
}


def without(name: str, runs: Sequence[Carried]) -> Left:
    """The errors of these runs without one mechanism."""
    found: dict[str, list[float]] = {}
    for one in runs:
        plan = MECHANISMS[name](one)
        runs_the_same = plan.kernels == one.plan.kernels and plan.stack.unshard == one.plan.stack.unshard
        books = one.books if runs_the_same else close(plan, roles(plan))
        error = step_time(plan, books) / (measured_step(one.row) or 1.0) - 1
        found.setdefault(one.row.source_id, []).append(error)
    return Left(name, found)


def counted() -> tuple[Carried, ...]:
    """The carried runs whose step is scored."""
    return tuple(
        one
        for one in carried(table(), default_library())
        if not one.made.unpriced and one.row.score_time == COUNTED and measured_step(one.row) is not None
    )


def lines() -> Iterator[str]:
    """A line for each mechanism: both errors over all publications, and the publications that it moves."""
    runs = counted()
    whole = without("nothing", runs)
    yield f"{len(runs)} runs of {len(whole.errors)} publications, each weighing the same"
    for name in MECHANISMS:
        left = whole if name == "nothing" else without(name, runs)
        moved = ", ".join(
            f"{source} {fmean(map(abs, whole.errors[source])):.1%} -> {fmean(map(abs, errors)):.1%}"
            for source, errors in left.errors.items()
            if abs(fmean(map(abs, errors)) - fmean(map(abs, whole.errors[source]))) > 0.005
        )
        yield f"without {name}: {left.absolute:.1%}, signed {left.signed:+.1%}" + (f" ({moved})" if moved else "")
