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
from ledger.lab.verification.peaks import reached, tolerance
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
            for verdict in compared(compiled, book, figures, judge):
                yield replace(verdict, account=f"{verdict.account}{suffix}", origin=origin)


def compared(
    compiled: Compiled, book: CompiledRole, figures: RankFigures, judge: FrameworkJudge
) -> Iterator[ComparedFigure]:
    """One rank's figures beside those of its role."""
    yield from _held_between_steps(compiled.plan, book, figures, judge)
    yield from _saved(compiled.plan, book, figures, judge)
    yield from _sent(compiled, book, figures, judge)
    yield from _moments(compiled, book, figures.step, judge)


def _held_between_steps(
    plan: Plan, book: CompiledRole, figures: RankFigures, judge: FrameworkJudge
) -> Iterator[ComparedFigure]:
    """Parameters, and bytes of each kind that are there all the time."""
    mine = {name: predicted.standing(book, name) for name in STANDING} | {"gradients": _lasting_gradients(plan, book)}
    parameters = predicted.parameters_held(book, int(dtypes.size(plan.precision.weights.base)))
    yield ComparedFigure("parameters", "", parameters, figures.parameters, EXACT)
    known = judge.held(plan, book)
    for name in STANDING:
        figure = f"standing.{name}"
        padding = KnownDifference("padding of buffers", figures.padding.get(name, 0))
        named = tuple(cause for cause in (padding, *filter(None, (known.get(figure),))) if cause.amount)
        yield ComparedFigure(figure, "B", mine[name], figures.standing[name], EXACT, causes=named)


def _lasting_gradients(plan: Plan, book: CompiledRole) -> int:
    """Bytes of buffers that are never freed; gradients that wait for the next micro-batch are, by the update."""
    return predicted.standing(book, "gradients") if stays(plan) or micro_batches(plan) == 1 else 0


def _saved(plan: Plan, book: CompiledRole, figures: RankFigures, judge: FrameworkJudge) -> Iterator[ComparedFigure]:
    """Bytes that one layer of each group saves, where its layers are alike."""
    if plan.recompute.policy in ("layers", "segment"):
        yield unchecked("saved", f"recompute = {plan.recompute.policy}: layers of a group do not save the same")
        return
    if plan.recompute.policy == "keep":
        yield unchecked("saved", "recompute = keep: what is kept of operators is no tensor that autograd saves")
        return
    mine, known = predicted.saved_layers(book), judge.held(plan, book)
    for group, found in figures.saved.items():
        figure = f"saved.{group}"
        named = (known[figure],) if figure in known else ()
        yield ComparedFigure(figure, "B", mine.get(group, 0), found, EXACT, causes=named)


def _sent(
    compiled: Compiled, book: CompiledRole, figures: RankFigures, judge: FrameworkJudge
) -> Iterator[ComparedFigure]:
    """Collectives of each kind by axis and pass."""
    mine = predicted.collectives(compiled, book.role.name)
    theirs = {
        f"comm.{calls.kind}.{calls.axis}.{calls.phase}.{name}": amount
        for calls in figures.step.collectives
        for name, amount in (("count", calls.count), ("bytes", calls.bytes))
    }
    known = judge.calls(compiled.plan, book, mine)
    for name in sorted({*mine, *theirs}):
        causes = (known[name],) if name in known and known[name].amount else ()
        yield ComparedFigure(name, unit(name), mine.get(name, 0), theirs.get(name, 0), EXACT, causes=causes)


def _moments(
    compiled: Compiled, book: CompiledRole, step: DeviceStep, judge: FrameworkJudge
) -> Iterator[ComparedFigure]:
    """What is held before, between and at most; then each moment of the step that both have."""
    (role,) = (one for one in compiled.roles if one.name == book.role.name)
    mine = predicted.moments(book, role.moments)
    mine["static"] += _lasting_gradients(compiled.plan, book)
    if compiled.plan.parallelism.pipeline == 1:
        mine |= {"after forward": predicted.after_forward(book)}
    theirs = {name: held for name, held in step.moments.items() if name in mine or name != "after forward"}
    explained = {
        name: (KnownDifference(ROUNDED, held.rounding), *judge.causes(compiled.plan, book.role, name))
        for name, held in theirs.items()
    }
    yield from (one for one in reached(mine, theirs, explained, "") if one.found is not None)
    yield from _each(mine, theirs, explained)


def _each(
    mine: Mapping[str, int],
    theirs: Mapping[str, AllocatedBytes],
    explained: Mapping[str, tuple[KnownDifference, ...]],
) -> Iterator[ComparedFigure]:
    """The moments by name; of the head, the fuller of the ledger's two."""
    for name, held in theirs.items():
        heads = [mine[head] for head in HEADS.get(name, (name,)) if head in mine]
        if "/" not in name or not heads:
            continue
        named = tuple(cause for cause in explained[name] if cause.amount)
        left = max(heads) - held.bytes + total(named)
        allowed = ROUNDING if not left else tolerance(name)
        yield ComparedFigure(f"moment.{name.replace('/', '.')}", "B", max(heads), held.bytes, allowed, causes=named)
