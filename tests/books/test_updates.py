"""Warnings of updates that a number format loses, with their arithmetic; silence where nothing is lost."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest

import ledger
from ledger.books.results import Check
from ledger.books.updates import LAST, STEP
from ledger.model.encodings import encoded

UPDATES, AVERAGES = "precision.updates", "precision.averages"
LORA = "train={lora: {rank: 8, targets: [q, v]}}"
MADE_FOR_IT = "optimizer={base: adamw, rounding: stochastic, states: {second_moment: {rounding: stochastic}}}"


def warnings(*settings: str, spec: str = "8b") -> dict[str, Check]:
    """Lines of the checklist on number formats, by name."""
    checks = ledger.compile(spec, ["expect=[]", *settings]).verdict.checks
    return {check.name: check for check in checks if check.name.startswith("precision.")}


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        (["precision=bf16-true"], {UPDATES, AVERAGES}),
        (["precision=bf16-pure"], {UPDATES}),
        (["precision={base: bf16-true, weights: fp8_e4m3}"], {"precision.weights", UPDATES, AVERAGES}),
        (["precision={base: bf16-true, weights: nvfp4}", "accelerator=b200"], {"precision.weights", UPDATES, AVERAGES}),
        (["precision={base: bf16-pure, weights: mxfp4}", "accelerator=b200"], {"precision.weights", UPDATES}),
        (["precision={base: bf16-mixed, master: bf16}"], {UPDATES}),
        (["precision={base: bf16-mixed, states: bf16}"], {AVERAGES}),
        (["precision={base: bf16-mixed, states: bf16}", "optimizer=adagrad"], {AVERAGES}),
        (["precision={base: bf16-mixed, states: bf16}", "optimizer=lion"], set()),
        (["precision=bf16-mixed"], set()),
        (["precision=bf16-autocast"], set()),
        (["precision=bf16-mixed", "optimizer=adamw-bf16"], set()),  # 0.95 of its second moment is left
        (["precision=bf16-true", MADE_FOR_IT], set()),
        (["precision=bf16-true", "optimizer={base: adamw-8bit, rounding: compensated}"], set()),
        (["precision=bf16-true", "optimizer=adamw-8bit"], {UPDATES}),
        (["precision=bf16-true", "optimizer=adamw-kahan"], {AVERAGES}),  # which compensates weights alone
        (["precision=bf16-true", "optimizer={base: adamw-kahan, states: {second_moment: {decay: 0.95}}}"], set()),
        (["precision=lora-peft", LORA], set()),  # the frozen base is in bf16
        (["precision=qlora-peft", LORA], set()),  # and here in 4 bits
        (["precision={base: lora-peft, weights: {base: nvfp4, adapters: fp32}}", "accelerator=b200", LORA], set()),
        (["precision=bf16-true", "model={parameters: 8e9}"], {UPDATES, AVERAGES}),
    ],
)
def test_what_loses_updates_is_warned_of(settings: list[str], lines: set[str]) -> None:
    """Weights and states that are rounded to the nearest value of a narrow format, and no others."""
    found = warnings(*settings)
    assert set(found) == lines
    assert all(check.status == "warn" for check in found.values())


@pytest.mark.parametrize(("dtype", "relative"), [("bf16", "2^-9 to 2^-8"), ("fp8_e4m3", "2^-5 to 2^-4")])
def test_the_arithmetic_is_shown_and_holds(dtype: str, relative: str) -> None:
    """The spacing at 1/sqrt(4096), its half, the step: what the format does with a weight and that step."""
    check = warnings(f"precision={{base: bf16-pure, weights: {dtype}}}")[UPDATES]
    weight = Fraction(1, math.isqrt(4096))
    spacing = float(encoded(dtype, weight).spacing)
    assert f"1/sqrt(4096) = {float(weight):.3g} are {spacing:.3g} apart in {dtype}" in check.detail
    assert check.figure == f"below {spacing / 2:.2g}"
    assert relative in check.detail
    peak, last = (float(number) for number in re.findall(r"([\d.e-]+) at ", check.detail))
    assert peak == pytest.approx(float(STEP) * 3e-4)
    assert last == pytest.approx(float(STEP * LAST) * 3e-4)
    assert encoded(dtype, weight + Fraction(last)).stored == weight
    assert encoded(dtype, weight + Fraction(spacing)).stored != weight


def test_a_stated_learning_rate_is_what_steps_are_made_of() -> None:
    """A large one reaches matrices of bf16 and not its norms, which lie 2^-7 apart at 1; it moves no other figure."""
    plain = ledger.compile("8b", ["precision=bf16-true"])
    fast = ledger.compile("8b", ["precision=bf16-true", "assumptions.learning_rate=0.01"])
    lines = {check.name: check for check in fast.verdict.checks}
    assert lines[UPDATES].title == "Updates lost by norms in bf16"
    assert "(assumed)" not in lines[UPDATES].detail
    assert plain.totals == fast.totals


@pytest.mark.parametrize(
    ("train", "title", "silent"),
    [
        ("train={only: [head]}", "the head", "norms"),
        ("train={frozen: [decoder, embedding]}", "norms", "embedding"),
        ("train={only: [decoder/attention_norm]}", "norms", "embedding"),
        (LORA, "adapters", "head"),
    ],
)
def test_only_what_is_trained_is_told(train: str, title: str, silent: str) -> None:
    """Frozen weights are not updated, in whatever format they are."""
    check = warnings("precision=bf16-true", train)[UPDATES]
    assert check.title == f"Updates lost by {title} in bf16"
    assert silent not in check.detail


def test_each_rule_answers_for_its_own_weights() -> None:
    """Muon's momentum holds 0.95 in bf16; AdamW, which updates what it leaves, keeps 0.999 of its second moment."""
    check = warnings("precision=bf16-true", "optimizer=muon")[AVERAGES]
    assert check.title == "Changes lost by the second moment of AdamW in bf16"
    assert "momentum" not in check.detail


@pytest.mark.parametrize(
    ("optimizer", "words", "share"),
    [
        ("adam-mini", "a step of Adam-mini is about 0.2 of the learning rate:", 0.2),
        ("adamw-bf16", "a step of AdamW with bf16 states is about 0.2 of the learning rate:", 0.2),
        ("muon", "a step of Muon is about 0.2 of the learning rate:", 0.2),
        ("lion", "a step of Lion is the learning rate itself:", 1.0),
        ("signum", "a step of Signum is the learning rate itself:", 1.0),
        ("sgd", "a step of SGD is no fixed share of the learning rate, and so is not known;", 0.2),
        ("adafactor", "a step of Adafactor is no fixed share of the learning rate, and so is not known;", 0.2),
        ("{base: sgd, step: 0.05}", "is about 0.05 of the learning rate:", 0.05),
    ],
)
def test_the_step_is_that_of_the_plans_optimizer(optimizer: str, words: str, share: float) -> None:
    """By what the optimizer's file says; a rule whose gradients set its step is said to be one."""
    check = warnings("precision=bf16-true", f"optimizer={optimizer}", "assumptions.learning_rate=2e-4")[UPDATES]
    assert words in check.detail
    assert f"{share * 2e-4:.2g} at its peak" in check.detail
    assert ("one of AdamW's size" in check.detail) == ("not known" in words)
