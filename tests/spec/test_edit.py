"""Values put into the text of a spec: comments stay, and the text makes the plan that `--set` makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ledger.spec.edit import edit_text, text_with_settings
from ledger.spec.inputs import changes
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments
from ledger.spec.problems import SpecError
from ledger.spec.reader import read

SPECS = Path(__file__).resolve().parents[2] / "specs"
TEXT = """\
# first
a: 1  # one
m: {x: 1, y: [1, 2], z: {q: 1}}  # flow
b:
  # inside
  c: 3  # three
  d:
    - 1
    - 2  # two
# before e
e:
f: "t # x"
"""
PLANS: dict[str, dict[str, Any]] = {
    "7b-8xh100.yaml": {
        "cluster.devices": 16,
        "parallelism.data": 8,
        "parallelism.tensor": 2,
        "parallelism.schedule": None,
        "recompute": {"every": 2},
        "stack": "torchtitan-2024",
        "model.layers.decoder.repeat": 4,
        "expect": None,
    },
    "deepseek-v3.yaml": {
        "parallelism.data": 2048,
        "parallelism.pipeline": 1,
        "parallelism.schedule": None,
        "parallelism.stages": None,
        "parallelism.tensor": 1,
        "recompute": "full",
        "run.global_batch": 16384,
    },
    "mixtral-8x7b.yaml": {
        "parallelism.data": 32,
        "parallelism.tensor": 2,
        "kernels.norm": "eager",
        "run.micro_batch": 2,
    },
    "llama-3.1-405b-meta.yaml": {
        "parallelism.ends": None,
        "parallelism.interleave": 1,
        "parallelism.stages": [7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7],
        "accelerator.memory.driver": "79 GB",
        "precision.reduction": "bf16",
        "assumptions.headroom": "minimum",
    },
    "lecture/plans/step.yaml": {"run.micro_batch": 2},
}


@pytest.mark.parametrize("name", [name for name in PLANS if (SPECS / name).exists()])
def test_the_text_makes_the_plan_that_overrides_make(name: str) -> None:
    """Flow and block mappings, parts that are named, keys that are not there, and keys that go."""
    path = SPECS / name
    text = text_with_settings(str(path), PLANS[name])
    made, wanted = load_plan(text), load_plan(str(path), assignments(PLANS[name]))
    assert not changes(wanted, made)
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert [line for line in text.splitlines() if line.startswith("#")] == comments


def test_only_what_is_changed_changes() -> None:
    """Values in place, new keys at the end of their mapping, removed ones with their comma or their lines."""
    done = edit_text(
        TEXT, {"a": None, "m.x": None, "m.y": [3], "m.w": "1f1b", "b.d": "off", "b.n.k": {"every": 2}, "e": 5}
    )
    assert done == (
        "# first\nm: {y: [3], z: {q: 1}, w: 1f1b}  # flow\nb:\n  # inside\n  c: 3  # three\n  d: off  # two\n"
        '  n: {k: {every: 2}}\n# before e\ne: 5\nf: "t # x"\n'
    )


@pytest.mark.parametrize(
    "value", ["null", "1e5", "true", "08", "a: b", "x #y", "", "1f1b", "80 GB", 0.1, [1, {"k": None}]]
)
@pytest.mark.parametrize("key", ["a", "m.x", "m.new", "b.c", "b.d", "e", "f", "g", "b.n.k"])
def test_a_value_is_read_as_it_was_given(key: str, value: object) -> None:
    """Whatever it looks like, wherever it stands; everything else is as before."""
    before, after = read(TEXT, "x").plain(), read(edit_text(TEXT, {key: value}), "x").plain()
    assert isinstance(before, dict)
    holder, steps = before, key.split(".")
    for step in steps[:-1]:
        holder = holder.setdefault(step, {})
    holder[steps[-1]] = value
    assert json.dumps(after, sort_keys=True) == json.dumps(before, sort_keys=True)


@pytest.mark.parametrize("key", ["a", "m.x", "m.z.q", "m.z", "m.y", "b.c", "b.d", "e", "f", "none.there"])
def test_a_removed_key_is_not_there(key: str) -> None:
    """And all others are; a key that is not there is no problem."""
    before, after = read(TEXT, "x").plain(), read(edit_text(TEXT, {key: None}), "x").plain()
    assert isinstance(before, dict)
    holder, steps = before, key.split(".")
    for step in steps[:-1]:
        holder = holder.get(step, {})
    holder.pop(steps[-1], None)
    assert after == before


def test_null_takes_a_key_away_in_overrides() -> None:
    """Of the plan and of a part that it names; where nothing is, nothing happens."""
    plan = str(SPECS / "deepseek-v3.yaml")
    taken = ("data", "schedule", "stages", "wrap")
    gone = load_plan(
        plan, ["parallelism.pipeline=1", "run.global_batch=16384", *(f"parallelism.{key}=null" for key in taken)]
    )
    assert gone.parallelism.data == gone.cluster.devices
    assert gone.parallelism.schedule == load_plan(str(SPECS / "70b.yaml")).parallelism.schedule
    assert not gone.parallelism.stages.each
    with pytest.raises(SpecError, match="lacks `run`"):
        load_plan(plan, ["run=null"])
