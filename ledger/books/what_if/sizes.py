"""Inputs whose values are numbers in order, as the field table has them: sizes, counts of layers, real numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd
from typing import Any

import sympy

from ledger.books.counts import with_token_count
from ledger.books.what_if.sought import REACH, Settings, Unknown, key_fault, stated_as, with_settings
from ledger.model.dims import LETTERS, symbol
from ledger.spec.inputs import value_at
from ledger.spec.near import nearest
from ledger.spec.paths import bounds, greatest, key_of, parent_of, size_type, unit
from ledger.spec.plan import Lengths, Plan
from ledger.spec.problems import Problem, SpecError
from ledger.spec.stages import depth, growth
from ledger.spec.values import Integer, Size

DOUBLED = 7  # times that the step between lengths is doubled until a rule allows it


def _bounded(plan: Plan, field: str, other_field: str, step: int) -> Unknown:
    """A factor of the tokens of a step: the schema bounds it, and the tokens of the whole run."""
    path, factor, current = f"run.{field}", getattr(plan.run, other_field), getattr(plan.run, field)
    most = greatest(path)
    cap = f"a spec states at most {field} = {most:.0f}"
    in_all = with_token_count(plan).run.token_count or 0
    allowed = in_all // max(factor, 1)
    if current <= allowed < most:
        most, cap = allowed, f"run.tokens / {other_field} = {in_all} / {factor} allows at most {field} = {allowed}"
    why, letter = multiples(step), sign(plan, path)
    return Unknown(path, value_at(plan, path), stated(path), why, step=step, greatest=most, cap=cap, sign=letter)


def micro_batch(plan: Plan) -> Unknown:
    """The sequences that a replica works on at once, which divide those of its step."""
    path = "run.micro_batch"
    if plan.model.bare:
        message = f"no total of a bare model depends on `{path}`"
        raise key_fault(path, message, "a bare count has no activations: name a model made of layers")
    share = max(1, plan.run.global_batch // plan.parallelism.data)
    why = f"divisors of global_batch / data = {share}"
    return Unknown(path, plan.run.micro_batch, stated(path), why, divisors(share), sign=sign(plan, path))


def seq_len(plan: Plan) -> Unknown:
    """Sequences split evenly over the devices that share them; of images they have one length.

    Products of narrow formats take rows in multiples of 16.
    """
    if plan.model.image:
        message = f"`run.seq_len` follows from the image: {plan.model.image.tokens} tokens"
        raise key_fault("run.seq_len", message, "its size is the model's: `model.image`")
    mesh = plan.parallelism
    shared = mesh.context * (mesh.tensor if mesh.sequence != "off" else 1)
    steps = [shared * 2**power for power in range(DOUBLED)]
    step = finest(plan, plan.run.seq_len, stated("run.seq_len"), steps)
    return _bounded(plan, "seq_len", "global_batch", step)


def global_batch(plan: Plan) -> Unknown:
    """A step is a whole number of micro-batches on every replica."""
    return _bounded(plan, "global_batch", "seq_len", plan.parallelism.data * plan.run.micro_batch)


def tokens(plan: Plan) -> Unknown:
    """Tokens of the run, to a token; raises SpecError where the plan states images."""
    if plan.run.images:
        raise key_fault("run.tokens", "the plan states its length in images", "`--for run.images`")
    return Unknown("run.tokens", with_token_count(plan).run.token_count or 1, stated("run.tokens"), step=1)


def images(plan: Plan) -> Unknown:
    """Images of the run, to an image."""
    return Unknown("run.images", plan.run.images or 1, stated("run.images"), step=1)


def parameters(plan: Plan) -> Unknown:
    """The count of a bare model."""
    path = "model.parameters"
    if plan.model.bare:
        return Unknown(path, plan.model.parameters or 1, stated(path), step=1, sign=sign(plan, path))
    deeper = " or ".join(f"`model.layers.{group.name}.repeat`" for group in plan.model.groups)
    raise key_fault(
        path,
        f"`{path}` of a model made of layers follows from its shapes",
        f"solve for {deeper}, for `model.d_model` (with `--keep shape` for all of them in proportion), or write"
        " `--set 'model={parameters: 70e9}'` for a bare count",
    )


def devices(plan: Plan) -> Unknown:
    """More devices are more replicas, which take equal parts of the global batch (a bare model has no batch).

    With more replicas than micro-batches, a micro-batch is what is left of the global batch for each.
    """
    if plan.serve:
        return service_devices(plan)
    path, mesh, batch = "cluster.devices", plan.parallelism, plan.run.global_batch
    micro_batches, replica_devices = batch // plan.run.micro_batch, mesh.replica

    def settings(value: Any) -> Settings:
        spread = value // replica_devices
        changes: dict[str, object] = {path: value, "parallelism.data": spread}
        if plan.model.bare:
            return changes | {"run.global_batch": spread * plan.run.micro_batch}
        return changes | ({"run.micro_batch": max(1, batch // spread)} if spread > micro_batches else {})

    if plan.model.bare:
        nodes = plan.cluster.devices_per_node
        step = replica_devices * nodes // gcd(replica_devices, nodes)
        return Unknown(path, plan.cluster.devices, settings, multiples(step), step=step)
    split = [data * replica_devices for data in divisors(batch) if micro_batches % data == 0 or data > micro_batches]
    counts = legal(plan, split, settings) or tuple(split)
    why = f"{replica_devices} x data, where data divides the {micro_batches} micro-batches of a step"
    if plan.run.micro_batch > 1:
        why += f", or more and global_batch = {batch} with a smaller micro_batch"
    cap = _cap_of_devices(plan, counts[-1], settings(counts[-1]))
    return Unknown(path, plan.cluster.devices, settings, why, counts, greatest=counts[-1], cap=cap)


def _cap_of_devices(plan: Plan, most: int, largest: Settings) -> str:
    batch, micro_batch = plan.run.global_batch, largest.get("run.micro_batch", plan.run.micro_batch)
    smaller = "" if micro_batch == 1 else "`--set run.micro_batch=1` or "
    return (
        f"no more than {most} devices: data x micro_batch must divide global_batch = {batch}, and is"
        f" {largest['parallelism.data']} x {micro_batch} there; try {smaller}a larger batch, as in"
        f" `--set run.global_batch={2 * batch}`"
    )


def loss_chunks(plan: Plan) -> Unknown:
    """At most as many parts as a device has tokens of a sequence."""
    path, most = "kernels.loss_chunks", plan.run.seq_len // plan.parallelism.context
    cap = f"a device has {most} tokens of a sequence"
    return Unknown(path, plan.kernels.loss_chunks, stated(path), step=1, least=2, greatest=max(2, most), cap=cap)


UNKNOWN_BY_PATH: Mapping[str, Callable[[Plan], Unknown]] = {
    "run.micro_batch": micro_batch,
    "run.seq_len": seq_len,
    "run.global_batch": global_batch,
    "run.tokens": tokens,
    "run.images": images,
    "cluster.devices": devices,
    "model.parameters": parameters,
    "kernels.loss_chunks": loss_chunks,
}


# --- inputs of a plan that serves ---


def length(_: Plan, path: str, lengths: Lengths) -> Unknown:
    """Tokens of every prompt, or of every output; of a distribution nothing says which of its lengths is meant."""
    if len(lengths.parts) > 1:
        help_text = f"state one length for all, as in `--set '{path}={lengths.longest} tokens'`"
        raise key_fault(path, f"`{path}` is a distribution of lengths", help_text)

    def settings(value: Any) -> Settings:
        return {path: f"{value} tokens"}

    return Unknown(path, lengths.longest, settings, step=1)


def service_devices(plan: Plan) -> Unknown:
    """More devices are more replicas, which share the sequences in flight."""
    replica = plan.parallelism.replica

    def settings(value: Any) -> Settings:
        return {"cluster.devices": value, "parallelism.data": value // replica}

    most = greatest("cluster.devices")
    return Unknown("cluster.devices", plan.cluster.devices, settings, multiples(replica), step=replica, greatest=most)


# --- sizes of a model that grow in proportion ---

WIDTHS, SHAPE = "widths", "shape"
KEPT: Mapping[str, str] = {
    WIDTHS: "d_model, heads and d_ff keep their proportions, and the layers their number",
    SHAPE: "d_model, heads, d_ff and the number of layers keep their proportions",
}


def proportional_sizes(plan: Plan, keep: str) -> Mapping[str, int]:
    """The sizes that stay in proportion, with their values; of one head, of the vocabulary and of latents nothing does.

    Key and value heads grow where there are as many as query heads, and stay where queries share them (as from Llama 3
    8B to 405B: Grattafiori et al. 2024, arXiv 2407.21783, table 3).
    """
    sizes = {"model.d_model": plan.model.d_model}
    for group in plan.model.groups:
        at, attention, shared = f"model.layers.{group.name}", group.attention, group.mlp.shared
        sizes[f"{at}.attention.heads"] = attention.heads
        shared_heads = f"{at}.attention.kv_heads"
        if shared_heads in plan.origins and attention.kv_heads == attention.heads:
            sizes[shared_heads] = attention.kv_heads
        sizes |= {f"{at}.mlp.d_ff": group.mlp.d_ff} if group.mlp.d_ff else {}
        sizes |= {f"{at}.mlp.shared.d_ff": shared.d_ff} if shared else {}
        sizes |= {f"{at}.repeat": group.repeat} if keep == SHAPE else {}
    return sizes


def proportional(plan: Plan, path: str, keep: str) -> Unknown:
    """One size of a model with those in proportion to it; all are whole, and rules of the spec refuse none."""
    sizes = proportional_sizes(plan, keep) if plan.model.groups else {}
    if path not in sizes:
        raise key_fault(path, f"`{path}` is no size that `--keep {keep}` keeps in proportion", nearest(path, [*sizes]))
    parts = gcd(*sizes.values())
    unit = sizes[path] // parts  # of the size at `path` in the smallest model of this shape

    def settings(value: Any) -> Settings:
        return {name: unscaled * value // sizes[path] for name, unscaled in sizes.items()}

    fine = (step for step in divisors(parts) if not with_settings(plan, settings((parts + step) * unit)).problems)
    step = next(fine, parts) * unit
    most = min(greatest(name) * sizes[path] / unscaled for name, unscaled in sizes.items())
    cap = f"a spec states no larger sizes of this shape than with {key_of(path)} = {most:.0f}"
    return Unknown(path, sizes[path], settings, f"multiples of {step}: {KEPT[keep]}", step=step, greatest=most, cap=cap)


ITSELF = ("batch", "seq", "d_model", "vocab", "positions", "parameters")  # symbols of values as they are stated
FINEST = 4096  # the largest step between legal sizes that is looked for


def divisors(number: int) -> tuple[int, ...]:
    """What divides a number, from 1."""
    small = [divisor for divisor in range(1, int(number**0.5) + 1) if number % divisor == 0]
    return tuple(sorted({*small, *(number // divisor for divisor in small)}))


def stated(path: str) -> Callable[[Any], Settings]:
    """The setting of a value alone, with its unit."""
    base = unit(path)
    return lambda value: stated_as(path, value, base)


def sign(plan: Plan, path: str) -> sympy.Symbol | None:
    """The symbol that stands for the very value at a path in formulas; None where there is none."""
    groups = plan.model.groups
    only = f"model.layers.{groups[0].name}.repeat" if len(groups) == 1 else ""
    if path == only and plan.parallelism.pipeline == 1:
        return symbol("layers")
    for row in LETTERS:
        itself = row.name in ITSELF or (row.part and row.name not in {"shared_d_ff", "rotary_dim", "capacity_factor"})
        names = [group.name for group in groups if row.path.replace("{group}", group.name) == path]
        if itself and (row.path == path or names):
            return symbol(row.name, names[0] if names and len(groups) > 1 else "")
    return None


def layer_count(plan: Plan, path: str, current: int) -> Unknown:
    """Layers of which something is said: from one to all, as far as the spec's rules allow."""
    counts = range(1, depth(plan.model) + 1)
    # beside what the part says, or instead of it
    for settings in (stated(path), lambda value: {parent_of(path): {key_of(path): value}}):
        if legal_counts := legal(plan, counts, settings):
            return Unknown(path, current, settings, f"{legal_counts[0]} to {legal_counts[-1]} layers", legal_counts)
    raise cannot_vary(path, with_settings(plan, stated(path)(1)).problems)


def size(plan: Plan, path: str, now: int) -> Unknown:
    """A whole number in the finest steps from the given one that the spec's rules allow."""
    kind, put = size_type(path), stated(path)
    step = 1
    if isinstance(kind, Size):  # in steps that a rule may ask for
        due = {1, plan.parallelism.tensor, growth(plan.model, plan.parallelism)}
        step = finest(plan, now, put, sorted({*due, *divisors(now or 1), *divisors(plan.cluster.devices)}))
    least = now % step or step
    if not now and (refused := with_settings(plan, put(least)).problems):
        raise cannot_vary(path, refused)
    if isinstance(kind, Integer) and kind.least is not None and least < kind.least:
        least += -(-(kind.least - least) // step) * step
    most = greatest(path)
    cap = f"a spec states at most {most:.0f}"
    if now:
        least = _outermost(plan, put, now, least, step)
        bound = _outermost(plan, put, now, int(min(most, REACH)) // step * step + now % step, step)
        if bound <= most - step:
            cap = "; ".join(problem.message for problem in with_settings(plan, put(bound + step)).problems)
        most = min(most, bound)
    why = multiples(step) if not least % step else f"{least}, {least + step}, ..., in steps of {step}"
    given_steps = why if step > 1 else ""
    return Unknown(path, now, put, given_steps, step=step, least=least, greatest=most, cap=cap, sign=sign(plan, path))


def _outermost(plan: Plan, settings: Callable[[Any], Settings], current: int, end: int, step: int) -> int:
    """The legal value nearest to an end, where all from the given one up to it are legal."""
    if not _refused(plan, settings(end)):
        return end
    inner, outer = 0, (end - current) // step
    while abs(outer - inner) > 1:
        middle = (inner + outer) // 2
        inner, outer = (inner, middle) if _refused(plan, settings(current + middle * step)) else (middle, outer)
    return current + inner * step


def finest(plan: Plan, current: int, settings: Callable[[Any], Settings], steps: Sequence[int]) -> int:
    """The first of the steps up from the given value that no rule refuses; the first where all are refused."""
    legal_steps = (step for step in steps if 0 < step <= FINEST and not _refused(plan, settings(current + step)))
    return next(legal_steps, steps[0])


def real(path: str, current: float) -> Unknown:
    """A real number above zero."""
    least, most = bounds(path)
    return Unknown(path, current, stated(path), smallest=least, greatest=most)


def legal(plan: Plan, values: Iterable[int], settings: Callable[[Any], Settings]) -> tuple[int, ...]:
    """The values that no rule of the spec refuses."""
    return tuple(value for value in values if not _refused(plan, settings(value)))


def _refused(plan: Plan, settings: Settings) -> bool:
    return bool(with_settings(plan, settings).problems)


def cannot_vary(path: str, problems: Iterable[Problem]) -> SpecError:
    """That a plan as it is leaves an input no other value, and why."""
    reasons = "; ".join(dict.fromkeys(problem.message for problem in problems))
    return key_fault(path, f"`{path}` cannot vary in this plan", reasons)


def multiples(step: int) -> str:
    """Which values are legal, in words; nothing where all are."""
    return f"multiples of {step}" if step > 1 else ""
