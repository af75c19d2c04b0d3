from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.spec.problems import SpecError
from ledger.spec.reader import read
from tests.spec.shelf import LIBRARY, SMALL, loaded

PARTS = {
    "accelerator": "accelerators/h100-sxm.yaml",
    "cluster": "clusters/h100-400g.yaml",
    "model": "models/tiny.yaml",
    "precision": "precisions/bf16-mixed.yaml",
    "stack": "stacks/pytorch-fsdp2-2025.yaml",
}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**15),
    st.floats(-1e300, 1e300),
    st.sampled_from(["80 GB", "0 s", "-1 %", "tiny", "d_model", "none", "bf16", "", "base", "1e3 FLOP/s", "heads / 0"]),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["base", "value", "source", "heads", "x"]), inner, max_size=3),
    ),
    max_leaves=6,
)


def whole() -> Any:
    """The small plan with all its parts inline and a line of every optional section."""
    plan: Any = read(SMALL, "x").plain()
    for part, file in PARTS.items():
        plan[part] = read((LIBRARY.root / file).read_text("utf-8"), file).plain()
    plan["optimizer"], plan["recompute"] = {"name": "adamw"}, {"every": 2}
    plan["kernels"], plan["expect"] = {"attention": "math"}, [{"memory.peak": "60 GB", "tolerance": "1 %"}]
    plan["assumptions"] = {"price": {"per_device_hour": "2 USD", "date": "2026-05-18", "source": "an offer"}}
    return plan


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in entries for found in paths(inner, (*path, key)))]


def test_the_whole_plan_is_sound() -> None:
    """What the next test spoils is a plan with every section, and loads."""
    assert loaded(text=json.dumps(whole()) + "\n").model.vocab == 32000


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(paths(whole())[1:]), VALUES, st.booleans())
def test_a_spoilt_plan_is_a_plan_or_a_problem(path: tuple[Any, ...], value: Any, removed: bool) -> None:
    """Whatever stands in the place of whatever value, or where nothing stands: a plan or problems, no traceback."""
    plan = whole()
    owner = plan
    for step in path[:-1]:
        owner = owner[step]
    if removed:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    with suppress(SpecError):
        assert loaded(text=json.dumps(plan) + "\n").digest


DEGREES = st.sampled_from([1, 1, 2, 3, 4, 8])
LAYOUTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            ("data", "tensor", "pipeline", "context", "expert", "interleave", "replicate", "shard"), DEGREES
        ),
        "zero": st.integers(0, 3),
        "reshard": st.sampled_from([True, False, "layers"]),
        "wrap": st.sampled_from(["layer", "model", {"every": 2}]),
        "reduce": st.sampled_from(["micro_batch", "step"]),
        "bucket": st.sampled_from(["1 MiB", "1 GB"]),
        "offload": st.lists(st.sampled_from(["optimizer", "weights", "activations"]), min_size=1, unique=True),
        "sequence": st.sampled_from(["off", "save_gathered", "regather"]),
        "schedule": st.sampled_from(["gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_h2", "dual_pipe"]),
        "stages": st.one_of(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.just({"first": 1})),
        "ends": st.sampled_from(["shared", "layer", "own"]),
        "context_exchange": st.sampled_from(["all_gather", "ring", "all_to_all"]),
        "context_balance": st.sampled_from(["zigzag", "none"]),
    },
)
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["tiny", {"parameters": 7e9}]),
        "recompute": st.sampled_from(["full", {"every": 5}, {"segment": 3}, {"components": ["experts"]}]),
        "kernels": st.sampled_from(
            [{"loss": "fused_linear"}, {"loss": "chunked", "loss_chunks": 7}, {"experts": "eager"}]
        ),
        "train": st.sampled_from(
            [{"only": ["head"]}, {"frozen": ["embedding"]}, {"lora": {"rank": 900, "targets": ["q"]}}]
        ),
    },
)


@settings(max_examples=150, deadline=None)
@given(LAYOUTS, CHOICES)
def test_a_layout_that_cannot_be_is_told_with_a_place_and_a_way_out(layout: Any, choices: Any) -> None:
    """Whatever keys contradict each other: each problem stands below the first line, with what to write instead."""
    plan: Any = {**read(SMALL, "x").plain(), "parallelism": layout, **choices}  # type: ignore[dict-item]
    lines = [f"{key}: {json.dumps(value)}" for key, value in plan.items()]
    try:
        loaded(text="\n".join(lines) + "\n")
    except SpecError as error:
        for problem in error.problems:
            assert problem.help, problem.message
            assert problem.where.line > 1, problem.message
