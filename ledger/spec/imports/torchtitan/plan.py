"""torchtitan's job files (TOML) -> a model of the library, and a plan around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.spec.imports.parts import NODE, ImportedSpec, assumed_devices, stated
from ledger.spec.imports.text import plan_text
from ledger.spec.imports.torchtitan.job import TorchtitanJob, read_job
from ledger.spec.imports.torchtitan.pipeline import micro_batch, pipeline_notes, schedule
from ledger.spec.imports.torchtitan.precision import eight_bit_format, formats_left_out, precision
from ledger.spec.imports.torchtitan.settings import settings_left_out
from ledger.spec.problems import Problem, SpecError

FLAVORS: Mapping[tuple[str, str], str] = {
    ("llama3", "8B"): "llama-3-8b",
    ("llama3", "70B"): "llama-3-70b",
    ("llama3", "405B"): "llama-3-405b",
    ("llama2", "7B"): "llama-2-7b",
    ("llama2", "70B"): "llama-2-70b",
    ("qwen3", "8B"): "qwen3-8b",
    ("qwen3", "30B-A3B"): "qwen3-30b-a3b",
    ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
    ("deepseek_v3", "671B"): "deepseek-v3",
}
OPTIMIZERS = {"AdamW": "adamw", "Adam": "adam"}
UPDATES = {"fused": "fused", "foreach": "foreach", "for-loop": "loop"}
EXCHANGES = {"allgather": "all_gather", "alltoall": "ring"}
RESHARD = {"always": "all", "never": "none", "default": ""}


@dataclass(frozen=True)
class JobMesh:
    """The degrees of a job; `shard` is what one copy of the weights is split over, beside `context`."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    replicate: int
    shard: int

    @property
    def data(self) -> int:
        """Replicas that split the batch."""
        return self.replicate * self.shard

    @property
    def used(self) -> int:
        """Devices of the job."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def sharded(self) -> bool:
        """Whether weights are split at all; else replicas are torch's DistributedDataParallel."""
        return self.shard * self.context > 1


def import_job(text: str, file: str, devices: int = 0) -> tuple[str, ImportedSpec]:
    """The name of the library's model, and the plan that a job file describes; raises SpecError.

    `devices`: how many run it, where the job leaves the number of shards to its launcher; 0: a node for each copy.
    """
    job = read_job(text, file)
    name, mesh = _library(job), _mesh(job, devices)
    assumed = assumed_devices(mesh.used, microscaled=eight_bit_format(job) == "mx")
    plan = plan_text(_plan(job, name, mesh), assumed)
    notes = (*settings_left_out(job), *formats_left_out(job, mesh.tensor), *_taken_otherwise(job, mesh, devices))
    return name, ImportedSpec(plan, notes)


def _library(job: TorchtitanJob) -> str:
    asked = (job.word("model.name"), job.word("model.flavor"))
    if asked in FLAVORS:
        return FLAVORS[asked]
    known = ", ".join(" ".join(pair) for pair in FLAVORS)
    place = job.place("model.flavor" if asked[0] in {name for name, _ in FLAVORS} else "model.name")
    message = f"no model of the library is torchtitan's `{asked[0]}` of flavor `{asked[1]}`"
    raise SpecError([Problem(place, message, f"known are {known}")])


def _mesh(job: TorchtitanJob, devices: int) -> JobMesh:
    """Shards that the launcher counts are as many as there are devices for."""
    tensor, pipeline, context, expert = (
        job.whole(job.mesh(f"{axis}_parallel_degree"), 1) for axis in ("tensor", "pipeline", "context", "expert")
    )
    replicate = job.whole(job.mesh("data_parallel_replicate_degree"), 1)
    old = job.mesh("data_parallel_degree")
    key = old if old in job.settings else job.mesh("data_parallel_shard_degree")
    shard = job.whole(key, -1, least=-1)
    if shard < 1:
        shard = max((devices or NODE * replicate) // (tensor * pipeline * context * replicate), 1)
    return JobMesh(tensor, pipeline, context, expert, replicate, shard)


def _plan(job: TorchtitanJob, name: str, mesh: JobMesh) -> dict[str, Any]:
    local = job.whole("training.local_batch_size", job.whole("training.batch_size", 8))
    batch = job.whole("training.global_batch_size", -1, least=-1)
    batch, length = batch if batch > 0 else local * mesh.data, job.whole("training.seq_len", 2048)
    return {
        "spec": "ledger/1",
        "plan": "".join(filter(str.isprintable, job.word("job.description"))) or Path(job.file).stem,
        "model": name,
        "precision": precision(job, sharded=mesh.sharded),
        "optimizer": _optimizer(job),
        "parallelism": _parallelism(job, mesh),
        "recompute": _recompute(job),
        "stack": _stack(job, mesh),
        **stated(kernels=_kernels(job)),
        "run": {
            "tokens": f"{job.whole('training.steps', 10000) * batch * length} tokens",
            "seq_len": length,
            "micro_batch": micro_batch(job, local) if mesh.pipeline > 1 else local,
            "global_batch": batch,
        },
    }


def _parallelism(job: TorchtitanJob, mesh: JobMesh) -> dict[str, Any]:
    policy = job.choice(job.mesh("fsdp_reshard_after_forward"), RESHARD, "default")
    kept = policy or ("none" if mesh.pipeline > 1 else "")  # reshard_after_forward=not pp_enabled
    exchange = job.choice(job.mesh("context_parallel_rotate_method"), EXCHANGES, "allgather")
    order, interleave = schedule(job) if mesh.pipeline > 1 else ("", 1)
    ends = [job.settings.get(job.mesh(f"pipeline_parallel_{end}_stage_less_layers")) for end in ("first", "last")]
    return {
        "data": mesh.data,
        "tensor": mesh.tensor,
        "pipeline": mesh.pipeline,
        "context": mesh.context,
        **stated(
            expert=mesh.expert if mesh.expert > 1 else None,
            zero=3 if mesh.sharded else None,
            replicate=mesh.replicate if mesh.replicate > 1 and mesh.sharded else None,
            reshard=kept if mesh.sharded else None,
            offload=["weights"] if mesh.sharded and job.flag("training.enable_cpu_offload") else None,
            sequence="save_gathered" if mesh.tensor > 1 else None,
            schedule=order,
            interleave=interleave if interleave > 1 else None,
            ends="layer" if mesh.pipeline > 1 and ends == [1, 1] else None,
            context_exchange=exchange if mesh.context > 1 else None,
        ),
    }


def _optimizer(job: TorchtitanJob) -> str:
    return job.choice("optimizer.name", OPTIMIZERS, "AdamW")


def _kernels(job: TorchtitanJob) -> Mapping[str, str]:
    """What the job says of kernels beyond its stack."""
    components = str(job.settings.get("compile.components", ["loss"]))
    update = job.choice("optimizer.implementation", UPDATES, "fused") if _stated(job, "implementation") else None
    if update is None and _stated(job, "fused"):
        update = "fused" if job.flag("optimizer.fused") else "foreach"
    return stated(optimizer=update, loss="eager" if job.flag("compile.enable") and "loss" not in components else None)


def _stated(job: TorchtitanJob, name: str) -> bool:
    return f"optimizer.{name}" in job.settings


def _stack(job: TorchtitanJob, mesh: JobMesh) -> Any:
    """Jobs that compile in a section of their own are of after August 2025."""
    named = "torchtitan-2024"
    if job.flag("training.compile") or job.flag("compile.enable"):
        named = "torchtitan-compile-2025" if job.flag("compile.enable") else "torchtitan-compile-2024"
    hidden = job.flag(job.mesh("enable_async_tensor_parallel")) and mesh.tensor > 1
    whole = job.flag(job.mesh("disable_loss_parallel")) and mesh.tensor > 1
    said = stated(overlap={"tensor": "matmul"} if hidden else None, gathered_logits=whole)
    return {"base": named, **said} if said else named


def _recompute(job: TorchtitanJob) -> Any:
    option = job.word("activation_checkpoint.selective_ac_option", "2")
    modes = {"none": "none", "full": "full", "selective": "selective", "memory_budget": "none"}
    mode = job.choice("activation_checkpoint.mode", modes, "selective")
    if mode != "selective":
        return mode
    if option.isdigit() and int(option):
        return {"every": int(option)}
    return {"keep": ["matmul", "attention", "reduce_scatter"], "matmuls": "every_second"}


def _taken_otherwise(job: TorchtitanJob, mesh: JobMesh, devices: int) -> Iterator[Problem]:
    """What had to be taken otherwise than the job says it, or for what it leaves open."""
    if devices and devices != mesh.used:
        keys = (job.mesh(f"data_parallel_{name}_degree") for name in ("shard", "replicate"))
        key = next((key for key in keys if key in job.settings), job.mesh("tensor_parallel_degree"))
        message = f"the job's degrees multiply to {mesh.used} devices, not {devices}"
        yield Problem(job.place(key), message, "`--devices` counts where the number of shards is -1")
    if job.word("activation_checkpoint.mode") == "memory_budget":
        message = "`activation_checkpoint.mode = memory_budget` is not carried over: the plan recomputes nothing"
        yield Problem(job.place("activation_checkpoint.mode"), message, "`recompute:` names what is rebuilt")
    hidden = job.mesh("enable_async_tensor_parallel")
    if job.flag(hidden) and not (job.flag("training.compile") or job.flag("compile.enable")):
        message = f"`{hidden}` without compilation, which torchtitan refuses"
        yield Problem(job.place(hidden), message, "`training.compile = true`")
    if mesh.pipeline > 1:
        yield from pipeline_notes(job)
