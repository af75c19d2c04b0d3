"""torchtitan's job files (TOML) -> a model of the library, and a plan around it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from ledger.spec.imports.text import BY_HAND, NODE, ImportedSpec, assumed_devices, plan_text, stated
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import LONGEST_INTEGER

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
    def devices(self) -> int:
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
    name, mesh = _library_model(job), _mesh(job, devices)
    assumed = assumed_devices(mesh.devices, microscaled=eight_bit_format(job) == "mx")
    plan = plan_text(_plan(job, name, mesh), assumed)
    notes = (*settings_left_out(job), *formats_left_out(job, mesh.tensor), *_reinterpreted_settings(job, mesh, devices))
    return name, ImportedSpec(plan, notes)


def _library_model(job: TorchtitanJob) -> str:
    flavor = (job.word("model.name"), job.word("model.flavor"))
    if flavor in FLAVORS:
        return FLAVORS[flavor]
    known_flavors = ", ".join(" ".join(pair) for pair in FLAVORS)
    place = job.place("model.flavor" if flavor[0] in {name for name, _ in FLAVORS} else "model.name")
    message = f"no model of the library is torchtitan's `{flavor[0]}` of flavor `{flavor[1]}`"
    raise SpecError([Problem(place, message, f"known are {known_flavors}")])


def _mesh(job: TorchtitanJob, devices: int) -> JobMesh:
    """The degrees of the job; shards that the launcher counts are as many as there are devices for."""
    tensor, pipeline, context, expert = (
        job.whole_number(job.mesh(f"{axis}_parallel_degree"), 1) for axis in ("tensor", "pipeline", "context", "expert")
    )
    replicate = job.whole_number(job.mesh("data_parallel_replicate_degree"), 1)
    old = job.mesh("data_parallel_degree")
    key = old if old in job.settings else job.mesh("data_parallel_shard_degree")
    shard = job.whole_number(key, -1, least=-1)
    if shard < 1:
        shard = max((devices or NODE * replicate) // (tensor * pipeline * context * replicate), 1)
    return JobMesh(tensor, pipeline, context, expert, replicate, shard)


def _plan(job: TorchtitanJob, name: str, mesh: JobMesh) -> dict[str, Any]:
    local = job.whole_number("training.local_batch_size", job.whole_number("training.batch_size", 8))
    batch = job.whole_number("training.global_batch_size", -1, least=-1)
    batch, length = batch if batch > 0 else local * mesh.data, job.whole_number("training.seq_len", 2048)
    return {
        "spec": "ledger/1",
        "plan": "".join(filter(str.isprintable, job.word("job.description"))) or Path(job.file).stem,
        "model": name,
        "precision": precision(job, sharded=mesh.sharded),
        "optimizer": job.choice("optimizer.name", OPTIMIZERS, "AdamW"),
        "parallelism": _parallelism(job, mesh),
        "recompute": _recompute(job),
        "stack": _stack(job, mesh),
        **stated(kernels=_kernels(job)),
        "run": {
            "tokens": f"{job.whole_number('training.steps', 10000) * batch * length} tokens",
            "seq_len": length,
            "micro_batch": micro_batch(job, local) if mesh.pipeline > 1 else local,
            "global_batch": batch,
        },
    }


def _parallelism(job: TorchtitanJob, mesh: JobMesh) -> dict[str, Any]:
    policy = job.choice(job.mesh("fsdp_reshard_after_forward"), RESHARD, "default")
    reshard = policy or ("none" if mesh.pipeline > 1 else "")  # reshard_after_forward=not pp_enabled
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
            reshard=reshard if mesh.sharded else None,
            offload=["weights"] if mesh.sharded and job.flag("training.enable_cpu_offload") else None,
            sequence="save_gathered" if mesh.tensor > 1 else None,
            schedule=order,
            interleave=interleave if interleave > 1 else None,
            ends="layer" if mesh.pipeline > 1 and ends == [1, 1] else None,
            context_exchange=exchange if mesh.context > 1 else None,
        ),
    }


def _kernels(job: TorchtitanJob) -> Mapping[str, str]:
    """Kernels that the job states beyond those of its stack."""
    components = str(job.settings.get("compile.components", ["loss"]))
    update = None
    if "optimizer.implementation" in job.settings:
        update = job.choice("optimizer.implementation", UPDATES, "fused")
    elif "optimizer.fused" in job.settings:
        update = "fused" if job.flag("optimizer.fused") else "foreach"
    return stated(optimizer=update, loss="eager" if job.flag("compile.enable") and "loss" not in components else None)


def _stack(job: TorchtitanJob, mesh: JobMesh) -> Any:
    """The stack of the job's version: jobs that compile in a section of their own are of after August 2025."""
    base = "torchtitan-2024"
    if job.flag("training.compile") or job.flag("compile.enable"):
        base = "torchtitan-compile-2025" if job.flag("compile.enable") else "torchtitan-compile-2024"
    hidden = job.flag(job.mesh("enable_async_tensor_parallel")) and mesh.tensor > 1
    gathered_logits = job.flag(job.mesh("disable_loss_parallel")) and mesh.tensor > 1
    changes = stated(overlap={"tensor": "matmul"} if hidden else None, gathered_logits=gathered_logits)
    return {"base": base, **changes} if changes else base


def _recompute(job: TorchtitanJob) -> Any:
    option = job.word("activation_checkpoint.selective_ac_option", "2")
    modes = {"none": "none", "full": "full", "selective": "selective", "memory_budget": "none"}
    mode = job.choice("activation_checkpoint.mode", modes, "selective")
    if mode != "selective":
        return mode
    if option.isdigit() and int(option):
        return {"every": int(option)}
    return {"keep": ["matmul", "attention", "reduce_scatter"], "matmuls": "every_second"}


def _reinterpreted_settings(job: TorchtitanJob, mesh: JobMesh, devices: int) -> Iterator[Problem]:
    """Settings for which the plan has other values than the job, or that the job leaves open."""
    if devices and devices != mesh.devices:
        keys = (job.mesh(f"data_parallel_{name}_degree") for name in ("shard", "replicate"))
        key = next((key for key in keys if key in job.settings), job.mesh("tensor_parallel_degree"))
        message = f"the job's degrees multiply to {mesh.devices} devices, not {devices}"
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


# --- the settings of a job file ---

# Sections in which torchtitan has had the degrees of its mesh, the latest first.
MESH = ("parallelism", "experimental", "training")
LARGEST = 10**15
DEEPEST = 100  # dots of a key
NO_KEY = re.compile(r"[^\w.\-\s\"']+")
DIGITS = re.compile(rf"[0-9_]{{{LONGEST_INTEGER + 1},}}")


@dataclass(frozen=True)
class TorchtitanJob:
    """The settings of a file by dotted key (`training.seq_len`)."""

    settings: Mapping[str, Any]
    text: str
    file: str

    def place(self, key: str) -> Location:
        """The line that sets a key; the file where none does."""
        section, last = "", key.rpartition(".")[2]
        for number, line in enumerate(self.text.splitlines(), 1):
            stripped = line.strip()
            if stripped.startswith("["):
                section = stripped.partition("]")[0].strip("[ ")
            name = stripped.partition("=")[0].strip().strip("\"'")
            if "=" in stripped and key in (f"{section}.{name}", name):
                return Location(self.file, number, line.index(last) + 1 if last in line else 1)
        return Location(self.file)

    def whole_number(self, key: str, default: int, least: int = 1) -> int:
        """A whole number; raises SpecError for anything else."""
        value = self.settings.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            message = f"`{key}` is {value!r}"
            raise SpecError([Problem(self.place(key), message, f"a whole number of at least {least} is due")])
        return value

    def word(self, key: str, default: str = "") -> str:
        """A text; a number is its digits."""
        return str(self.settings.get(key, default))

    def flag(self, key: str) -> bool:
        """Whether something is switched on."""
        return bool(self.settings.get(key, False))

    def mesh(self, name: str) -> str:
        """The dotted key under which this job states something of its mesh; that of today where it does not."""
        return next(
            (f"{section}.{name}" for section in MESH if f"{section}.{name}" in self.settings), f"{MESH[0]}.{name}"
        )

    def choice(self, key: str, meanings: Mapping[str, str], default: str, stated_word: str = "") -> str:
        """The plan's word for one of torchtitan's; raises SpecError for one that is not understood."""
        word = stated_word or self.word(key, default)
        if word in meanings:
            return meanings[word]
        raise SpecError([Problem(self.place(key), f"`{key}` is `{word}`", f"understood is {', '.join(meanings)}")])


def read_job(text: str, file: str) -> TorchtitanJob:
    """The job that a text describes; raises SpecError."""
    if digits := DIGITS.search(text):
        before = text[: digits.start()]
        where = Location(file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise SpecError([Problem(where, "a number beyond reason", "no size of a training run is that large")])
    for number, line in enumerate(text.splitlines(), 1):
        if any(part.count(".") > DEEPEST for part in NO_KEY.split(line)):
            raise SpecError([Problem(Location(file, number), "a key of more parts than any setting", "name a section")])
    try:
        job = TorchtitanJob(dict(_flatten(tomllib.loads(text), "")), text, file)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError([Problem(Location(file), f"not valid TOML: {error}", "a torchtitan job file")]) from error
    for key, value in job.settings.items():
        if isinstance(value, float) and not isfinite(value):
            raise SpecError([Problem(job.place(key), f"`{key}` is {value}, no number", "a number, or text in quotes")])
    return job


def _flatten(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        inner = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from _flatten(value, inner)
        else:
            yield inner, value


# --- settings that are in no plan ---

CARRIED = frozenset(
    """
    activation_checkpoint.mode activation_checkpoint.selective_ac_option compile.components compile.enable
    float8.enable_float8_linear float8.enable_fsdp_float8_all_gather float8.recipe_name job.description
    model.converters model.flavor model.name
    mx.recipe_name optimizer.fused optimizer.implementation optimizer.name
    quantize.linear.float8.enable_fsdp_float8_all_gather quantize.linear.float8.recipe_name
    quantize.linear.mx.recipe_name training.batch_size training.compile training.dtype training.enable_cpu_offload
    training.enable_float8_linear training.enable_fp8_linear training.global_batch_size training.local_batch_size
    training.mixed_precision_param training.mixed_precision_reduce training.seq_len training.steps
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
OF_THE_MESH = frozenset(
    """
    context_parallel_degree context_parallel_rotate_method data_parallel_degree data_parallel_replicate_degree
    data_parallel_shard_degree disable_loss_parallel enable_async_tensor_parallel expert_parallel_degree
    fsdp_reshard_after_forward
    pipeline_parallel_degree pipeline_parallel_first_stage_less_layers pipeline_parallel_last_stage_less_layers
    pipeline_parallel_layers_per_stage pipeline_parallel_microbatch_size pipeline_parallel_microbatches
    pipeline_parallel_schedule tensor_parallel_degree
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
# Sections and settings that change no total of a plan: what is written down, watched, loaded, learned.
UNRELATED = tuple(
    """
    checkpoint comm debug job lr_scheduler memory_estimation metrics model.hf_assets_path
    model.print_after_conversion model.tokenizer_path optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.lr
    optimizer.weight_decay profiling training.dataset training.dataset_path training.deterministic training.gc_debug
    training.gc_freq training.max_norm training.seed training.warmup_steps validation
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
# values of what is switched off
SWITCHED_OFF: tuple[Any, ...] = (False, 0, "", [], None, "none", "default", ["output"], ["output", "router.gate"])
WHY: Mapping[str, str] = {
    "expert_tensor_parallel_degree": "experts of a plan are cut like the rest of a layer",
    "memory_budget": "`recompute:` names what is rebuilt, not how much memory it may take",
    "per_op_sac_force_recompute_mm_shapes_by_fqns": "every second product is kept, whatever its shape",
    "precompute_float8_dynamic_scale_for_fsdp": "scales of gathered weights are found weight by weight",
    "filter_fqns": "`precision: {matmul: {keep: [...]}}` names what stays as it is",
    "module_fqns_per_model_part": "`parallelism: {stages: [...]}` lists the layers of each stage",
    "pipeline_parallel_split_points": "`parallelism: {stages: [...]}` lists the layers of each stage",
    "early_step_in_backward": "a plan updates after backward is over",
}


def settings_left_out(job: TorchtitanJob) -> Iterator[Problem]:
    """Every setting that may change a total and is not in the plan, with its line."""
    for key, value in job.settings.items():
        section, _, last = key.partition(".")
        is_carried = key in CARRIED or (section in MESH and last in OF_THE_MESH)
        unrelated = any(key == name or key.startswith(f"{name}.") for name in UNRELATED)
        if not is_carried and not unrelated and value not in SWITCHED_OFF:
            yield Problem(job.place(key), f"`{key}` is not carried over", WHY.get(key.rpartition(".")[2], BY_HAND))


# --- number formats ---

RECIPES = {"tensorwise": "fp8-tensorwise", "rowwise": "fp8-rowwise", "rowwise_with_gw_hp": "fp8-rowwise"}
MX = ("mxfp8", "mxfp8_cublas", "mxfp8_emulated")
SWITCHES = ("float8.enable_float8_linear", "training.enable_float8_linear", "training.enable_fp8_linear")
GATHERED = ("float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather")
KEYS = {
    "float8": ("float8.recipe_name", "quantize.linear.float8.recipe_name"),
    "mx": ("mx.recipe_name", "quantize.linear.mx.recipe_name"),
}


def eight_bit_format(job: TorchtitanJob) -> str:
    """`float8` or `mx` where linear layers multiply in 8 bits, else nothing."""
    converters = _converters(job)
    if any("float8" in name for name in converters) or any(job.flag(key) for key in SWITCHES):
        return "float8"
    return "mx" if any(name.rpartition(".")[2] == "mx" for name in converters) else ""


def precision(job: TorchtitanJob, *, sharded: bool) -> Any:
    """FSDP2 gathers fp32 shards in bf16 (MixedPrecisionPolicy); weights may be bf16 or multiplied in 8 bits."""
    kind = eight_bit_format(job)
    if kind == "mx":
        base = "mxfp8-torchao"
    elif kind == "float8":
        base = RECIPES.get(_recipe(job, kind) or "tensorwise", "fp8-tensorwise")
    elif job.word("training.dtype") == "bfloat16":
        base = "bf16-true"
    else:
        base = "fp32" if job.word("training.mixed_precision_param") == "float32" else "bf16-autocast"
    changes: dict[str, Any] = {}
    if job.word("training.mixed_precision_reduce") == "bfloat16" and base != "bf16-true":
        changes["reduction"] = "bf16"
    if kind == "float8" and sharded and any(job.flag(key) for key in GATHERED):
        changes["matmul"] = {"weights": "gathered"}
    return {"base": base, **changes} if changes else base


def formats_left_out(job: TorchtitanJob, tensor: int) -> Iterator[Problem]:
    """Settings of narrow formats that are in no plan."""
    for name in _converters(job):
        if not ("float8" in name or name.rpartition(".")[2] == "mx") or "grouped" in name:
            message = f"the converter `{name}` is not carried over"
            yield Problem(job.place("model.converters"), message, "`precision: {matmul: ...}` says what is quantised")
    kind = eight_bit_format(job)
    if not kind:
        return
    recipe, place = _recipe(job, kind), job.place(KEYS[kind][0])
    if kind == "float8" and recipe and recipe not in RECIPES:
        yield Problem(place, f"the recipe `{recipe}` is taken as `tensorwise`", f"known are {', '.join(RECIPES)}")
    if kind == "mx" and recipe and recipe not in MX:
        yield Problem(place, f"the recipe `{recipe}` is taken as `mxfp8`", f"known are {', '.join(MX)}")
    if recipe == "rowwise_with_gw_hp":
        message = "`rowwise_with_gw_hp` is taken as `rowwise`: gradients of weights are multiplied in fp8"
        yield Problem(place, message, "the job multiplies them in bf16")
    if kind == "float8" and tensor > 1 and recipe in ("", "tensorwise"):
        message = "float8 with tensor parallelism: the plan gathers sequences in bf16, the job in fp8"
        yield Problem(job.place("model.converters"), message, "half of those gathers' bytes are saved")


def _converters(job: TorchtitanJob) -> list[str]:
    listed = job.settings.get("model.converters", "")
    names = listed if isinstance(listed, list) else str(listed).split(",")
    return [str(name).strip() for name in names if str(name).strip()]


def _recipe(job: TorchtitanJob, kind: str) -> str:
    return next((job.word(key) for key in KEYS[kind] if key in job.settings), "")


# --- the pipeline ---

# Schedules of torch.distributed.pipelining: a plan's word, and stages of a rank where the job does not say.
SCHEDULES: Mapping[str, tuple[str, int]] = {
    "1f1b": ("1f1b", 1),
    "gpipe": ("gpipe", 1),
    "interleaved1f1b": ("interleaved", 2),
    "interleavedzerobubble": ("interleaved", 2),
    "zbvzerobubble": ("zero_bubble", 1),
}
# Schedules that no plan has: the nearest one is taken, and reported.
NEAREST = ("interleavedzerobubble", "zbvzerobubble")


def schedule(job: TorchtitanJob) -> tuple[str, int]:
    """The schedule, and the chunks of layers that a rank has of it."""
    key = job.mesh("pipeline_parallel_schedule")
    names = {name: name for name in SCHEDULES}
    return SCHEDULES[job.choice(key, names, "1f1b", job.word(key, "1F1B").lower())]


def micro_batch(job: TorchtitanJob, local: int) -> int:
    """Sequences of the micro-batches that a pipeline cuts a local batch into."""
    parts = job.whole_number(job.mesh("pipeline_parallel_microbatches"), 0, least=0)
    return max(local // parts, 1) if parts else job.whole_number(job.mesh("pipeline_parallel_microbatch_size"), 1)


def pipeline_notes(job: TorchtitanJob) -> Iterator[Problem]:
    """Sizes of a pipeline that the job leaves to its version of torchtitan, or states in a way that no plan has."""
    key = job.mesh("pipeline_parallel_schedule")
    if job.word(key).lower() in NEAREST:
        message = f"`{job.word(key)}` is taken as `{SCHEDULES[job.word(key).lower()][0]}`"
        yield Problem(job.place(key), message, "a plan has no such schedule: what it holds and waits differs")
    sizes = [job.mesh(f"pipeline_parallel_{name}") for name in ("microbatch_size", "microbatches")]
    if not any(key in job.settings for key in sizes):
        message = "the job does not say how a pipeline cuts its batch: a micro-batch is 1 sequence"
        place = job.place(job.mesh("pipeline_parallel_degree"))
        yield Problem(place, message, f"`{sizes[0]} = 1`, its default of 2025")
    for name in ("layers_per_stage", "first_stage_less_layers", "last_stage_less_layers"):
        key = job.mesh(f"pipeline_parallel_{name}")
        if job.settings.get(key, 1) not in (0, 1) or (name.startswith("layers") and key in job.settings):
            message = f"`{key}` is not carried over: stages are as even as they can be"
            yield Problem(job.place(key), message, "`parallelism: {stages: [...]}` lists the layers of each stage")
