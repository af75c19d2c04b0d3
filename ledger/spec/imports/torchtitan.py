"""torchtitan's job files (TOML) -> a model of the library, and a plan around it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.spec.config_builders import stated
from ledger.spec.imports.text import plan_text
from ledger.spec.problems import Location, Problem, SpecError

Job = Mapping[str, Mapping[str, Any]]
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
NODE = 8  # devices, where the job leaves the number of replicas to the launcher
SCHEDULES = {"1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved", "ZBVZeroBubble": "zero_bubble"}
OPTIMIZERS = {"AdamW": "adamw", "Adam": "adam"}
RECOMPUTE: Mapping[str, Any] = {"none": "none", "full": "full"}


def import_job(text: str, file: str, devices: int = 0) -> tuple[str, str]:
    """The name of the library's model, and the YAML text of the plan that a job file describes; raises SpecError.

    `devices`: how many run it, where the job leaves the number of shards to its launcher; 0: one node.
    """
    try:
        job: Job = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError([Problem(Location(file), f"not valid TOML: {error}", "a torchtitan job file")]) from error
    return _library(job, text, file), plan_text(*_plan(job, text, file, devices))


def _library(job: Job, text: str, file: str) -> str:
    model = job.get("model", {})
    asked = (str(model.get("name", "")), str(model.get("flavor", "")))
    if asked in FLAVORS:
        return FLAVORS[asked]
    known = ", ".join(" ".join(pair) for pair in FLAVORS)
    place = _place(text, file, "flavor" if asked[0] in {name for name, _ in FLAVORS} else "name")
    message = f"no model of the library is torchtitan's `{asked[0]}` of flavor `{asked[1]}`"
    raise SpecError([Problem(place, message, f"known are {known}")])


def _place(text: str, file: str, key: str) -> Location:
    """The first line that sets a key."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.replace(" ", "").startswith(f"{key}="):
            return Location(file, number, line.index(key) + 1)
    return Location(file)


def _plan(job: Job, text: str, file: str, devices: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of a plan, and those that it needs and the job does not state."""
    training, compiling = job.get("training", {}), job.get("compile", {})
    parallelism = _parallelism(job, devices or NODE)
    data = parallelism["data"]
    micro = int(training.get("local_batch_size", training.get("batch_size", 8)))
    batch, length = int(training.get("global_batch_size", -1)), int(training.get("seq_len", 2048))
    batch = batch if batch > 0 else micro * data
    compiled = bool(training.get("compile", False) or compiling.get("enable", False))
    used = data * parallelism["tensor"] * parallelism["pipeline"] * parallelism["context"]
    described = str(job.get("job", {}).get("description", Path(file).stem))
    parts = {
        "spec": "ledger/1",
        "plan": described,
        "model": _library(job, text, file),
        "precision": _precision(job),
        "optimizer": _optimizer(job, text, file),
        "parallelism": parallelism,
        "recompute": _recompute(job.get("activation_checkpoint", {})),
        "stack": "torchtitan-compile-2024" if compiled else "torchtitan-2024",
        "run": {
            "tokens": f"{int(training.get('steps', 10000)) * batch * length} tokens",
            "seq_len": length,
            "micro_batch": micro,
            "global_batch": batch,
        },
    }
    return parts, {"accelerator": "h100-sxm", "cluster": {"base": "h100-400g", "devices": used}}


def _parallelism(job: Job, devices: int) -> dict[str, Any]:
    """Degrees of the mesh; shards that the launcher counts are as many as there are devices for."""
    training = {key: value for key, value in job.get("training", {}).items() if key.endswith("_degree")}
    mesh = {**training, **job.get("experimental", {}), **job.get("parallelism", {})}
    tensor, pipeline, context, expert = (
        int(mesh.get(f"{axis}_parallel_degree", 1)) for axis in ("tensor", "pipeline", "context", "expert")
    )
    replicate = int(mesh.get("data_parallel_replicate_degree", 1))
    shard = int(mesh.get("data_parallel_shard_degree", -1))
    shard = shard if shard > 0 else max(devices // (tensor * pipeline * context * replicate), 1)
    data = replicate * shard
    return {
        "data": data,
        "tensor": tensor,
        "pipeline": pipeline,
        "context": context,
        **stated(
            expert=expert if expert > 1 else None,
            zero=3 if data * context > 1 else None,
            replicate=replicate if replicate > 1 else None,
            sequence="save_gathered" if tensor > 1 else None,
            schedule=SCHEDULES.get(str(mesh.get("pipeline_parallel_schedule"))) if pipeline > 1 else None,
        ),
    }


def _precision(job: Job) -> str:
    """FSDP2 gathers fp32 shards in bf16 (MixedPrecisionPolicy); weights may be bf16 or multiplied in 8 bits."""
    model = job.get("model", {})
    if "float8" in str(model.get("converters", "")):
        recipe = str(job.get("float8", {}).get("recipe_name", "tensorwise"))
        return "fp8-rowwise" if recipe.startswith("rowwise") else "fp8-tensorwise"
    return "bf16-true" if job.get("training", {}).get("dtype") == "bfloat16" else "bf16-autocast"


def _optimizer(job: Job, text: str, file: str) -> str:
    name = str(job.get("optimizer", {}).get("name", "AdamW"))
    if name in OPTIMIZERS:
        return OPTIMIZERS[name]
    message = f"`{name}` is no optimizer of torchtitan that is understood"
    raise SpecError([Problem(_place(text, file, "name"), message, f"known are {', '.join(OPTIMIZERS)}")])


def _recompute(asked: Mapping[str, Any]) -> Any:
    mode, option = asked.get("mode", "selective"), str(asked.get("selective_ac_option", "2"))
    if mode != "selective":
        return RECOMPUTE.get(mode, "none")
    if option.isdigit():
        return {"every": int(option)}
    return {"keep": ["matmul", "attention", "reduce_scatter"], "matmuls": "every_second"}
