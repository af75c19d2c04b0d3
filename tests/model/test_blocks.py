"""Blocks: layers that their author writes whole, with windows, batch norm and pooling, between sizes of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import ledger
from ledger.spec.problems import SpecError
from tests.model import plans
from tests.model.plans import LLAMA, Mapped

IMAGES, SIDE, COLOURS, WIDE, TALL, CLASSES = 3, 29, 5, 14, 15, 11  # windows of 3 with a stride of 2 over 29 are 15
ROWS = TALL // 2 + 1  # and over those 8
NARROW = 22
STEM: Mapped = {
    "input": "batch colours height width",
    "dims": {"colours": COLOURS, "height": SIDE, "width": SIDE, "wide": WIDE, "rows": TALL, "columns": TALL,
             "tap_row": 3, "tap_column": 3},
    "weights": {"w_first": "wide colours tap_row tap_column"},
    "steps": [
        {
            "name": "first",
            "einsum": "batch colours (2*rows+tap_row-1) (2*columns+tap_column-1), wide colours tap_row tap_column "
            "-> batch wide rows columns",
            "weight": "w_first",
        },
        {"name": "active", "activation": "relu"},
    ],
}  # fmt: skip
SHRINKING: Mapped = {
    "input": "batch wide rows columns",
    "dims": {"wide": WIDE, "rows": TALL, "columns": TALL, "narrow": NARROW, "few_rows": ROWS, "few_columns": ROWS,
             "tap_row": 3, "tap_column": 3},
    "weights": {"w_mix": "narrow wide tap_row tap_column", "factor": "narrow", "addend": "narrow"},
    "steps": [
        {
            "name": "mix",
            "einsum": "batch wide (2*few_rows+tap_row-1) (2*few_columns+tap_column-1), narrow wide tap_row tap_column "
            "-> batch narrow few_rows few_columns",
            "weight": "w_mix",
        },
        {"name": "normed", "norm": "batch", "weight": "factor", "bias": "addend"},
        {"name": "active", "activation": "relu"},
    ],
}  # fmt: skip
SAME: Mapped = {
    "input": "batch narrow few_rows few_columns",
    "dims": {"narrow": NARROW, "few_rows": ROWS, "few_columns": ROWS, "tap_row": 3, "tap_column": 3},
    "weights": {"w_each": "narrow tap_row tap_column"},
    "steps": [
        {
            "name": "each",
            "einsum": "batch narrow (few_rows+tap_row-1) (few_columns+tap_column-1), narrow tap_row tap_column "
            "-> batch narrow few_rows few_columns",
            "weight": "w_each",
        },
        {"name": "added", "add": ["each", "x"]},
        {"name": "active", "activation": "relu"},
    ],
}
MODEL: Mapped = {
    "model": "Small blocks",
    "source": "invented here",
    "d_model": NARROW,
    "image": {"height": SIDE, "width": SIDE, "channels": COLOURS},
    "head": {"classes": CLASSES},
    "stem": STEM,
    "layers": [
        {"group": "shrinking", "repeat": 1, "block": SHRINKING},
        {"group": "same", "repeat": 2, "block": SAME},
    ],
}


def totals(model: Mapped = MODEL, **parts: Any) -> Mapping[str, Any]:
    """The totals of the small network, three images at once."""
    run = {"micro_batch": IMAGES, "global_batch": IMAGES}
    return plans.compiled(
        **{"model": model, "run": run, "precision": "bf16-true", "optimizer": "momentum", **parts}
    ).totals


def test_parameters_and_products_are_those_of_the_filters() -> None:
    """Each filter by its places: of the stem 9 x 5 x 14, then 9 x 14 x 22, and of each channel by itself 9 x 22."""
    found = totals()
    filters = [9 * COLOURS * WIDE, 9 * WIDE * NARROW, 2 * 9 * NARROW]
    assert found["parameters"] == sum(filters) + 2 * NARROW + CLASSES * NARROW
    products = [size * places**2 for size, places in zip(filters, (TALL, ROWS, ROWS), strict=True)]
    forward = 2 * IMAGES * (sum(products) + NARROW * CLASSES)
    assert found["flops.counter.forward"] == forward
    assert found["flops.counter.step"] == 3 * forward - 2 * IMAGES * products[0]  # pixels have no gradient


def test_what_enters_a_layer_is_saved_once() -> None:
    """A ReLU saves its result, which is what the next convolution reads: each map counts once, in two bytes."""
    found = totals()
    maps = IMAGES * NARROW * ROWS**2
    assert found["saved.per_layer.shrinking"] == 2 * 2 * maps + 2 * 4 * NARROW  # read by norm, by ReLU; statistics
    assert found["saved.per_layer.same"] == 2 * maps
    stem = 2 * IMAGES * (COLOURS * SIDE**2 + WIDE * TALL**2)
    head = 2 * IMAGES * NARROW + 4 * IMAGES * CLASSES + 8 * IMAGES + 4  # means, log-softmax, classes, weight of a mean
    assert found["saved.total"] == stem + found["saved.per_layer.shrinking"] + 2 * 2 * maps + head


def test_the_first_block_that_keeps_its_input_stands_apart() -> None:
    """Behind a stem whose result nobody saves, the first of equal blocks saves what it reads, and the others do not."""
    stem = {**STEM, "steps": STEM["steps"][:1]}
    sizes = {"narrow": WIDE, "few_rows": TALL, "few_columns": TALL}
    alone = {"group": "same", "repeat": 3, "block": {**SAME, "dims": {**SAME["dims"], **sizes}}}
    found = totals({**MODEL, "d_model": WIDE, "stem": stem, "layers": [alone]})
    each = 2 * IMAGES * WIDE * TALL**2
    assert found["saved.per_layer.same"] == each
    assert found["saved.per_layer.same.first"] == 2 * each


def test_a_block_like_another_has_its_steps_with_sizes_of_its_own() -> None:
    """Steps written once are those written twice."""
    like = {"group": "again", "repeat": 2, "block": {"like": "same", "dims": {"tap_row": 5}}}
    same = {**MODEL["layers"][1], "repeat": 1}
    written = {"group": "again", "repeat": 2, "block": {**SAME, "dims": {**SAME["dims"], "tap_row": 5}}}
    for model in (like, written):
        taps = {**model, "block": {**model["block"], "dims": {**model["block"]["dims"], "tap_row": 3}}}
        found = totals({**MODEL, "layers": [MODEL["layers"][0], same, taps]})
        assert found["parameters"] == totals()["parameters"] + 9 * NARROW
    with pytest.raises(SpecError) as caught:
        totals({**MODEL, "layers": [MODEL["layers"][0], same, like]})
    assert "few_rows = 8, but windows of tap_row = 5 over few_rows = 8 are 6" in str(caught.value)


def test_windows_over_tokens_leave_a_decoder_what_they_still_read() -> None:
    """A window of four tokens keeps the three before; one that sees later tokens has no cache at all."""
    taps, wide = 4, 20
    mixer: Mapped = {
        "kind": "custom",
        "dims": {"taps": taps, "wide": wide},
        "weights": {"w_up": "wide d_model", "w_each": "wide taps", "w_down": "d_model wide"},
        "steps": [
            {"name": "up", "einsum": "batch seq d_model, wide d_model -> batch seq wide", "weight": "w_up"},
            {"name": "each", "einsum": "batch (seq+taps-3) wide, wide taps -> batch seq wide", "weight": "w_each"},
            {"name": "down", "einsum": "batch seq wide, d_model wide -> batch seq d_model", "weight": "w_down"},
        ],
    }
    layers = [{**LLAMA["layers"][0], "attention": mixer}]
    causal = plans.compiled(model={**LLAMA, "layers": layers}).totals
    sequences, copies = plans.ONE_DEVICE["run"]["micro_batch"], layers[0]["repeat"]
    assert causal["kv_cache"] == copies * sequences * (taps - 1) * wide * 2
    odd = copy.deepcopy(mixer)
    odd["dims"]["taps"] = 3
    odd["steps"][1]["einsum"] = "batch (seq+taps-1) wide, wide taps -> batch seq wide"
    assert "kv_cache" not in plans.compiled(model={**LLAMA, "layers": [{**layers[0], "attention": odd}]}).totals


def changed(change: Callable[[dict[str, Any]], Any]) -> Mapped:
    """The network with something of it changed."""
    model = copy.deepcopy(dict(MODEL))
    change(model)
    return model


def _step(group: int, index: int, **fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda model: model["layers"][group]["block"]["steps"][index].update(fields)


def _dims(group: int, **sizes: int) -> Callable[[dict[str, Any]], Any]:
    return lambda model: model["layers"][group]["block"]["dims"].update(sizes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.pop("stem"), "a block, and the model has no stem"),
        (lambda model: model["image"].update(patch=29), "a stem reads pixels, and no patches"),
        (
            lambda model: model["image"].update(height=30),
            "the stem starts from `batch colours height width` (5 x 29 x 29)",
        ),
        (lambda model: model.update(d_model=23), "d_model = 23, and `same` gives 22 channels"),
        (lambda model: model["layers"].reverse(), "`same` starts from 22 x 8 x 8, and the stem gives 14 x 15 x 15"),
        (
            lambda model: model["layers"][0].update(repeat=2),
            "`shrinking` starts from 14 x 15 x 15, and the layer before",
        ),
        (lambda model: model["layers"][1].update(norms="post"), "`norms` beside the block of `same`"),
        (lambda model: model.update(norm={"kind": "rms"}), "`norm` of a model of blocks"),
        (_dims(0, few_rows=7), "few_rows = 7, but windows of tap_row = 3 over rows = 15 are 8"),
        (_step(0, 0, weight="factor"), "the second operand is `narrow`"),
        (_step(0, 1, weight="w_mix"), "bias `addend` is `narrow`"),
        (_step(0, 2, weight="factor"), "a weight of activation"),
        (_step(1, 1, add=["each", "gone"]), "`gone` is no result of a step before"),
        (_step(1, 2, activation=None, max="batch narrow few_rows few_columns -> batch narrow"), "max of"),
    ],
)
def test_what_does_not_fit_is_told(change: Callable[[dict[str, Any]], Any], words: str) -> None:
    """Each problem says what is wrong in the words of the steps."""
    model = changed(change)
    for group in model["layers"]:
        for step in group["block"]["steps"]:
            for key in [key for key, value in step.items() if value is None]:
                del step[key]
    with pytest.raises(SpecError) as caught:
        totals(model)
    assert any(words in problem.message for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"recompute": "selective"}, "recompute selective of a model of blocks is not modelled"),
        (
            {"cluster": {"base": "single", "devices": 2}, "parallelism": {"data": 2, "zero": 1}},
            "zero = 1 is not modelled",
        ),
        ({"cluster": {"base": "single", "devices": 2}, "parallelism": {"pipeline": 2}}, "pipeline = 2 is not modelled"),
        ({"train": {"lora": {"rank": 4, "targets": ["q"]}}}, "adapters of a model of blocks"),
    ],
)
def test_what_is_not_modelled_is_refused(parts: Mapped, words: str) -> None:
    """No layout or policy is taken that means something else of blocks."""
    with pytest.raises(SpecError) as caught:
        totals(**parts)
    assert any(words in problem.message for problem in caught.value.problems), caught.value.problems


def test_there_is_no_napkin_of_blocks() -> None:
    """6ND counts a weight once a token; what a plan of blocks lacks of it says why."""
    compiled = ledger.compile("specs/resnet-50.yaml")
    assert not [key for key in compiled.totals if key.startswith("napkin.") and key != "napkin.max_parameters"]
    assert "images_per_second" in compiled.totals
    (run,) = [check for check in compiled.verdict.checks if check.name == "run"]
    assert "no napkin" in run.detail
