"""What `solve` may look for: each input with the values that a plan allows it, and how one is put into the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from math import gcd
from typing import Any

from ledger.books.what_if.sought import Unknown
from ledger.model.dims import symbol
from ledger.spec.inputs import NAMED, violations
from ledger.spec.near import nearest
from ledger.spec.paths import greatest, spec_path
from ledger.spec.plan import Plan
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.stages import growth


def unknown(plan: Plan, path: str) -> Unknown:
    """The input of that path; raises SpecError with near misses for what cannot be looked for."""
    reals = {spec_path(field): field for field in _reals(plan, "")}
    if path in DISCRETE and (path != "model.parameters" or plan.model.bare):
        return DISCRETE[path](plan)
    depth = {f"model.layers.{group.name}.repeat": index for index, group in enumerate(plan.model.groups)}
    if path in depth:
        return _depth(plan, path, depth[path])
    if path in reals:
        return _real(plan, path, reals[path])
    if path == "model.parameters":
        message = f"`{path}` of a model made of layers follows from its shapes"
        deeper = " or ".join(f"`{one}`" for one in depth)
        bare = "write `--set 'model={parameters: 70e9}'` for a bare count"
        raise fault(path, message, f"solve for {deeper}, set another `model.d_model`, or {bare}")
    known = [*(one for one in DISCRETE if one != "model.parameters" or plan.model.bare), *depth, *reals]
    raise fault(path, f"`{path}` is nothing to solve for", nearest(path, known))


def fault(path: str, message: str, help_text: str) -> SpecError:
    """An input that cannot be looked for."""
    where = Location(f"--for {path}", 1, len("--for ") + 1)
    return SpecError([Problem(where, message, help_text)], {where.file: where.file})


def divisors(number: int) -> tuple[int, ...]:
    """What divides a number, from 1."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return tuple(sorted({*small, *(number // one for one in small)}))


def _in_run(field: str) -> Callable[[Plan, Any], Plan]:
    def put(plan: Plan, value: Any) -> Plan:
        return replace(plan, run=replace(plan.run, **{field: value}))

    return put


def _bounded(plan: Plan, field: str, beside: str, step: int) -> Unknown:
    """A factor of the tokens of a step: the schema bounds it, and the tokens of the whole run."""
    path, other, given = f"run.{field}", getattr(plan.run, beside), getattr(plan.run, field)
    most = greatest(path)
    cap = f"a spec states at most {field} = {most:.0f}"
    whole = (plan.run.tokens or 0) // max(other, 1)
    if given <= whole < most:
        most, cap = whole, f"run.tokens / {beside} = {plan.run.tokens} / {other} allows at most {field} = {whole}"
    sign = symbol("seq") if field == "seq_len" else None
    return Unknown(path, given, _in_run(field), _multiples(step), step=step, greatest=most, cap=cap, sign=sign)


def _micro_batch(plan: Plan) -> Unknown:
    if plan.model.bare:
        raise fault(
            "run.micro_batch",
            "no total of a bare model depends on `run.micro_batch`",
            "a bare count has no activations: name a model made of layers",
        )
    share = plan.run.global_batch // plan.parallelism.data
    why = f"divisors of global_batch / data = {share}"
    put = _in_run("micro_batch")
    return Unknown("run.micro_batch", plan.run.micro_batch, put, why, divisors(share), sign=symbol("batch"))


def _seq_len(plan: Plan) -> Unknown:
    mesh = plan.parallelism
    step = mesh.context * (mesh.tensor if mesh.sequence != "off" else 1)
    return _bounded(plan, "seq_len", "global_batch", step)


def _global_batch(plan: Plan) -> Unknown:
    return _bounded(plan, "global_batch", "seq_len", plan.parallelism.data * plan.run.micro_batch)


def _tokens(plan: Plan) -> Unknown:
    return Unknown("run.tokens", plan.run.tokens or 1, _in_run("tokens"), step=1)


def _parameters(plan: Plan) -> Unknown:
    def put(plan: Plan, value: Any) -> Plan:
        return replace(plan, model=replace(plan.model, parameters=value))

    return Unknown("model.parameters", plan.model.parameters or 1, put, step=1, sign=symbol("parameters"))


def _devices(plan: Plan) -> Unknown:
    """More devices are more replicas, which take equal parts of the global batch (a bare model has no batch).

    With more replicas than micro-batches, a micro-batch is what is left of the global batch for each.
    """
    mesh, whole, micro_batches = plan.parallelism, plan.run.global_batch, plan.run.global_batch // plan.run.micro_batch
    rest = mesh.replica

    def put(plan: Plan, value: Any) -> Plan:
        spread, run = replace(plan.parallelism, data=value // rest), plan.run
        if plan.model.bare:
            run = replace(run, global_batch=spread.data * run.micro_batch)
        elif spread.data > micro_batches:
            run = replace(run, micro_batch=whole // spread.data)
        return replace(plan, parallelism=spread, cluster=replace(plan.cluster, devices=value), run=run)

    if plan.model.bare:
        nodes = plan.cluster.devices_per_node
        step = rest * nodes // gcd(rest, nodes)
        return Unknown("cluster.devices", plan.cluster.devices, put, _multiples(step), step=step)
    legal = (data * rest for data in divisors(whole) if micro_batches % data == 0 or data > micro_batches)
    some = tuple(value for value in legal if not violations(put(plan, value)))
    some = some or (plan.cluster.devices,)
    why = f"{rest} x data, where data divides the {micro_batches} micro-batches of a step"
    if plan.run.micro_batch > 1:
        why += f", or more and global_batch = {whole} with a smaller micro_batch"
    largest = put(plan, some[-1])
    cap = (
        f"no more than {some[-1]} devices: data x micro_batch must divide global_batch = {whole}, and is"
        f" {largest.parallelism.data} x {largest.run.micro_batch} there"
    )
    smaller = "" if largest.run.micro_batch == 1 else "`--set run.micro_batch=1` or "
    cap += f"; try {smaller}a larger batch, as in `--set run.global_batch={2 * whole}`"
    return Unknown("cluster.devices", plan.cluster.devices, put, why, some, greatest=some[-1], cap=cap)


def _depth(plan: Plan, path: str, index: int) -> Unknown:
    mesh, groups = plan.parallelism, plan.model.groups
    step = growth(plan.model, mesh) if len(groups) == 1 else 1

    def put(plan: Plan, value: Any) -> Plan:
        deeper = tuple(replace(one, repeat=value) if i == index else one for i, one in enumerate(plan.model.groups))
        return replace(plan, model=replace(plan.model, groups=deeper))

    sign = symbol("layers") if len(groups) == 1 and mesh.pipeline == 1 else None
    return Unknown(path, groups[index].repeat, put, _multiples(step), step=step, sign=sign)


def _real(plan: Plan, path: str, field: str) -> Unknown:
    steps = field.split(".")

    def given(part: Any) -> Any:
        for step in steps:
            part = part[step] if isinstance(part, Mapping) else getattr(part, step)
        return part

    def put(plan: Plan, value: Any) -> Plan:
        changed: Plan = _put(plan, steps, value)
        links = changed.accelerator.scaleup_bandwidth, changed.accelerator.host_bandwidth
        if links == (plan.accelerator.scaleup_bandwidth, plan.accelerator.host_bandwidth):
            return changed
        return replace(changed, accelerator=plan.accelerator.with_links(*links))

    return Unknown(path, given(plan), put, greatest=greatest(path))


def _put(part: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    first, rest = steps[0], steps[1:]
    if isinstance(part, Mapping):
        return {**part, first: _put(part[first], rest, value)}
    return replace(part, **{first: _put(getattr(part, first), rest, value)})


def _reals(part: Any, path: str) -> Iterator[str]:
    """The fields of a plan that are positive real numbers, but for what was fitted."""
    for field in fields(part) if is_dataclass(part) else ():
        inner, name = getattr(part, field.name), f"{path}.{field.name}" if path else field.name
        if path or field.name in {*NAMED, "cluster", "assumptions"}:
            entries = inner.items() if isinstance(inner, Mapping) else ()
            yield from (f"{name}.{key}" for key, value in entries if isinstance(value, float))
            if isinstance(inner, float) and inner > 0:
                yield name
            elif is_dataclass(inner):
                yield from _reals(inner, name)


def _multiples(step: int) -> str:
    return f"multiples of {step}" if step > 1 else ""


DISCRETE: Mapping[str, Callable[[Plan], Unknown]] = {
    "run.micro_batch": _micro_batch,
    "run.seq_len": _seq_len,
    "run.global_batch": _global_batch,
    "run.tokens": _tokens,
    "cluster.devices": _devices,
    "model.parameters": _parameters,
}
