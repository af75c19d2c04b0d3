"""Inputs of a run whose values follow from others: batches, the length of sequences, devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Any

from ledger.books.counts import with_token_count
from ledger.books.what_if import served_sizes
from ledger.books.what_if.sizes import divisors, finest, legal, multiples, sign, stated
from ledger.books.what_if.sought import Settings, Unknown, key_fault
from ledger.spec.inputs import value_at
from ledger.spec.paths import greatest
from ledger.spec.plan import Plan

DOUBLED = 7  # times that the step between lengths is doubled until a rule allows it


def _in_multiples(plan: Plan, path: str, step: int, most: float, cap: str) -> Unknown:
    return Unknown(
        path,
        value_at(plan, path),
        stated(path),
        multiples(step),
        step=step,
        greatest=most,
        cap=cap,
        sign=sign(plan, path),
    )


def _bounded(plan: Plan, field: str, beside: str, step: int) -> Unknown:
    """A factor of the tokens of a step: the schema bounds it, and the tokens of the whole run."""
    path, other, given = f"run.{field}", getattr(plan.run, beside), getattr(plan.run, field)
    most = greatest(path)
    cap = f"a spec states at most {field} = {most:.0f}"
    in_all = with_token_count(plan).run.token_count or 0
    whole = in_all // max(other, 1)
    if given <= whole < most:
        most, cap = whole, f"run.tokens / {beside} = {in_all} / {other} allows at most {field} = {whole}"
    return _in_multiples(plan, path, step, most, cap)


def micro_batch(plan: Plan) -> Unknown:
    """The sequences that a replica works on at once divide those of its step."""
    path = "run.micro_batch"
    if plan.model.bare:
        raise key_fault(
            path,
            f"no total of a bare model depends on `{path}`",
            "a bare count has no activations: name a model made of layers",
        )
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
    """Tokens of the run, to a token; of a run that is stated in images these."""
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
        return served_sizes.devices(plan)
    path, mesh, whole = "cluster.devices", plan.parallelism, plan.run.global_batch
    micro_batches, rest = whole // plan.run.micro_batch, mesh.replica

    def settings(value: Any) -> Settings:
        spread = value // rest
        found: dict[str, object] = {path: value, "parallelism.data": spread}
        if plan.model.bare:
            return found | {"run.global_batch": spread * plan.run.micro_batch}
        return found | ({"run.micro_batch": max(1, whole // spread)} if spread > micro_batches else {})

    if plan.model.bare:
        nodes = plan.cluster.devices_per_node
        step = rest * nodes // gcd(rest, nodes)
        return Unknown(path, plan.cluster.devices, settings, multiples(step), step=step)
    split = [data * rest for data in divisors(whole) if micro_batches % data == 0 or data > micro_batches]
    some = legal(plan, split, settings) or tuple(split)
    why = f"{rest} x data, where data divides the {micro_batches} micro-batches of a step"
    if plan.run.micro_batch > 1:
        why += f", or more and global_batch = {whole} with a smaller micro_batch"
    cap = _cap_of_devices(plan, some[-1], settings(some[-1]))
    return Unknown(path, plan.cluster.devices, settings, why, some, greatest=some[-1], cap=cap)


def _cap_of_devices(plan: Plan, most: int, largest: Settings) -> str:
    whole, micro_batch = plan.run.global_batch, largest.get("run.micro_batch", plan.run.micro_batch)
    smaller = "" if micro_batch == 1 else "`--set run.micro_batch=1` or "
    return (
        f"no more than {most} devices: data x micro_batch must divide global_batch = {whole}, and is"
        f" {largest['parallelism.data']} x {micro_batch} there; try {smaller}a larger batch, as in"
        f" `--set run.global_batch={2 * whole}`"
    )


def loss_chunks(plan: Plan) -> Unknown:
    """At most as many parts as a device has tokens of a sequence."""
    path, most = "kernels.loss_chunks", plan.run.seq_len // plan.parallelism.context
    cap = f"a device has {most} tokens of a sequence"
    return Unknown(path, plan.kernels.loss_chunks, stated(path), step=1, least=2, greatest=max(2, most), cap=cap)


OWN: Mapping[str, Callable[[Plan], Unknown]] = {
    "run.micro_batch": micro_batch,
    "run.seq_len": seq_len,
    "run.global_batch": global_batch,
    "run.tokens": tokens,
    "run.images": images,
    "cluster.devices": devices,
    "model.parameters": parameters,
    "kernels.loss_chunks": loss_chunks,
}
