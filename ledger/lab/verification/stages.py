"""The devices of a pipeline before the judge: each role with its layers, its micro-batches in PyTorch's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.evidence.verdicts import EXACT, ComparedFigure, KnownDifference, unchecked
from ledger.lab.observed.device_step import AllocatedBytes, DeviceStep
from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.lab.observed.ranks import DdpRank, Rank, ShardedRank, StageRank
from ledger.lab.reference.workload import Workload, workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.lab.verification import layouts, predicted
from ledger.lab.verification.causes import SCALAR, at_the_loss, counts_steps, frequencies
from ledger.lab.verification.depth import with_counts
from ledger.lab.verification.peaks import compare_peaks
from ledger.model import dtypes
from ledger.model.fsdp_units import weights_by_unit
from ledger.model.schedule import micro_batches, roles
from ledger.model.units import compute_precision
from ledger.spec.plan import Plan

ORIGIN = (
    "a step of device {place} on fake tensors and a fake process group, in the order of torch.distributed.pipelining"
)
SCHEDULES = ("1f1b", "gpipe")
POLICIES = ("none", "selective", "full")


def verdicts(compiled: Compiled, progress: Callable[[str], None]) -> Iterator[ComparedFigure]:
    """Every figure of every role, named after it: `memory.forward/first`."""
    plan = compiled.plan
    if reason := layouts.unjudged(plan) or unjudged(plan):
        yield unchecked("memory, comm", reason)
        return
    for book in compile_roles(plan, roles(plan)):
        progress(f"device {book.role.stages[0]} of {plan.parallelism.pipeline}")
        try:
            step = _stage_step(plan, book)
        except NoReferenceError as error:
            yield unchecked(f"memory, comm/{book.role.name}", str(error))
            continue
        for verdict in (*_held_figures(compiled, book, step), *_sent_figures(compiled, book, step)):
            yield replace(verdict, account=f"{verdict.account}/{book.role.name}")


def ledger_figures(compiled: Compiled) -> Mapping[str, predicted.Figures]:
    """The ledger's figures of every role: its moments, and what it sends."""
    books = compile_roles(compiled.plan, roles(compiled.plan))
    return {book.role.name: {**_ledger_moments(compiled, book), **_ledger_calls(compiled, book)} for book in books}


def _ledger_moments(compiled: Compiled, book: CompiledRole) -> predicted.Figures:
    (role,) = (role for role in compiled.roles if role.name == book.role.name)
    return predicted.moments(book, role.moments)


def _ledger_calls(compiled: Compiled, book: CompiledRole) -> predicted.Figures:
    return predicted.collectives(compiled, book.role.name)


def unjudged(plan: Plan) -> str:
    """Why no device of this pipeline can be run; empty where one can."""
    layout = plan.parallelism
    if layout.data * layout.tensor * layout.context > 1:
        return "parallelism.pipeline with data, tensor or context: a device of the judge's pipeline has none beside it"
    if layout.scheduled not in SCHEDULES or layout.interleave > 1:
        return f"parallelism.schedule = {layout.scheduled}: the judge's devices have one stretch of layers each"
    if layout.scheduled == "gpipe" or micro_batches(plan) <= layout.pipeline:
        return "no more micro-batches than stages: gradients are there from the beginning in the ledger, not in PyTorch"
    if plan.recompute.policy not in POLICIES:
        return f"recompute.policy = {plan.recompute.policy}: the judge's devices rebuild {', '.join(POLICIES)}"
    if plan.model.tied or plan.model.predictions:
        return "the judge's devices of a pipeline share no weights"
    return ""


def _stage_step(plan: Plan, book: CompiledRole) -> DeviceStep:
    """A step of the first device of a role."""
    stage_plan = replace(plan, model=with_counts(plan.model, book.role.layers))
    layout = plan.parallelism
    stage = StageRank(book.role.stages[0], layout.pipeline, layout.scheduled, micro_batches(plan))
    return rank_step(workload(stage_plan), stage)


def _held_figures(compiled: Compiled, book: CompiledRole, step: DeviceStep) -> Iterator[ComparedFigure]:
    explained = {
        name: tuple(_named_causes(compiled.plan, book, name, allocated)) for name, allocated in step.moments.items()
    }
    origin = ORIGIN.format(place=book.role.stages[0])
    figures = compare_peaks(_ledger_moments(compiled, book), step.moments, explained, origin)
    yield from (verdict for verdict in figures if verdict.found is not None)  # no figure between the passes


def _sent_figures(compiled: Compiled, book: CompiledRole, step: DeviceStep) -> Iterator[ComparedFigure]:
    expected, origin = _ledger_calls(compiled, book), ORIGIN.format(place=book.role.stages[0])
    observed = {
        f"comm.{sent.kind}.{sent.axis}.{sent.phase}.{name}": amount
        for sent in step.collectives
        for name, amount in (("count", sent.count), ("bytes", sent.bytes))
    }
    for name in sorted({*expected, *observed}):
        unit = "" if name.endswith(".count") else "B"
        yield ComparedFigure(name, unit, expected.get(name, 0), observed.get(name, 0), EXACT, origin)


@dataclass(frozen=True)
class _StageInstant:
    """A moment of one role's step."""

    plan: Plan
    compiled_role: CompiledRole
    moment: str

    def stream(self) -> int:
        """Bytes of the residual stream of a micro-batch."""
        run, precision = self.plan.run, compute_precision(self.plan)
        return int(run.micro_batch * run.seq_len * self.plan.model.d_model * dtypes.size(precision.activations))


def _named_causes(plan: Plan, book: CompiledRole, moment: str, allocated: AllocatedBytes) -> Iterator[KnownDifference]:
    """The named causes of what the judge holds at a moment and no plan states."""
    place = _StageInstant(plan, book, moment)
    yield KnownDifference("rounding of storages to 512 B", allocated.rounding)
    yield KnownDifference("step counts of the optimizer", _step_counts(place))
    yield KnownDifference("positions and rotary frequencies", frequencies(plan.model) + _tables(place))
    yield KnownDifference("the gradient that came in, which its caller holds", _incoming_gradient(place))
    yield KnownDifference("what the MLP reads, which its caller's frame holds", _read_by_the_mlp(place))
    if book.role.last:
        yield from at_the_loss(plan, moment)


def _step_counts(at: _StageInstant) -> int:
    """One fp32 count for each weight of the role."""
    if not counts_steps(at.plan):
        return 0
    units = at.compiled_role.program.units
    return SCALAR * int(
        sum(at.compiled_role.value(count) * len(weights) for _, count, weights in weights_by_unit(units))
    )


def _tables(at: _StageInstant) -> int:
    """Other micro-batches hold cosines and sines while the embedding runs; the ledger has them with layers alone."""
    if not at.moment.endswith("/input"):
        return 0
    if not at.compiled_role.role.first:
        return 0
    rotated = {width for group in at.plan.model.groups if (width := group.attention.rotary_dim)}
    size = dtypes.size(compute_precision(at.plan).activations)
    return int(sum(2 * at.plan.run.seq_len * width * size for width in rotated))


def _incoming_gradient(at: _StageInstant) -> int:
    """torch.autograd.backward holds what came in until it returns; the ledger, until the last layer has read it."""
    inside = at.moment.endswith(("/inner", "/end")) or at.moment == "backward/input"
    return at.stream() if inside and not at.compiled_role.role.last else 0


def _read_by_the_mlp(at: _StageInstant) -> int:
    """Where nothing is saved inside a layer, the norm's result could go once gate and up have read it."""
    groups = tuple(f"forward/{group.name}" for group in at.plan.model.groups)
    return at.stream() if at.plan.recompute.policy == "full" and at.moment.startswith(groups) else 0


# --- one rank in a fresh process ---


def rank_step(work: Workload, rank: Rank) -> DeviceStep:
    """One step of micro-batches of `work` on one rank, forward, backward and update; raises `NoReferenceError`.

    Of a `StageRank`, `work.model` has the layers of its stage alone. Tensor parallelism is laid out for Llama, Mistral
    and Qwen2 only.
    """
    return run_in_fresh_process(run_rank, work, rank)


def run_rank(work: Workload, rank: Rank) -> DeviceStep:
    """One step of a rank in this process, whose fake process group stays."""
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=rank.place, world_size=rank.world_size)
    if isinstance(rank, ShardedRank):
        from ledger.lab.observed.sharded_rank import run_sharded

        return run_sharded(work, rank)
    if isinstance(rank, DdpRank):
        from ledger.lab.observed.ddp_rank import run_ddp

        return run_ddp(work, rank)
    from ledger.lab.observed.stage_rank import run_stage

    return run_stage(work, rank)
