"""Models that are made of others: what they are called, where their values are from, what is expected of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.spec.inputs import changes
from ledger.spec.load import load_plan
from tests.spec.shelf import LIBRARY, SMALL, loaded

LAYER = (
    "{group: decoder, repeat: 2, attention: {heads: 8, head_dim: 64}, mlp: {kind: plain, d_ff: 2048, activation: gelu}}"
)


@pytest.mark.parametrize(
    ("setting", "keys"),
    [
        (f"model={{base: tiny, layers: [{LAYER}]}}", "layers"),
        ("model={base: tiny, vocab: 64000}", "vocab"),
        ("model.vocab=64000", "vocab"),
        ("model.layers.decoder.repeat=2", "layers"),
    ],
)
def test_a_changed_model_is_another_model(setting: str, keys: str) -> None:
    """Neither the title, nor the publication as its own, nor what was expected of the base is carried over."""
    plan = loaded(setting)
    assert (plan.model.title, plan.model.name) == ("changed from tiny", "tiny-changed")
    assert plan.expect == ()
    as_of = "as of tiny, which the model is changed from (made for tests)"
    assert plan.origins["model"].source in {"", as_of}
    assert plan.origins["model.d_model"].source == as_of
    assert plan.origins[f"model.{keys}"].source != loaded().origins["model.vocab"].source


@pytest.mark.parametrize("setting", ["model={base: tiny}", "model={base: tiny, vocab: 32000}", "model.vocab=32000"])
def test_a_model_that_says_the_same_is_the_same(setting: str) -> None:
    """What is written again, and is as it was, makes no other model."""
    plan = loaded(setting)
    assert (plan.model.title, plan.model.name, plan.expect) == ("Tiny", "tiny", loaded().expect)


def test_what_the_changed_model_states_itself_holds(tmp_path: Path) -> None:
    """Its own title, source and expectations, in a file that is based on another; what is set over that loses them."""
    text = "spec: ledger/1\nbase: tiny\nmodel: Wide\nsource: our notes\nvocab: 64000\nexpect: [{parameters: 7}]\n"
    (tmp_path / "wide.yaml").write_text(text, "utf-8")
    (tmp_path / "plan.yaml").write_text(SMALL.replace("model: tiny", "model: wide.yaml"), "utf-8")
    plan = load_plan(tmp_path / "plan.yaml", library=LIBRARY)
    assert (plan.model.title, plan.model.name) == ("Wide", "wide")
    assert [one.value for one in plan.expect] == [7]
    assert plan.origins["model.vocab"].source == "our notes"
    again = load_plan(tmp_path / "plan.yaml", ["model.d_model=1024"], library=LIBRARY)
    assert (again.model.title, again.expect) == ("changed from wide", ())


def test_an_override_and_the_text_make_the_same_model() -> None:
    """`--set` on a model that is changed in the plan is what the plan's text with it would be."""
    text = SMALL.replace("model: tiny", "model: {base: tiny, vocab: 64000}")
    both = SMALL.replace("model: tiny", "model: {base: tiny, vocab: 64000, d_model: 1024}")
    assert loaded("model.d_model=1024", text=text).digest == loaded(text=both).digest


def test_a_model_written_out_in_the_plan_keeps_its_name() -> None:
    """An override changes it as an edit of the plan would; what its author expects of it is not expected any more."""
    labels = "model: Ours, source: our notes, expect: [{parameters: 7}]"
    inline = f"{{{labels}, d_model: 512, vocab: 32000, layers: [{LAYER}]}}"
    text = SMALL.replace("model: tiny", f"model: {inline}")
    plan = loaded("model.vocab=64000", text=text)
    assert (plan.model.title, plan.origins["model.d_model"].source, plan.expect) == ("Ours", "our notes", ())
    assert loaded(text=text).expect[0].value == 7


def test_differences_are_told_by_value_all_the_same() -> None:
    """A model and what is changed of it differ in the values, not in their names."""
    assert [change.path for change in changes(loaded(), loaded("model.vocab=64000"))] == ["model.vocab"]
