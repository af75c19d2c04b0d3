"""A suite, or one plan, before the judge; a suite in a process beside this one: a case that ends it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import version
from multiprocessing import get_context
from shlex import join

from ledger.evidence.verification import JudgeOrigin, Verification
from ledger.lab.judges.protocol import FrameworkJudge
from ledger.lab.judges.table import framework_of
from ledger.lab.verification import frameworks
from ledger.lab.verification.checks import verdicts
from ledger.lab.verification.depth import LAYERS_SAMPLED, Sample, limit_layers, samples
from ledger.lab.verification.served import judged_service, served_verdicts
from ledger.model.exchanges import copied_to_buckets
from ledger.processes import interrupt_held, process_pool
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
from ledger.spec.suite import Suite, SuiteCase

SPAWNING = get_context("spawn")


@dataclass(frozen=True)
class Failure:
    """A case that could not be verified at all: its plan is bad input, or the judge broke down."""

    name: str
    problem: str


def verify_suite(
    suite: Suite, depth: Depth, *, quick: bool, progress: Callable[[str], None]
) -> Iterator[Verification | Failure]:
    """Every case, or only the quick ones, in order, in one process as long as no case ends it."""
    cases = [case for case in suite.cases if case.quick or not quick]
    with ExitStack() as processes:
        process = None
        for index, case in enumerate(cases, start=1):
            progress(f"{index} of {len(cases)}: {case.name}")
            process = process or processes.enter_context(process_pool(1, SPAWNING))
            try:
                with interrupt_held(SPAWNING):
                    judged = process.submit(_verify_case, case, depth)
                yield judged.result()
            except Exception as error:  # noqa: BLE001 - whatever stops one case must not hide the others' verdicts
                yield Failure(case.name, f"{type(error).__name__}: {error}")
                process = None if isinstance(error, BrokenProcessPool) else process


def _verify_case(case: SuiteCase, depth: Depth) -> Verification | Failure:
    """One case, named as the suite names it."""
    try:
        plan = load_plan(case.plan, case.overrides)
        return verify(replace(plan, name=case.name), depth, command(case), lambda _: None)
    except SpecError as error:
        return Failure(case.name, str(error))


def command(case: SuiteCase) -> str:
    """The command that repeats a case by hand."""
    return join(["ledger", "verify", case.plan, *(word for text in case.overrides for word in ("--set", text))])


# --- one plan before the judge ---


@dataclass(frozen=True)
class Depth:
    """How deep PyTorch runs a model: `layers` of each group of a plan that is cut to them, all, or few for all."""

    layers: int | None = None
    full: bool = False


def verify(plan: Plan, depth: Depth, command: str, progress: Callable[[str], None]) -> Verification:
    """Every figure of `plan` that its judge can find, beside the ledger's: PyTorch, or the framework of its stack."""
    framework = framework_of(plan)
    if framework is not None:
        return _ask_framework(
            framework, plan if depth.layers is None else limit_layers(plan, depth.layers), command, progress
        )
    form, verdicts_of = (judged_plan, verdicts) if plan.serve is None else (judged_service, served_verdicts)
    asked, notes = form(plan if depth.layers is None else limit_layers(plan, depth.layers))
    runs = depths(asked, depth)
    if plan.recompute.policy != "none":
        notes.append("recompute = none for saved bytes, which are of the unsharded plan without it")
    return Verification(
        name=plan.name,
        title=plan.title,
        model=plan.model.title,
        digest=plan.judged_digest,
        layers=depth_sentence(asked, runs, depth),
        verdicts=tuple(verdicts_of(asked, runs, progress)),
        origin=_origin(command),
        judged_as=tuple(notes),
    )


def _ask_framework(judge: FrameworkJudge, plan: Plan, command: str, progress: Callable[[str], None]) -> Verification:
    """Every figure of `plan` that a framework, which runs every layer, can find, beside the ledger's."""
    return Verification(
        name=plan.name,
        title=plan.title,
        model=plan.model.title,
        digest=plan.judged_digest,
        layers=f"{layers_in_words(sum(group.repeat for group in plan.model.groups))} ran",
        verdicts=tuple(frameworks.verdicts(plan, judge, progress)),
        origin=_origin(command, judge),
        judged_as=judge.notes(plan),
    )


def _origin(command: str, judge: FrameworkJudge | None = None) -> JudgeOrigin:
    """The judge's versions, the day, and the command."""
    day = datetime.now(UTC).date().isoformat()
    return JudgeOrigin(version("torch"), version("transformers"), day, command, judge.origin if judge else "")


def depths(plan: Plan, depth: Depth) -> tuple[Sample, ...]:
    """The runs that stand for the plan's model."""
    if depth.full or depth.layers is not None or has_uneven_layers(plan):
        return (Sample(tuple(group.repeat for group in plan.model.groups), 1),)
    return samples(plan.model, LAYERS_SAMPLED)


def has_uneven_layers(plan: Plan) -> bool:
    """Whether layers of a group differ by where they stand, so that none stands for another: buckets span layers."""
    return (
        copied_to_buckets(plan) or plan.recompute.policy in ("every", "layers", "segment") or plan.parallelism.wrap > 1
    )


def depth_sentence(plan: Plan, runs: tuple[Sample, ...], depth: Depth) -> str:
    """How deep PyTorch ran the model, and what stands for the rest."""
    all_of_them = sum(group.repeat for group in plan.model.groups)
    if len(runs) == 1:
        cut = ", and so has the plan that was compared" if depth.layers is not None else ""
        return f"{layers_in_words(all_of_them)} ran{cut}"
    ran = " and ".join(str(sum(run.layers)) for run in runs)
    return f"{ran} layers ran, and their difference stands for each further one of {all_of_them}"


def layers_in_words(layers: int) -> str:
    """So many layers, in words."""
    return "1 layer" if layers == 1 else f"{layers} layers"


def judged_plan(plan: Plan) -> tuple[Plan, list[str]]:
    """The plan in the form in which PyTorch can run it, and what was changed for that."""
    notes = []
    for row in FORMS:
        if row.applies(plan):
            plan = row.change(plan)
            notes.append(row.note)
    return plan, notes


@dataclass(frozen=True)
class PlanForm:
    """A plan that the judge runs in another form: which, how, and in words."""

    applies: Callable[[Plan], bool]
    change: Callable[[Plan], Plan]
    note: str


def _deals_unequally(plan: Plan) -> bool:
    """Whether the busiest device would get a number of rows that the judge cannot deal equally."""
    tokens = plan.run.micro_batch * plan.run.seq_len // plan.parallelism.context
    rows = (tokens * group.mlp.top_k * plan.assumptions.expert_imbalance for group in plan.model.groups)
    return plan.parallelism.expert > 1 and any(count % plan.parallelism.expert for count in rows)


FORMS = (
    PlanForm(
        lambda plan: plan.run.documents is not None,
        lambda plan: replace(plan, run=replace(plan.run, documents=None)),
        "run.documents left out: transformers runs a sequence as one document",
    ),
    PlanForm(
        lambda plan: plan.stack.compiled,
        lambda plan: replace(plan, stack=replace(plan.stack, compiled=False)),
        "stack.compiled = false: PyTorch runs operator by operator, as it does without torch.compile",
    ),
    PlanForm(
        lambda plan: plan.kernels.loss == "compiled",
        lambda plan: replace(plan, kernels=replace(plan.kernels, loss="eager")),
        "kernels.loss = eager: the same without torch.compile",
    ),
    PlanForm(
        lambda plan: plan.kernels.rotary == "fused" and any(group.attention.rotary for group in plan.model.groups),
        lambda plan: replace(plan, kernels=replace(plan.kernels, rotary="eager")),
        "kernels.rotary = eager: transformers rotates operator by operator",
    ),
    PlanForm(
        lambda plan: plan.assumptions.expert_imbalance > 1 and _deals_unequally(plan),
        lambda plan: replace(plan, assumptions=replace(plan.assumptions, expert_imbalance=Fraction(1))),
        "assumptions.expert_imbalance = 1: so many rows more are no equal number from each rank",
    ),
    PlanForm(
        lambda plan: (
            plan.precision.master not in (None, plan.precision.gradients) and plan.kernels.optimizer == "fused"
        ),
        lambda plan: replace(plan, kernels=replace(plan.kernels, optimizer="foreach")),
        "kernels.optimizer = foreach: torch's fused kernels read gradients in the dtype of the weights they update",
    ),
)
