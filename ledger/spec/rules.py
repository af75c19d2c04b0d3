"""The rules between the parts of a plan, each a generator of problems; its parameters name the parts it reads."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.spec.build import nearest_origin
from ledger.spec.plan import Accelerator, Cluster, Kernels, Model, Origin, Parallelism, Precision, Run
from ledger.spec.problems import Location, Problem
from ledger.spec.quantities import write

FLASH_DTYPES = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2")  # Dao, FlashAttention-2 and -3: half precision and fp8 only
FLASH_HEAD_DIM = 256  # Dao, FlashAttention-2, README: "All head dimensions up to 256"
SAME = 0.01  # two data sheets of one device differ by rounding only


@dataclass(frozen=True)
class Places:
    """Where each part of the plan was written, by dotted path; and the dense peaks that the library knows."""

    origins: Mapping[str, Origin]
    known: tuple[Accelerator, ...] = ()

    def __call__(self, path: str) -> Location:
        """The place of a path, or of the nearest path above it."""
        return nearest_origin(self.origins, path)


Rule = Callable[..., Iterator[Problem]]


def devices_are_the_product(cluster: Cluster, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Devices = data x tensor x pipeline x context."""
    mesh = parallelism
    rest = mesh.tensor * mesh.pipeline * mesh.context
    if mesh.data * rest != cluster.devices:
        product = f"{mesh.data} x {mesh.tensor} x {mesh.pipeline} x {mesh.context} = {mesh.data * rest}"
        message = f"data x tensor x pipeline x context = {product}, but the cluster has {cluster.devices} devices"
        whole = cluster.devices % rest == 0
        fitting = f"`data: {cluster.devices // rest}` or `devices: {mesh.data * rest}`"
        help_text = fitting if whole else f"{cluster.devices} is no multiple of tensor x pipeline x context = {rest}"
        yield Problem(at("parallelism.data"), message, help_text)


def nodes_are_whole(cluster: Cluster, at: Places) -> Iterator[Problem]:
    """A job has whole nodes, or a part of one."""
    if cluster.devices > cluster.devices_per_node and cluster.devices % cluster.devices_per_node:
        message = f"{cluster.devices} devices are no whole number of nodes of {cluster.devices_per_node}"
        yield Problem(at("cluster.devices"), message, _multiples(cluster.devices, cluster.devices_per_node))


def experts_subdivide(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Expert parallelism subdivides data x context."""
    shards = parallelism.data * parallelism.context
    if shards % parallelism.expert:
        message = f"expert = {parallelism.expert} does not divide data x context = {shards}"
        yield Problem(at("parallelism.expert"), message, f"divisors of {shards} are possible")


def experts_exist(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Expert parallelism splits experts, and a dense model has none."""
    if parallelism.expert > 1 and not model.bare:
        message = f"expert = {parallelism.expert}, but no layer of the model has experts"
        yield Problem(at("parallelism.expert"), message, "leave `expert` out")


def heads_split(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device whole query heads and whole key-value heads."""
    for group in model.groups:
        for field in ("heads", "kv_heads"):
            count = getattr(group.attention, field)
            if count % parallelism.tensor:
                message = f"{field} = {count} of `{group.name}` does not split over tensor = {parallelism.tensor}"
                yield Problem(at("parallelism.tensor"), message, _divisors(count))


def hidden_splits(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device an equal part of the MLP's hidden layer."""
    for group in model.groups:
        if group.mlp.d_ff % parallelism.tensor:
            message = f"d_ff = {group.mlp.d_ff} of `{group.name}` does not split over tensor = {parallelism.tensor}"
            yield Problem(at("parallelism.tensor"), message, _divisors(group.mlp.d_ff))


def vocabulary_splits(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device equal rows of the embedding; frameworks pad the vocabulary to get there."""
    if model.vocab % parallelism.tensor:
        padded = math.ceil(model.vocab / (128 * parallelism.tensor)) * 128 * parallelism.tensor
        message = f"vocab = {model.vocab} does not split over tensor = {parallelism.tensor}"
        help_text = f"frameworks pad it: `--set model.vocab={padded}` (Megatron-LM's multiple of 128 x tensor)"
        yield Problem(at("parallelism.tensor"), message, help_text)


def layers_split(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Every pipeline stage, and every chunk of an interleaved one, has the same number of layers."""
    layers, chunks = sum(group.repeat for group in model.groups), parallelism.pipeline * parallelism.interleave
    if layers % chunks:
        message = f"{layers} layers do not split into pipeline x interleave = {chunks} equal chunks"
        yield Problem(at("parallelism.pipeline"), message, _divisors(layers))


def interleave_needs_pipeline(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Interleaving gives a pipeline stage several chunks."""
    if parallelism.interleave > 1 and parallelism.pipeline == 1:
        message = f"interleave = {parallelism.interleave} without a pipeline"
        yield Problem(at("parallelism.interleave"), message, "`interleave: 1`, or a `pipeline` of 2 or more")


def sequence_needs_tensor(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Sequence parallelism splits what tensor parallelism leaves whole, over the same devices."""
    if parallelism.sequence != "off" and parallelism.tensor == 1:
        message = f"sequence = {parallelism.sequence} without tensor parallelism"
        yield Problem(at("parallelism.sequence"), message, "`sequence: off`, or a `tensor` of 2 or more")


def sequence_splits(run: Run, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Context parallelism, and sequence parallelism within it, give every device equal parts of a sequence."""
    mesh = parallelism
    if run.seq_len % mesh.context:
        message = f"seq_len = {run.seq_len} does not split over context = {mesh.context}"
        yield Problem(at("run.seq_len"), message, _multiples(run.seq_len, mesh.context))
    elif mesh.sequence != "off" and run.seq_len % (mesh.context * mesh.tensor):
        over = "context x tensor" if mesh.context > 1 else "tensor"
        message = (
            f"seq_len = {run.seq_len} does not split over {over} = {mesh.context * mesh.tensor} (sequence parallel)"
        )
        yield Problem(at("run.seq_len"), message, _multiples(run.seq_len, mesh.context * mesh.tensor))


def batch_splits(run: Run, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A step is a whole number of micro-batches on every replica."""
    at_once = parallelism.data * run.micro_batch
    if run.global_batch % at_once:
        message = (
            f"global_batch = {run.global_batch} is no multiple of data x micro_batch"
            f" = {parallelism.data} x {run.micro_batch} = {at_once}"
        )
        yield Problem(at("run.global_batch"), message, _multiples(run.global_batch, at_once))


def zero_needs_replicas(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """ZeRO splits what data-parallel replicas would each hold."""
    if parallelism.zero and parallelism.data * parallelism.context == 1:
        message = f"zero = {parallelism.zero} with no data parallelism: there is nothing to split over"
        yield Problem(at("parallelism.zero"), message, "`zero: 0`, or a `data` of 2 or more")


def heads_share_keys(model: Model, at: Places) -> Iterator[Problem]:
    """Every key-value head serves the same number of query heads."""
    for group in model.groups:
        heads, kv_heads = group.attention.heads, group.attention.kv_heads
        if heads % kv_heads:
            message = f"heads = {heads} is no multiple of kv_heads = {kv_heads}"
            field = f"model.layers.{group.name}.attention.kv_heads"
            yield Problem(at(field), message, _divisors(heads))


def rotary_is_even(model: Model, at: Places) -> Iterator[Problem]:
    """Rotary positions turn pairs of numbers."""
    for group in model.groups:
        rotated = group.attention.rotary * group.attention.head_dim
        if rotated.denominator != 1 or rotated % 2:
            message = (
                f"rotary = {float(group.attention.rotary)} of head_dim = {group.attention.head_dim} is no even number"
            )
            yield Problem(at(f"model.layers.{group.name}.attention.rotary"), message, "pairs of numbers are rotated")


def groups_have_names_of_their_own(model: Model, at: Places) -> Iterator[Problem]:
    """Accounts begin with the group's name."""
    names = [group.name for group in model.groups]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(at(f"model.layers.{name}"), f"two groups are named `{name}`", "give each group its own name")


def groups_alternate_evenly(model: Model, at: Places) -> Iterator[Problem]:
    """Groups that take turns have the same number of layers."""
    repeats = [group.repeat for group in model.groups]
    if model.alternating and len(set(repeats)) > 1:
        message = f"alternating groups repeat {' and '.join(map(str, repeats))} times"
        yield Problem(at("model.alternating"), message, "groups that take turns repeat equally often")


def bare_models_have_no_layers(model: Model, at: Places) -> Iterator[Problem]:
    """A parameter count stands in place of sizes, not beside them."""
    beside = [key for key in ("d_model", "layers", "vocab") if f"model.{key}" in at.origins]
    if model.bare and beside:
        message = f"`parameters` beside {', '.join(f'`{key}`' for key in beside)}: the sizes say how many there are"
        yield Problem(at("model.parameters"), message, "leave `parameters` out; `expect:` can assert it")


def sequences_are_stated(model: Model, at: Places) -> Iterator[Problem]:
    """Only a bare model can do without sequences."""
    if not model.bare:
        for key in ("seq_len", "micro_batch", "global_batch"):
            if f"run.{key}" not in at.origins:
                yield Problem(at("run"), f"`run` lacks `{key}`", f"`{key}:` a whole number")


def positions_reach(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A learned position table has a row for every token of a sequence."""
    if 0 < model.learned_positions < run.seq_len:
        message = f"seq_len = {run.seq_len}, but the model has {model.learned_positions} learned positions"
        yield Problem(at("run.seq_len"), message, f"at most `seq_len: {model.learned_positions}`")


def compute_has_a_peak(accelerator: Accelerator, precision: Precision, at: Places) -> Iterator[Problem]:
    """The accelerator multiplies in the dtype that the precision computes in."""
    if peak_key(precision.compute) not in accelerator.peak:
        message = f"{accelerator.title} has no {precision.compute} peak, and matmuls compute in it"
        yield Problem(at("precision"), message, f"it has {', '.join(accelerator.peak)}")


def flash_runs(model: Model, kernels: Kernels, precision: Precision, at: Places) -> Iterator[Problem]:
    """Flash attention has half-precision kernels up to head_dim 256."""
    if kernels.attention not in {"flash", "cudnn"} or model.bare:
        return
    name, instead = kernels.attention, "`kernels: {attention: efficient}` or `math`"
    if precision.compute not in FLASH_DTYPES:
        yield Problem(at("kernels.attention"), f"{name} attention cannot run in {precision.compute}", instead)
    for group in model.groups:
        if group.attention.head_dim > FLASH_HEAD_DIM:
            message = f"{name} attention cannot run with head_dim = {group.attention.head_dim}"
            yield Problem(at("kernels.attention"), message, f"at most {FLASH_HEAD_DIM}; {instead}")


def memory_agrees(accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """The driver reports what the label says, or that figure read in binary units: at most 2**30 / 1e9 of it."""
    driver, labelled = accelerator.memory, accelerator.memory_labelled
    if not 0.98 <= driver / labelled <= 2**30 / 1e9 + 0.001:
        message = f"the driver's {write(driver, 'B')} and the label's {write(labelled, 'B')} contradict each other"
        help_text = "GB is 1e9 B, GiB is 2**30 B: an 80 GB card is labelled `80 GB` and its driver reports `81559 MiB`"
        yield Problem(at("accelerator.memory.driver"), message, help_text)


def peaks_are_dense(accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """A peak is the dense figure: twice that of a known device of the same bandwidth or name is its sparse one."""
    for dtype, given in accelerator.peak.items():
        for known in at.known:
            dense = known.peak.get(dtype, math.inf)
            if _alike(accelerator, known) and abs(given - 2 * dense) <= SAME * given:
                message = f"{dtype} = {write(given, 'FLOP/s')} is the sparse figure of {known.title}"
                help_text = f"the dense one is `{write(dense, 'FLOP/s')}`; dense matmuls reach no more"
                yield Problem(at(f"accelerator.peak.{dtype}"), message, help_text)
                break


def curves_are_complete(accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """A fitted price has the constants of its form."""
    for index, curve in enumerate(accelerator.calibration):
        missing = [name for name in FORMS[curve.form] if name not in curve.parameters]
        if missing:
            message = f"{curve.what}: form {curve.form} lacks {', '.join(f'`{name}`' for name in missing)}"
            where = at(f"accelerator.calibration.{index}.parameters")
            yield Problem(where, message, f"it has {', '.join(FORMS[curve.form])}")


def fp16_is_risky(precision: Precision, at: Places) -> Iterator[Problem]:
    """Pure fp16 loses what lies under 6e-8 and overflows above 65504."""
    if precision.weights == "fp16" and precision.master is None:
        message = (
            "pure fp16: updates below 6e-8 vanish, values above 65504 overflow, and no fp32 master copy catches them"
        )
        yield Problem(at("precision"), message, "`bf16-mixed` keeps an fp32 master copy")


def fp8_gradients_are_risky(precision: Precision, at: Places) -> Iterator[Problem]:
    """Gradients kept in fp8 have a range of 2e-3 (e4m3) or 1.5e-5 (e5m2) at the small end."""
    if precision.gradients.startswith(("fp8", "mxfp", "nvfp")):
        message = f"gradients in {precision.gradients}: most of them are too small for its range"
        yield Problem(at("precision.gradients"), message, "keep gradients in bf16 or fp32")


def sequences_are_longer_than_the_model(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A model may be trained beyond the length it was made for, but seldom is."""
    if 0 < model.max_seq_len < run.seq_len:
        message = f"seq_len = {run.seq_len}, but the model was made for {model.max_seq_len}"
        yield Problem(at("run.seq_len"), message, "rotary positions must be rescaled for it")


# The constants of each form, as its formula uses them.
FORMS: Mapping[str, tuple[str, ...]] = {
    "matmul": ("e", "t0", "b", "k0", "c"),
    "grouped": ("e", "t0", "b", "m0"),
    "attention": ("e", "s0", "t0"),
    "bandwidth": ("b", "t0"),
    "collective": ("a", "B"),
    "send": ("a", "B"),
}
RULES: tuple[Rule, ...] = (
    devices_are_the_product,
    nodes_are_whole,
    experts_subdivide,
    experts_exist,
    heads_split,
    hidden_splits,
    vocabulary_splits,
    layers_split,
    interleave_needs_pipeline,
    sequence_needs_tensor,
    sequence_splits,
    batch_splits,
    zero_needs_replicas,
    heads_share_keys,
    rotary_is_even,
    groups_have_names_of_their_own,
    groups_alternate_evenly,
    bare_models_have_no_layers,
    sequences_are_stated,
    positions_reach,
    compute_has_a_peak,
    flash_runs,
    memory_agrees,
    peaks_are_dense,
    curves_are_complete,
)
WARNINGS: tuple[Rule, ...] = (fp16_is_risky, fp8_gradients_are_risky, sequences_are_longer_than_the_model)


def broken(table: tuple[Rule, ...], built: Mapping[str, Any], at: Places) -> Iterator[Problem]:
    """What the rules of a table find, as far as the parts they read could be built."""
    known = {**built, "at": at}
    for rule in table:
        needs = inspect.signature(rule).parameters
        if all(need in known for need in needs):
            yield from rule(**{need: known[need] for need in needs})


def peak_key(dtype: str) -> str:
    """The row of a peak table that prices a matmul in this dtype."""
    return {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}.get(dtype, dtype)


def _alike(one: Accelerator, other: Accelerator) -> bool:
    names = {one.name.lower(), one.title.lower(), *(alias.lower() for alias in one.aliases)}
    known = {other.name.lower(), other.title.lower(), *(alias.lower() for alias in other.aliases)}
    return bool(names & known) or abs(one.bandwidth - other.bandwidth) <= SAME * other.bandwidth


def _divisors(number: int) -> str:
    divisors = [str(divisor) for divisor in range(1, min(number, 4096) + 1) if number % divisor == 0]
    return f"divisors of {number}: {', '.join(divisors[:12])}"


def _multiples(number: int, step: int) -> str:
    below = number // step * step
    near = [str(multiple) for multiple in (below, below + step) if multiple > 0]
    return f"nearest multiples of {step}: {' and '.join(near)}"
