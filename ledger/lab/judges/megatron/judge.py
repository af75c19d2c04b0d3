"""Megatron-Core as a judge: one rank of each stage, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ledger.books.compiled_roles import CompiledRole
from ledger.books.memory.timeline import sequence
from ledger.evidence.verdicts import KnownDifference
from ledger.lab.judges.megatron.attention import context_calls, saved
from ledger.lab.judges.megatron.causes import causes
from ledger.lab.judges.megatron.configuration import recipe_name, refusal
from ledger.lab.judges.megatron.scales import lasting_scale_bytes, scale_gathers
from ledger.lab.judges.metered_rank import RankFigures
from ledger.lab.judges.protocol import FrameworkJudge
from ledger.lab.observed.fresh_process import run_in_fresh_process
from ledger.model.causes import ENDS, WEIGHT, Purpose
from ledger.model.schedule import micro_batches
from ledger.model.sharding import EXPERT_DATA
from ledger.model.unit import Unit
from ledger.spec.plan import Plan

# Least parameters of a bucket: so many, or so many a replica (megatron/core/distributed/distributed_data_parallel.py).
LEAST, A_REPLICA = 40_000_000, 1_000_000
# A layer's modules in the order in which Megatron-Core registers them, each by the ledger's own that it is made of: of
# attention, of latent attention, of a dense feed-forward part, of one with experts. Norms are in the modules after them
# (LayerNormLinear), but for that before latents and that before experts.
ATTENTION = (
    ("attention/out",),
    ("attention_norm/norm", "attention/q", "attention/k", "attention/v", "attention/qkv"),
    ("attention/q_norm",),
    ("attention/k_norm",),
)
LATENT = (
    ("attention_norm/norm",),
    ("attention/out",),
    ("attention/q_latent",),
    ("attention/q_latent_norm", "attention/q"),
    ("attention/kv_latent",),
    ("attention/kv_latent_norm", "attention/kv"),
)
DENSE = (("mlp_norm/norm", "mlp/gate", "mlp/up"), ("mlp/down",))
EXPERTS = (("mlp/gate_up",), ("mlp/down",))  # a weight an expert, in a buffer of their own where devices share experts
SHARED = (("mlp/shared_gate", "mlp/shared_up"), ("mlp/shared_down",))
SPARSE = (("mlp_norm/norm",), ("mlp/router",))
NORMS = tuple(
    f"{name}_norm" if name.startswith("attention/") else f"{name}_norm/norm"
    for name in ("attention", "mlp", "attention/q", "attention/k", "attention/q_latent", "attention/kv_latent")
)
# By axis, the figures that count buckets.
BUCKETED = {
    axis: (
        f"comm.reduce_scatter.{axis}.backward.count",
        f"comm.all_reduce.{axis}.backward.count",
        f"comm.all_gather.{axis}.optimizer.count",
    )
    for axis in ("data", EXPERT_DATA)
}
NORM_SUMS = "comm.all_reduce.tensor.backward.count"


def calls(plan: Plan, book: CompiledRole, counts: Mapping[str, int]) -> Mapping[str, KnownDifference]:
    """By figure, how the number of Megatron-Core's calls differs from the ledger's; nothing where it is not known."""
    differences: dict[str, KnownDifference] = {
        **scale_gathers(plan, book),
        **context_calls(plan, book),
        **dict(_whole_embedding_sums(plan, book)),
    }
    # gradients of weights which each device sees a part of the sequence of
    summed = (entry for entry in book.ledger.select("comm") if entry.cause.purpose is Purpose.GRADIENT_SUM)
    if norms := sum(int(book.value(entry.times)) for entry in summed):
        differences[NORM_SUMS] = KnownDifference("gradients of norms are summed in one call", 1 - norms)
    why = "gradients move in buckets, and weights with them"
    for axis, buckets in _buckets(plan, book).items():
        differences |= {name: KnownDifference(why, buckets - counts[name]) for name in BUCKETED[axis] if name in counts}
    return differences


def _whole_embedding_sums(plan: Plan, book: CompiledRole) -> Iterator[tuple[str, KnownDifference]]:
    """With learned positions the embedding is summed whole, and split once they are added.

    megatron/core/models/common/embeddings/language_model_embedding.py, `reduce_scatter_embeddings`.
    """
    layout, run = plan.parallelism, plan.run
    if not plan.model.learned_positions or layout.tensor == 1 or layout.sequence == "off" or not book.role.first:
        return
    many, why = int(micro_batches(plan)), "an embedding with positions is summed whole"
    embedding_bytes = 2 * many * run.micro_batch * run.seq_len // layout.context * plan.model.d_model
    for kind, sign in (("all_reduce", 1), ("reduce_scatter", -1)):
        yield f"comm.{kind}.tensor.forward.count", KnownDifference(why, sign * many)
        yield f"comm.{kind}.tensor.forward.bytes", KnownDifference(why, sign * embedding_bytes)


def _buckets(plan: Plan, book: CompiledRole) -> Mapping[str, int]:
    """Buckets of a stage by axis: of its first chunk of layers on the first stage, one for every other chunk.

    Nothing where the order of its parameters is not known here.
    """
    units = {unit.name: unit for unit in book.program.units}
    layers = [unit for unit in units.values() if unit.name not in ENDS]
    if any(not _has_known_order(unit) for unit in layers):
        return {}
    chunks = plan.parallelism.interleave
    split = plan.parallelism.expert > 1
    sparse = split and any(map(_is_sparse, layers))
    if not book.role.first:
        return {"data": chunks, **({EXPERT_DATA: chunks} if sparse else {})}
    names = tuple(sequence(book.program, plan, book.role.layers, book.value))
    first_chunk = [units[name] for name in names[: len(names) // chunks]]
    sizes = {
        "data": [
            *(_end_sizes(units["input"], book) if "input" in units else ()),
            *(size for unit in first_chunk for size in _module_sizes(unit, book, _modules(unit, split=split))),
            *(_end_sizes(units["output"], book, units["input"]) if "output" in units and chunks == 1 else ()),
        ],
        EXPERT_DATA: [
            size for unit in first_chunk if split and _is_sparse(unit) for size in _module_sizes(unit, book, EXPERTS)
        ],
    }
    least = max(LEAST, A_REPLICA * plan.parallelism.data)
    return {axis: filled(reversed(elements), least) + chunks - 1 for axis, elements in sizes.items() if elements}


def _is_sparse(unit: Unit) -> bool:
    return any(weight.parameter and str(weight.parameter.module) == "mlp/router" for weight in unit.weights)


def _modules(unit: Unit, *, split: bool) -> Sequence[tuple[str, ...]]:
    """A layer's modules whose gradients lie in one buffer, without experts where devices share them (`split`)."""
    latent = any(weight.parameter and str(weight.parameter.module) == "attention/kv" for weight in unit.weights)
    sparse = (*SPARSE, *(() if split else EXPERTS), *SHARED)
    return (*(LATENT if latent else ATTENTION), *(sparse if _is_sparse(unit) else DENSE))


def filled(sizes: Iterator[int] | Sequence[int], least: int) -> int:
    """How many buckets parameters of these sizes fill, each full once it holds `least`."""
    full, in_bucket = 0, 0
    for size in sizes:
        in_bucket += size
        if in_bucket >= least:
            full, in_bucket = full + 1, 0
    return full + (in_bucket > 0)


def _has_known_order(unit: Unit) -> bool:
    names = {name for module in _modules(unit, split=False) for name in module}
    return all(weight.parameter is not None and str(weight.parameter.module) in names for weight in unit.weights)


def _end_sizes(unit: Unit, book: CompiledRole, before: Unit | None = None) -> list[int]:
    """Parameters of an end of the model that are not those of the one `before`, to which they may be tied."""
    tied = {weight.name for weight in before.weights} if before else set[str]()
    return [int(book.value(weight.elements())) for weight in unit.weights if weight.name not in tied]


def _module_sizes(unit: Unit, book: CompiledRole, modules: Sequence[tuple[str, ...]]) -> Iterator[int]:
    """Parameters of some modules of a layer, those of one module's products as one matrix, and their biases as one.

    Of experts, those of each.
    """
    for module in modules:
        joined = {WEIGHT: 0, "": 0}
        for weight in unit.weights:
            if weight.parameter is None or str(weight.parameter.module) not in module:
                continue
            size = int(book.value(weight.elements()))
            if weight.dims[0].name == "experts":
                count = int(book.value(weight.local(weight.dims[0])))
                yield from [size // count] * count
            elif str(weight.parameter.module) in NORMS:
                yield size
            else:
                joined[WEIGHT if weight.parameter.kind == WEIGHT else ""] += size
        yield from (size for size in joined.values() if size)


BLACKWELL = (10, 0)  # what multiplies MXFP8


def ask(plan: Plan, stage: int) -> RankFigures:
    """The figures of the first rank of a stage."""
    return run_in_fresh_process(run, replace(plan, origins={}, expect=(), warnings=(), reading=None), stage)


def run(plan: Plan, stage: int) -> RankFigures:
    """The figures of the first rank of a stage, found in this process, which keeps the stand-ins."""
    from ledger.lab.judges.fakes import fake_group
    from ledger.lab.judges.imaginary_cuda import ImaginaryDevice, imaginary_cuda
    from ledger.lab.judges.megatron.kernels import install

    recipe, devices = plan.precision.matmul, plan.cluster.devices
    narrow = recipe is not None and recipe_name(recipe) == "mxfp8"
    device = ImaginaryDevice(capability=BLACKWELL) if narrow else ImaginaryDevice()
    place = stage * devices // plan.parallelism.pipeline
    with imaginary_cuda(device), fake_group(devices, place):
        install()
        from ledger.lab.judges.megatron.step import judge_rank

        return judge_rank(plan)


def notes(plan: Plan) -> tuple[str, ...]:
    """What Megatron-Core is asked instead of what the plan says."""
    if plan.stack.overlap.tensor == "userbuffers" and plan.parallelism.tensor > 1:
        return ("tp_comm_overlap = false: userbuffers are compiled, so what they hold is not there",)
    return ()


MEGATRON = FrameworkJudge(
    title="Megatron-Core",
    packages=("megatron-core", "transformer-engine"),
    refusal=refusal,
    judge=ask,
    notes=notes,
    causes=causes,
    calls=calls,
    byte_differences=lambda plan, book: {**lasting_scale_bytes(plan, book), **saved(plan)},
)
