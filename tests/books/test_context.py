"""Context parallelism against more data: outside attention a device cannot tell them apart."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from ledger.books.compiled import Compiled
from ledger.model.program import program
from ledger.model.schedule import roles
from ledger.spec.library import default_library
from tests.model import plans, strategies
from tests.sampling import law, sampled

KERNELS = (("grouped_mm", 1), ("grouped_mm", 2), ("batched_mm", 1), ("eager", 1), ("dense", 1))
STACKS = default_library().names("stack")
TRAINING = [name for name in STACKS if "\nengine:" not in default_library().path("stack", name).read_text("utf-8")]
SHARED: tuple[plans.Mapped, ...] = ({}, {"shared": {"d_ff": 17, "count": 1}})


def pair(whole: plans.Mapped) -> tuple[Compiled, Compiled]:
    """A plan with twice its context over a sequence twice as long, and one of as many devices with data alone.

    Both give a device the same tokens.
    """
    degrees, run, cluster = whole["parallelism"], whole["run"], whole["cluster"]
    context = degrees.get("context", 1)
    devices = {**cluster, "devices": 2 * cluster["devices"], "devices_per_node": 2 * cluster["devices_per_node"]}
    parted = {
        **whole,
        "cluster": devices,
        "parallelism": {**degrees, "context": 2 * context},
        "run": {**run, "seq_len": 2 * run["seq_len"]},
    }
    copies = 2 * context
    plain = {
        **whole,
        "cluster": devices,
        "parallelism": {**degrees, "context": 1, "data": copies * degrees.get("data", 1)},
        "run": {**run, "seq_len": run["seq_len"] // context, "global_batch": copies * run["global_batch"]},
    }
    return plans.compiled(**parted), plans.compiled(**plain)


def outside(compiled: Compiled, *, stocks: bool) -> Counter[tuple[str, str, str, str]]:
    """Flows, or stocks, of all that is not attention; what a layer copies to the host has what attention saves."""
    found: Counter[tuple[str, str, str, str]] = Counter()
    for a in compiled.accounts:
        if (
            "attention/" not in a.account
            and "/activations" not in a.account
            and a.resource.name.startswith(("memory.", "host.")) is stocks
        ):
            found[a.role, a.account, a.when, a.resource] += a.amount * a.times
    return found


def different(whole: plans.Mapped) -> dict[tuple[str, str, str, str], tuple[int, int]]:
    """Accounts that the two disagree on; what is only alive at the peak of one of them is none."""
    parted, plain = pair(whole)
    flows = [outside(compiled, stocks=False) for compiled in (parted, plain)]
    stocks = [outside(compiled, stocks=True) for compiled in (parted, plain)]
    both = [(*flows, key) for key in flows[0] | flows[1]] + [(*stocks, key) for key in stocks[0].keys() & stocks[1]]
    return {key: (first[key], second[key]) for first, second, key in both if first[key] != second[key]}


@law(strategies.parts(), few=3, many=16)
def test_outside_attention_tokens_alone_count(whole: plans.Mapped) -> None:
    """Work, traffic, communication and memory follow from the tokens of a device, not from whose sequence they are."""
    assert different(whole) == {}


@pytest.mark.parametrize(
    ("shared", "kernel", "expert"), sampled([(shared, *kernel) for kernel in KERNELS for shared in SHARED])
)
def test_experts_see_tokens_alone(kernel: str, expert: int, shared: plans.Mapped) -> None:
    """Routed, sent, weighed and joined again, tokens stay on the devices of their part of the sequence."""
    router = {"scores": "sigmoid_of_chosen", "scales": "input"} if kernel == "dense" else {"normalize": True}
    whole = spread(plans.layer(plans.MIXTRAL, mlp={"experts": 8, "router": router, **shared}), expert)
    assert different({**whole, "kernels": {"experts": kernel}}) == {}
    assert misnamed({**whole, "kernels": {"experts": kernel}}) == []


@pytest.mark.parametrize(("expert", "stack"), sampled(product((0, 2), TRAINING)))
def test_every_stack_sees_tokens_alone(stack: str, expert: int) -> None:
    """Whatever a stack runs and keeps, in a dense model and in one whose experts are split."""
    model = plans.layer(plans.MIXTRAL, mlp={"experts": 8}) if expert else plans.LLAMA
    kernels = {"experts": "grouped_mm"} if expert else {}
    assert different({**spread(model, expert or 1), "stack": stack, "kernels": kernels}) == {}


def spread(model: plans.Mapped, expert: int) -> plans.Mapped:
    """Eight devices with two parts of a sequence each, before `pair` doubles both."""
    return {
        "model": {**model, "max_seq_len": 512},
        "cluster": {"base": "h100-400g", "devices": 8, "devices_per_node": 8},
        "parallelism": {"data": 4, "context": 2, "zero": 1, "expert": expert},
        "run": {"seq_len": 64, "micro_batch": 1, "global_batch": 8},
    }


def misnamed(whole: plans.Mapped) -> list[str]:
    """Tensors that are said to be cut over a dim they do not have, so that they would be counted whole."""
    plan = plans.compiled(**whole).plan
    units = [unit for role in roles(plan) for unit in program(plan, role).units]
    operations = [operation for unit in units for operation in (*unit.written, *unit.forward, *unit.backward)]
    tensors = {t for op in operations for t in (*op.inputs, *op.outputs, *op.saves)}
    return [t.name for t in tensors if not {name for name, _ in t.split} <= {dim.name for dim in t.dims}]


@law(strategies.parts(), few=3, many=16)
def test_splits_name_dims_of_their_tensors(whole: plans.Mapped) -> None:
    """Whatever is cut has the dim that is cut."""
    assert misnamed(whole) == []
