"""What each mechanism is worth: the error on the runs that the library carries, when it is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ledger.books.compiled_roles import compile_roles
from ledger.lab.score.library_runs import LibraryRun, errors_by_source, scored_runs
from ledger.lab.score.plan_cache import PlanCache
from ledger.model.schedule import roles
from ledger.spec.library import default_library
from ledger.spec.load import load_accelerator
from ledger.spec.plan import Kernels, Plan, Stack

LIMITED = "h100-sxm-500w"
ONE_OPERATION = 18e-6  # seconds on the host, where a kernel were launched by a single one
Ablation = Callable[[LibraryRun], Plan]  # the plan of a run without one mechanism


@dataclass(frozen=True)
class AblationErrors:
    """The error without one mechanism: mean over publications of the mean absolute and the mean signed one."""

    without: str
    errors: Mapping[str, Sequence[float]]

    @property
    def absolute(self) -> float:
        """Each publication weighs the same."""
        return fmean(map(self.absolute_of, self.errors))

    @property
    def signed(self) -> float:
        """Below nought where runs are predicted too fast."""
        return fmean(map(fmean, self.errors.values()))

    def absolute_of(self, source: str) -> float:
        """The mean absolute error on one publication."""
        return fmean(map(abs, self.errors[source]))


def _with_stack(change: Callable[[Stack], Stack]) -> Ablation:
    return lambda run: replace(run.plan, stack=change(run.plan.stack))


def _with_kernels(change: Callable[[Kernels], Kernels]) -> Ablation:
    return lambda run: replace(run.plan, kernels=change(run.plan.kernels))


def _at_full_power(run: LibraryRun) -> Plan:
    limited = run.plan.accelerator.name == LIMITED
    return replace(run.plan, accelerator=load_accelerator("h100-sxm")) if limited else run.plan


def _on_usual_network(run: LibraryRun) -> Plan:
    cluster = run.made.plan["cluster"]
    if "scaleout" not in cluster:
        return run.plan
    usual = {key: value for key, value in cluster.items() if key != "scaleout"}
    plan, _ = PlanCache(default_library()).plan(replace(run.made, plan={**run.made.plan, "cluster": usual}))
    return plan


# Each mechanism, and the plan of a run without it.
MECHANISMS: Mapping[str, Ablation] = {
    "nothing": lambda run: run.plan,
    "the level of matmuls that PyTorch calls": _with_stack(lambda stack: replace(stack, matmul_level=1.0)),
    "multiprocessors that transfers hold": _with_stack(
        lambda stack: replace(stack, transfer_channels=0, overlap_tax=0.0)
    ),
    "operations on the host beside each kernel": _with_stack(
        lambda stack: replace(stack, launch=min(stack.launch, ONE_OPERATION))
    ),
    "gradients of a sharded optimizer summed after backward": _with_stack(
        lambda stack: replace(
            stack, overlap=replace(stack.overlap, data=stack.overlap.data.replace("replicas", "backward"))
        )
    ),
    "copies of gathered weights": _with_stack(lambda stack: replace(stack, unshard="views")),
    "attention in Triton": _with_kernels(
        lambda kernels: replace(kernels, attention="flash") if kernels.attention == "triton" else kernels
    ),
    "norms in several kernels": _with_kernels(lambda kernels: replace(kernels, norm="fused")),
    "prices of a device held to 500 W": _at_full_power,
    "networks that publications state": _on_usual_network,
}


def without(name: str, runs: Sequence[LibraryRun]) -> AblationErrors:
    """The errors of these runs without one mechanism."""

    def error(run: LibraryRun) -> float:
        plan = MECHANISMS[name](run)
        same_program = plan.kernels == run.plan.kernels and plan.stack.unshard == run.plan.stack.unshard
        return run.time_error(plan, run.books if same_program else compile_roles(plan, roles(plan)))

    return AblationErrors(name, errors_by_source(runs, error))


def ablation_lines() -> Iterator[str]:
    """A line for each mechanism: both errors over all publications, and the publications that it moves."""
    runs = scored_runs()
    whole = without("nothing", runs)
    yield f"{len(runs)} runs of {len(whole.errors)} publications, each weighing the same"
    for name in MECHANISMS:
        left = whole if name == "nothing" else without(name, runs)
        moved = ", ".join(
            f"{source} {whole.absolute_of(source):.1%} -> {left.absolute_of(source):.1%}"
            for source in left.errors
            if abs(left.absolute_of(source) - whole.absolute_of(source)) > 0.005
        )
        yield f"without {name}: {left.absolute:.1%}, signed {left.signed:+.1%}" + (f" ({moved})" if moved else "")
