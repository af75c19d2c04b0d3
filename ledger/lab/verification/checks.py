"""The checks that apply to a plan, run and compared: one row for each judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ledger.books import compile_plan
from ledger.books.compiled import Compiled
from ledger.evidence.verdicts import EXACT, ComparedFigure, KnownDifference, total, unchecked
from ledger.lab.observed.device_step import AllocatedBytes
from ledger.lab.reference.workload import workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.lab.verification import layouts, predicted, stages
from ledger.lab.verification.causes import INT64_BYTES, LOSS, OUTPUT, causes
from ledger.lab.verification.depth import Sample, sum_weighted_figures, with_counts
from ledger.lab.verification.peaks import compare_peaks
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan, Recompute

JudgeFigures = dict[str, AllocatedBytes]

UNSEEN = "bitsandbytes' kernels bring matrices back within themselves, where fake tensors show nothing"


def parameters(plan: Plan) -> JudgeFigures:
    """Parameters of the transformers model."""
    from ledger.lab.observed.one_device import parameter_counts

    everything, trained = parameter_counts(plan.model, plan.train)
    figures = {"parameters": AllocatedBytes(everything)}
    return figures if plan.train.kind == "all" else figures | {"parameters.trainable": AllocatedBytes(trained)}


def flops(plan: Plan) -> JudgeFigures:
    """FLOPs of one unsharded micro-batch by pass and kind, and what checkpointing adds to the backward pass."""
    from ledger.lab.observed.one_device import flop_counts

    work = workload(plan)
    plain = flop_counts(replace(work, recompute=Recompute()))
    again = plain if plan.recompute.policy == "none" else flop_counts(work)
    figures = {f"flops.{phase}.{kind}": AllocatedBytes(count) for (phase, kind), count in plain.kinds.items()}
    return {**figures, "flops.recompute": AllocatedBytes(again.backward - plain.backward)}


def saved(plan: Plan) -> JudgeFigures:
    """Bytes that autograd packs for one unsharded micro-batch: the last layer of each group, and all.

    Tables of positions are packed by the first layer and shared by all, so the last layer of a group is its own.
    """
    from ledger.lab.observed.one_device import saved_storages

    storages = saved_storages(workload(plan))
    figures = {"saved.total": AllocatedBytes(sum(storage.bytes for storage in storages))}
    least = 1 if plan.model.of_blocks else 2  # of blocks some change sizes, and none finds tables
    several = replace(plan, model=with_counts(plan.model, [max(least, group.repeat) for group in plan.model.groups]))
    if several != plan:
        storages = saved_storages(workload(several))
    for index, group in enumerate(several.model.layers):
        layer = sum(storage.bytes for storage in storages if storage.layer == index)
        figures[f"saved.per_layer.{group.name}"] = AllocatedBytes(layer)
    return figures


def one_device(plan: Plan) -> JudgeFigures:
    """Bytes of a step on one device, moment by moment; raises `NoReferenceError`."""
    from ledger.lab.observed.one_device import one_device_step

    if plan.precision.weights.is_stored_only:
        raise NoReferenceError(f"{plan.precision.weights.base}: {UNSEEN}")

    return dict(one_device_step(workload(plan), micro_batches(plan)).moments)


def one_rank(plan: Plan) -> JudgeFigures:
    """Bytes of rank 0 of a sharded step, moment by moment, and what it sends."""
    from ledger.lab.verification.layouts import judged_mesh, replicas
    from ledger.lab.verification.stages import rank_step
    from ledger.model.exchanges import copied_to_buckets

    mesh, work = judged_mesh(plan), workload(plan)
    step = rank_step(work, replicas(plan) if copied_to_buckets(plan) else mesh)
    figures = dict(step.moments)
    for sent in step.collectives:
        # Without FSDP, DTensor leaves gradients as parts until the optimizer asks for them.
        phase = "backward" if sent.phase == "optimizer" and not mesh.shards else sent.phase
        for name, amount in (("count", sent.count), ("bytes", sent.bytes)):
            key = f"comm.{sent.kind}.{sent.axis}.{phase}.{name}"
            figures[key] = figures.get(key, AllocatedBytes()) + AllocatedBytes(amount)
    return figures


Progress = Callable[[str], None]


@dataclass(frozen=True)
class PyTorchJudge:
    """One way to ask PyTorch: `asks` runs it, `tells` is the ledger's answer; `reason` says why it cannot be asked."""

    title: str
    accounts: str  # what stands in place of the figures where they cannot be found
    asks: Callable[[Plan], JudgeFigures]
    tells: Callable[[Compiled], predicted.Figures]
    reason: Callable[[Plan], str]
    origin: str


JUDGES = (
    PyTorchJudge(
        "parameters", "parameters", parameters, predicted.parameters, lambda _: "", "transformers, on meta tensors"
    ),
    PyTorchJudge(
        "FLOPs",
        "flops",
        flops,
        predicted.flops,
        layouts.missing_kernels_reason,
        "FlopCounterMode on meta tensors, unsharded",
    ),
    PyTorchJudge(
        "saved bytes", "saved", saved, predicted.saved, layouts.missing_kernels_reason, "saved_tensors_hooks, unsharded"
    ),
    PyTorchJudge(
        "memory of a step", "memory", one_device, predicted.memory, layouts.unjudged, "a step on fake cuda tensors"
    ),
)
RANK_JUDGE = PyTorchJudge(
    "memory and collectives of a rank",
    "memory, comm",
    one_rank,
    lambda compiled: {**predicted.memory(compiled), **predicted.collectives(compiled)},
    layouts.unjudged,
    "a step of rank 0 on fake tensors and a fake process group",
)


def judges(plan: Plan) -> tuple[PyTorchJudge, ...]:
    """The judges of a plan: those of the unsharded model, and that of its step, unless a pipeline has one a stage."""
    steps = (RANK_JUDGE,) if layouts.has_several_ranks(plan) else (JUDGES[3],)
    return (*JUDGES[:3], *(steps if plan.parallelism.pipeline == 1 else ()))


def verdicts(plan: Plan, runs: tuple[Sample, ...], progress: Progress) -> Iterator[ComparedFigure]:
    """Every figure of `plan` that PyTorch can find in the weighted sum of `runs`, beside the ledger's."""
    compiled = compile_plan(plan)
    for judge in judges(plan):
        yield from judged_figures(judge, compiled, runs, progress)
    if plan.parallelism.pipeline > 1:
        yield from stages.verdicts(compiled, progress)


def judged_figures(
    judge: PyTorchJudge, compiled: Compiled, runs: tuple[Sample, ...], progress: Progress
) -> Iterator[ComparedFigure]:
    """One judge's figures, or why there are none."""
    reason = judge.reason(compiled.plan)
    if reason:
        yield unchecked(judge.accounts, reason)
        return
    results = []
    try:
        for run in runs:
            progress(f"{judge.title}: {' + '.join(map(str, run.layers))} layers deep")
            plan = compiled.plan
            results.append((run.weight, judge.asks(replace(plan, model=with_counts(plan.model, run.layers)))))
    except NoReferenceError as error:
        yield unchecked(judge.accounts, str(error))
        return
    depths = " and ".join(" + ".join(map(str, run.layers)) for run in runs)
    further = ", each further one their difference" if len(runs) > 1 else ""
    origin = f"{judge.origin}; {depths} layers{further}"
    yield from compare_figures(compiled, judge.tells(compiled), sum_weighted_figures(results), origin)


def compare_figures(
    compiled: Compiled, expected: Mapping[str, int], observed: Mapping[str, AllocatedBytes], origin: str
) -> Iterator[ComparedFigure]:
    """Figure by figure; the moments of a step as its peaks. A count that one side lacks is 0 there."""
    counts = sorted(name for name in {*expected, *observed} if name.startswith(COUNTED))
    sizes = {name: size for name, size in observed.items() if name not in counts}
    if sizes:
        explained = {name: _known_causes(compiled.plan, name, size, expected) for name, size in sizes.items()}
        yield from compare_peaks(
            {name: size for name, size in expected.items() if name not in counts}, sizes, explained, origin
        )
    for name in counts:
        judge_amount = observed.get(name, AllocatedBytes()).bytes
        yield ComparedFigure(
            name, unit(name), expected.get(name, 0), judge_amount, EXACT, origin, _label_views(compiled.plan, name)
        )


HEADS = {LOSS: (OUTPUT, LOSS), "backward/loss": ("backward/output", "backward/loss")}
COUNTED = ("parameters", "flops.", "saved.", "comm.", "serve.")


def unit(account: str) -> str:
    """The unit of an account."""
    if account.startswith("flops."):
        return "FLOP"
    return "" if account.startswith("parameters") or account.endswith((".count", ".elements")) else "B"


def _label_views(plan: Plan, account: str) -> tuple[KnownDifference, ...]:
    """What is saved for the loss is labels; of one sequence they look into a longer tensor."""
    longer = account == "saved.total" and plan.run.micro_batch == 1 and not plan.model.image
    return (KnownDifference("labels padded and shifted", INT64_BYTES),) if longer else ()


def _known_causes(
    plan: Plan, moment: str, size: AllocatedBytes, expected: Mapping[str, int]
) -> tuple[KnownDifference, ...]:
    """The named causes of what the judge holds at a moment; to it the head belongs to the loss's moment."""
    causes_by_moment = {name: tuple(causes(plan, name)) for name in HEADS.get(moment, (moment,))}
    fullest = max(causes_by_moment, key=lambda name: expected.get(name, 0) + total(causes_by_moment[name]))
    return (KnownDifference("rounding of storages to 512 B", size.rounding), *causes_by_moment[fullest])
