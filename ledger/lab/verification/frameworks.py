"""A plan before the training framework that its stack names: the first rank of every role, figure by figure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ledger.books import compile_plan
from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.evidence.verdicts import EXACT, ROUNDING, ComparedFigure, KnownDifference, total, unchecked
from ledger.lab.judges.metered_rank import STANDING, RankFigures
from ledger.lab.judges.protocol import FrameworkJudge
from ledger.lab.observed.device_step import AllocatedBytes, DeviceStep
from ledger.lab.verification import predicted
from ledger.lab.verification.checks import HEADS, unit
from ledger.lab.verification.peaks import compare_peaks, tolerance
from ledger.model import dtypes
from ledger.model.exchanges import stays
from ledger.model.schedule import micro_batches, roles
from ledger.spec.plan import Plan

Progress = Callable[[str], None]
ORIGIN = "{title}'s own step of stage {stage} on fake tensors and a fake process group"
MOST_ROLES = 4  # of a longer pipeline the first two and the last are asked
UNASKED = "of a long pipeline the first two roles and the last are judged"
ROUNDED = "rounding of storages to 512 B"

PACKED = "packed documents, which the step that it is given does not have"


def verdicts(plan: Plan, judge: FrameworkJudge, progress: Progress) -> Iterator[ComparedFigure]:
    """Every figure of every role, named after the role where there are several: `memory.forward/first`."""
    if reason := judge.unavailable() or judge.refusal(plan) or (PACKED if plan.run.documents else ""):
        yield unchecked("parameters, saved, memory, comm", f"no judge: {reason}")
        return
    compiled = compile_plan(plan)
    books = compile_roles(plan, roles(plan))
    left_out = {book.role.name for book in books[2:-1]} if len(books) > MOST_ROLES else set()
    with ThreadPoolExecutor(os.cpu_count()) as waiting:  # each judge waits for a process of its own
        asked = {
            book.role.name: waiting.submit(judge.judge, plan, book.role.stages[0])
            for book in books
            if book.role.name not in left_out
        }
        for book in books:
            stage = book.role.stages[0]
            if book.role.name in left_out:
                yield unchecked(f"parameters, saved, memory, comm/{book.role.name}", UNASKED)
                continue
            progress(f"{judge.title}: stage {stage} of {plan.parallelism.pipeline}")
            figures = asked[book.role.name].result()
            origin = ORIGIN.format(title=judge.title, stage=stage)
            suffix = f"/{book.role.name}" if len(books) > 1 else ""
            for verdict in compare_rank(compiled, book, figures, judge):
                yield replace(verdict, account=f"{verdict.account}{suffix}", origin=origin)


def compare_rank(
    compiled: Compiled, book: CompiledRole, figures: RankFigures, judge: FrameworkJudge
) -> Iterator[ComparedFigure]:
    """One rank's figures beside those of its role."""
    yield from _standing_figures(compiled.plan, book, figures, judge)
    yield from _saved_bytes(compiled.plan, book, figures, judge)
    yield from _collective_figures(compiled, book, figures, judge)
    yield from _moment_figures(compiled, book, figures.step, judge)


def _standing_figures(
    plan: Plan, book: CompiledRole, figures: RankFigures, judge: FrameworkJudge
) -> Iterator[ComparedFigure]:
    """Parameters, and bytes of each kind that are there all the time."""
    expected = {name: predicted.stock_bytes(book, name) for name in STANDING}
    expected["gradients"] = _lasting_gradients(plan, book)
    parameters = predicted.parameters_held(book, int(dtypes.size(plan.precision.weights.base)))
    yield ComparedFigure("parameters", "", parameters, figures.parameters, EXACT)
    differences = judge.byte_differences(plan, book)
    for name in STANDING:
        figure = f"standing.{name}"
        padding = KnownDifference("padding of buffers", figures.padding.get(name, 0))
        named = tuple(cause for cause in (padding, *filter(None, (differences.get(figure),))) if cause.amount)
        yield ComparedFigure(figure, "B", expected[name], figures.lasting_tensors[name], EXACT, causes=named)


def _lasting_gradients(plan: Plan, book: CompiledRole) -> int:
    """Bytes of buffers that are never freed; gradients that wait for the next micro-batch are, by the update."""
    return predicted.stock_bytes(book, "gradients") if stays(plan) or micro_batches(plan) == 1 else 0


def _saved_bytes(
    plan: Plan, book: CompiledRole, figures: RankFigures, judge: FrameworkJudge
) -> Iterator[ComparedFigure]:
    """Bytes that one layer of each group saves, where its layers are alike."""
    if plan.recompute.policy in ("layers", "segment"):
        yield unchecked("saved", f"recompute = {plan.recompute.policy}: layers of a group do not save the same")
        return
    if plan.recompute.policy == "keep":
        yield unchecked("saved", "recompute = keep: what is kept of operators is no tensor that autograd saves")
        return
    expected, differences = predicted.saved_layers(book), judge.byte_differences(plan, book)
    for group, observed in figures.saved.items():
        figure = f"saved.{group}"
        named = (differences[figure],) if figure in differences else ()
        yield ComparedFigure(figure, "B", expected.get(group, 0), observed, EXACT, causes=named)


def _collective_figures(
    compiled: Compiled, book: CompiledRole, figures: RankFigures, judge: FrameworkJudge
) -> Iterator[ComparedFigure]:
    """Collectives of each kind by axis and pass."""
    expected = predicted.collectives(compiled, book.role.name)
    observed = {
        f"comm.{calls.kind}.{calls.axis}.{calls.phase}.{name}": amount
        for calls in figures.step.collectives
        for name, amount in (("count", calls.count), ("bytes", calls.bytes))
    }
    differences = judge.calls(compiled.plan, book, expected)
    for name in sorted({*expected, *observed}):
        causes = (differences[name],) if name in differences and differences[name].amount else ()
        yield ComparedFigure(name, unit(name), expected.get(name, 0), observed.get(name, 0), EXACT, causes=causes)


def _moment_figures(
    compiled: Compiled, book: CompiledRole, step: DeviceStep, judge: FrameworkJudge
) -> Iterator[ComparedFigure]:
    """What is held before, between and at most; then each moment of the step that both have."""
    (role,) = (role for role in compiled.roles if role.name == book.role.name)
    expected = predicted.moments(book, role.moments)
    expected["static"] += _lasting_gradients(compiled.plan, book)
    if compiled.plan.parallelism.pipeline == 1:
        expected |= {"after forward": predicted.after_forward(book)}
    observed = {name: size for name, size in step.moments.items() if name in expected or name != "after forward"}
    explained = {
        name: (KnownDifference(ROUNDED, allocated.rounding), *judge.causes(compiled.plan, book.role, name))
        for name, allocated in observed.items()
    }
    yield from (figure for figure in compare_peaks(expected, observed, explained, "") if figure.found is not None)
    yield from _figures_by_moment(expected, observed, explained)


def _figures_by_moment(
    expected: Mapping[str, int],
    observed: Mapping[str, AllocatedBytes],
    explained: Mapping[str, tuple[KnownDifference, ...]],
) -> Iterator[ComparedFigure]:
    """The moments by name; of the head, the fuller of the ledger's two."""
    for name, allocated in observed.items():
        heads = [expected[head] for head in HEADS.get(name, (name,)) if head in expected]
        if "/" not in name or not heads:
            continue
        named = tuple(cause for cause in explained[name] if cause.amount)
        excess = max(heads) - allocated.bytes + total(named)
        allowed = ROUNDING if not excess else tolerance(name)
        yield ComparedFigure(
            f"moment.{name.replace('/', '.')}", "B", max(heads), allocated.bytes, allowed, causes=named
        )
