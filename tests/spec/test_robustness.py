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
