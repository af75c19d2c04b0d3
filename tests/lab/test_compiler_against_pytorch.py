"""Parameters and FLOPs: the compiler's against PyTorch's own counts on meta tensors, to the integer."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.books.compiled import Compiled
from ledger.lab.observed.one_device import flop_counts, parameter_count  # only where torch is installed
from ledger.lab.reference.workload import workload
from ledger.spec.imports.huggingface.config import import_text
from tests.invented_configs import INVENTED
from tests.model import plans
from tests.sampling import sampled

LIBRARY = Path(__file__).parents[2] / "specs" / "models"
MODELS = sorted(path.stem for path in LIBRARY.glob("*.yaml"))
CORES = ("flash", "math", "eager")
WHOLE = ("llama-3-8b",)  # which `make test` has at full depth; of every kind of part, it has two layers
NAMES = ("expect", "group", "model", "order", "source", "spec")  # what a file of a model says beside its structure


def imported(name: str) -> plans.Mapped:
    """The model spec that a config.json of these fields becomes."""
    spec: plans.Mapped = yaml.safe_load(import_text(json.dumps(INVENTED[name]), f"{name}.json"))
    return {key: value for key, value in spec.items() if key != "spec"}


def library(name: str) -> plans.Mapped:
    """A model of the library, as its file has it."""
    spec: plans.Mapped = yaml.safe_load((LIBRARY / f"{name}.yaml").read_text(encoding="utf-8"))
    return {key: value for key, value in spec.items() if key not in {"spec", "expect"}}


def shallow(name: str) -> plans.Mapped:
    """A model of the library, two layers of each group deep; of blocks as deep as it is, since some follow none."""
    model = library(name)
    if "stem" in model:
        return model
    model = plans.layer(model, repeat=2)
    return {**model, "order": [group["group"] for group in model["layers"]]} if "order" in model else model


def cores(model: plans.Mapped) -> tuple[str, ...]:
    """The attention kernels that run a model: eager alone knows sinks and adds biases; blocks have none."""
    if "stem" in model:
        return ("eager",)
    own = ("sinks", "relative_buckets")
    return ("eager",) if any(group.get("attention", {}).get(key) for group in model["layers"] for key in own) else CORES


def compiled(model: plans.Mapped, seq_len: int, core: str = "flash", **parts: Any) -> Compiled:
    """Three sequences of a model on one device; those of a model of images are as long as an image makes them.

    An encoder reads a longer source; answers to sound are as long as there are positions.
    """
    answers = "sound" in model
    length = min(seq_len, model["embedding"]["learned_positions"]) if answers else seq_len
    run = {"micro_batch": 3, "global_batch": 3} | ({} if "image" in model else {"seq_len": length})
    if not answers and any("reads" in group for group in model["layers"]):
        run["source_len"] = seq_len + 16
    scaled = any(group.get("mlp", {}).get("router", {}).get("scales") == "input" for group in model["layers"])
    experts = {"experts": "dense"} if scaled else {}  # all that transformers has for them
    scan = (
        {"scan": "eager"} if any("state" in group.get("attention", {}) for group in model["layers"]) else {}
    )  # so does torch
    return plans.compiled(model=model, run=run, kernels={"attention": core, **experts, **scan}, **parts)


def counted(plan: Compiled) -> tuple[int, int]:
    """FlopCounterMode's forward, and forward with backward."""
    found = flop_counts(workload(plan.plan))
    return found.forward, found.step


def predicted(plan: Compiled) -> tuple[int, int]:
    """The same two from the ledger."""
    return int(plan.totals["flops.counter.forward"]), int(plan.totals["flops.counter.step"])


def said(node: Any, path: str = "") -> Iterator[Hashable]:
    """Every field that a model states, and its value where that is a word or a switch: all but sizes and names."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key not in NAMES:
                yield from said(value, f"{path}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from said(value, path)
    else:
        yield path, node if isinstance(node, str | bool) and not str(node)[0].isdigit() else ""


def choices(case: tuple[str, str]) -> set[Hashable]:
    """What is there once: every core, and all that any model of the library says but its sizes."""
    name, core = case
    return {core, *said(library(name))}


def of_invented(name: str) -> set[Hashable]:
    """The same of an invented model; one of several kinds of layers is another one."""
    model = imported(name)
    return {len(model["layers"]) > 1, *said(model)}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in WHOLE else pytest.mark.long) for n in MODELS])
def test_parameters_and_flops_of_the_library(name: str) -> None:
    """Every model of the library, whole, has PyTorch's parameters and FLOPs, with flash attention if it can."""
    model = library(name)
    plan = compiled(model, 997, cores(model)[0])
    assert plan.totals["parameters"] == parameter_count(plan.plan.model)
    assert predicted(plan) == counted(plan)


@pytest.mark.parametrize(
    ("name", "core"), sampled([(name, core) for name in MODELS for core in cores(library(name))], choices)
)
def test_flops_of_every_core_at_two_lengths(name: str, core: str) -> None:
    """Two layers of each kind at full width: linear and quadratic terms in the sequence length, and parameters."""
    model = shallow(name)
    for seq_len in (509, 1024):
        plan = compiled(model, seq_len, core)
        assert predicted(plan) == counted(plan)
    assert plan.totals["parameters"] == parameter_count(plan.plan.model)


# Falcon's kernels cannot be chosen, and StableLM norms head by head.
JUDGED = [name for name in INVENTED if not name.startswith(("falcon", "stablelm, normed"))]


@pytest.mark.parametrize("name", sampled(JUDGED, of_invented, str))
def test_invented_models(name: str) -> None:
    """A configuration that nobody has published compiles to what transformers builds from it."""
    model = imported(name)
    plan = compiled(model, 37, cores(model)[0])
    assert plan.totals["parameters"] == parameter_count(plan.plan.model)
    assert predicted(plan) == counted(plan)


@pytest.mark.parametrize(
    "name",
    [
        "gemma2, odd depth",
        *(pytest.param(n, marks=pytest.mark.long) for n in ("llama, own head size", "gpt2, odd widths")),
    ],
)
def test_layout_and_recomputation_leave_the_counters_alone(name: str) -> None:
    """`flops.counter.*` describes one micro-batch of the unsharded plan, whatever the plan does with it."""
    model = imported(name)
    sharded = plans.compiled(
        model=model,
        run={"seq_len": 37, "micro_batch": 3, "global_batch": 12},
        kernels={"attention": "flash"},
        recompute="full",
        cluster={"base": "h100-400g", "devices": 2},
        parallelism={"data": 2, "zero": 3},
    )
    assert predicted(sharded) == predicted(compiled(model, 37))
