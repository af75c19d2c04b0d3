"""`run.tokens: 20 a parameter`: how it is read, refused and offered."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import jsonschema
import pytest

from ledger.cli.completion import values
from ledger.spec.inputs import changes, spec_text
from ledger.spec.kinds import schema
from ledger.spec.load import load_plan
from ledger.spec.paths import unit
from ledger.spec.problems import SpecError
from ledger.spec.token_budget import TokensPerParameter

TWENTY = "run.tokens=20 a parameter"


@pytest.mark.parametrize(
    ("written", "each"),
    [
        ("20 a parameter", Fraction(20)),
        ("20.5 a parameter", Fraction(41, 2)),
        ("1_000  a  parameter", Fraction(1000)),
        ("{value: 20 a parameter, source: Hoffmann et al. 2022}", Fraction(20)),
    ],
)
def test_a_number_of_tokens_a_parameter_is_read_exactly(written: str, each: Fraction) -> None:
    """Also a fraction, and with a source of its own, as any quantity."""
    plan = load_plan("8b", [f"run.tokens={written}"])
    assert plan.run.tokens == TokensPerParameter(each)


def test_what_a_field_reads_its_schema_takes() -> None:
    """An editor that marks the spelling, or lets `a parameter` pass, misleads whoever writes a plan."""
    tokens = schema("plan")["properties"]["run"]
    tokens = {**schema("plan")["$defs"]["run"]["properties"]["tokens"]} if "$ref" in tokens else tokens
    whole = {**tokens, "$defs": schema("plan")["$defs"]}
    for good in ("20 a parameter", "15T tokens", {"value": "20 a parameter", "source": "a paper"}):
        jsonschema.validate(good, whole)
    # The pattern is what tells the spelling apart; amounts of other units are the language's to refuse.
    one = next(one for one in tokens["anyOf"] if "pattern" in one)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate("a parameter", one)
    assert "20 a parameter" in tokens["description"]


@pytest.mark.parametrize(
    ("written", "message", "help_text"),
    [
        ("20 a parameters", "`a parameters` is no unit", "did you mean `20 a parameter`?"),
        ("20 tokens per parameter", "`tokens per parameter` is no unit", "did you mean `20 a parameter`?"),
        ("20 an param", "`an param` is no unit", "did you mean `20 a parameter`?"),
        ("-3 a parameter", "`-3 a parameter` is negative", "for example `20 a parameter`"),
        ("0 a parameter", "`0 a parameter` is zero", "for example `20 a parameter`"),
        ("a parameter", "`a parameter` lacks the number of tokens", "for example `20 a parameter`"),
        ("1e-12 a parameter", "`1e-12 a parameter` is beyond reason", "at least `0.001 a parameter`"),
        ("1e12 a parameter", "`1e12 a parameter` is beyond reason", "at most `1000000000 a parameter`"),
        ("160B", "`160B` is a size, not a number of tokens", "did you mean `160B tokens`?"),
        ("20", "`20` has no unit", "a number of tokens has one, for example 15T tokens"),
    ],
)
def test_what_is_no_number_a_parameter_is_told_what_to_type(written: str, message: str, help_text: str) -> None:
    """In the words of what was typed, with every form that the value may have."""
    with pytest.raises(SpecError) as caught:
        load_plan("8b", [f"run.tokens={written}"])
    [problem] = caught.value.problems
    assert message in problem.message
    assert help_text in problem.help
    assert problem.help.endswith("t may be a number of tokens (`15T tokens`) or `20 a parameter`")


def test_it_has_the_unit_of_tokens_and_is_offered_to_shells() -> None:
    """A value of several forms is still measured in one unit; a shell that completes offers the spelling."""
    assert unit("run.tokens") == "tokens"
    assert unit("operations.checkpoint_interval") == "s"
    assert unit("assumptions.headroom") == "1"  # a share or bytes: no one unit
    assert values("run.tokens") == ["20 a parameter"]


def test_two_plans_that_say_the_same_do_not_differ() -> None:
    """Another model makes other tokens, but nobody wrote them: the model is the one change."""
    plan = load_plan("8b", [TWENTY])
    counted = replace(plan, run=replace(plan.run, tokens=TokensPerParameter(Fraction(20), 8030261248)))
    assert changes(plan, counted) == ()
    [change] = changes(load_plan("8b"), plan)
    assert (change.path, change.old, change.new) == ("run.tokens", "160B tokens", "20 a parameter")
    assert spec_text(plan.run.tokens, "run.tokens") == "20 a parameter"


def test_what_is_written_decides_the_digest() -> None:
    """Two spellings are two plans, two plans of one spelling are the same; frameworks are asked about a step alone."""
    twenty, again, number = (load_plan("8b", [text]) for text in (TWENTY, TWENTY, "run.tokens=160605224960 tokens"))
    assert twenty.digest == again.digest != number.digest
    assert twenty.judged_digest == number.judged_digest


def test_verdicts_do_not_depend_on_rates() -> None:
    """A framework on fake tensors sees which device runs its kernels and what that holds, not how fast it is."""
    sheet = load_plan("8b")
    faster, smaller, wider = (
        load_plan("8b", [text])
        for text in (
            "accelerator={base: h100-sxm, bandwidth: 4 TB/s, l2_bandwidth: 7 TB/s}",
            "accelerator={base: h100-sxm, memory: {driver: 70 GB, labelled: 70 GB}}",
            "recompute=full",
        )
    )
    assert faster.judged_digest == sheet.judged_digest != faster.digest
    assert len({sheet.judged_digest, smaller.judged_digest, wider.judged_digest}) == 3
