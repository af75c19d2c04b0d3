"""Tokens that follow the model: so many a parameter, counted wherever a plan is compiled, solved or searched."""

from __future__ import annotations

import pytest

from ledger.books.compiler import compile_plan, compile_totals
from ledger.books.counts import with_token_count
from ledger.books.what_if.sensitivity import sensitivities
from ledger.books.what_if.solve import solve
from ledger.report.explained import explanation
from ledger.search.space import space_of
from ledger.spec.load import load_plan

TWENTY = "run.tokens=20 a parameter"
LLAMA_3_8B = 8030261248  # model.safetensors.index.json of meta-llama/Meta-Llama-3-8B: 16060522496 B at 2 B a value
LLAMA_2_7B = 6738415616  # model.safetensors.index.json of meta-llama/Llama-2-7b-hf: 13476831232 B at 2 B a value


def test_the_tokens_are_the_product() -> None:
    """Twenty for each parameter of the model card; all totals are those of the plan that states the product."""
    compiled = compile_plan(load_plan("8b", [TWENTY]))
    assert compiled.plan.run.token_count == 20 * LLAMA_3_8B == 160605224960
    stated = compile_plan(load_plan("8b", ["run.tokens=160605224960 tokens"]))
    assert compiled.totals == stated.totals
    assert compile_totals(load_plan("8b", [TWENTY])) == compile_totals(
        load_plan("8b", ["run.tokens=160605224960 tokens"])
    )


def test_the_tokens_follow_the_model() -> None:
    """With another model by `--set`, the plan trains that one as long as it is large."""
    plan = load_plan("8b", [TWENTY, "model=llama-2-7b", "run.seq_len=4096"])
    assert compile_plan(plan).plan.run.token_count == 20 * LLAMA_2_7B


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        (("run.tokens=0.5 a parameter",), LLAMA_3_8B // 2),
        (("run.tokens=20 a parameter", "model={parameters: 70e9}"), 1_400_000_000_000),  # a bare count
    ],
)
def test_fractions_and_bare_counts_have_tokens_too(settings: tuple[str, ...], tokens: int) -> None:
    """Half a token a parameter is a short fine-tuning; a bare model has a count and nothing else."""
    bare = (
        "parallelism={zero: 3}",
        "run.seq_len=null",
        "run.micro_batch=null",
        "run.global_batch=null",
        "recompute=null",
    )
    plan = load_plan("8b", [*settings, *(bare if len(settings) > 1 else ())])
    assert with_token_count(plan).run.token_count == tokens
    assert "napkin.flops.run" in compile_plan(plan).totals


def test_adapters_count_as_the_total_of_parameters_does() -> None:
    """The meaning of the field says so: base and adapters."""
    plan = load_plan("8b", [TWENTY, "train={lora: {rank: 8, targets: [q]}}"])
    adapters = 32 * (4096 * 8 + 8 * 32 * 128)  # of each layer A (d_model x rank) and B (rank x heads x head_dim)
    assert with_token_count(plan).run.token_count == 20 * (LLAMA_3_8B + adapters)


def test_uncounted_tokens_are_refused_not_taken_for_none() -> None:
    """A rule that read none of them would price a run of no steps."""
    with pytest.raises(ValueError, match="before the parameters of the model are counted"):
        _ = load_plan("8b", [TWENTY]).run.token_count


def test_an_explanation_says_what_the_tokens_are_the_product_of() -> None:
    """Both factors, beside the place of the text."""
    record = explanation(compile_plan(load_plan("8b", [TWENTY])), "run.tokens")
    assert record["value"] == "20 a parameter × 8,030,261,248"
    assert record["where"] == f"--set {TWENTY}:1:18"


def test_solving_and_searching_see_the_number() -> None:
    """A size of the model that is solved for moves the run with it, and a space prices the run that there is."""
    plan = load_plan("8b", [TWENTY])
    assert space_of(plan).plan.run.token_count == 20 * LLAMA_3_8B
    found = solve(plan, "run.tokens", ["time.run <= 1 d"])
    assert found.plan_value == 20 * LLAMA_3_8B
    [row] = [row for row in sensitivities(compile_plan(plan)) if row.path == "model.layers.decoder.repeat"]
    [fixed] = [
        row
        for row in sensitivities(compile_plan(load_plan("8b")))
        if row.path == row.path and row.path.endswith("repeat")
    ]
    # One per cent more layers is that share of a per cent more parameters: 32 layers of 218,112,000 of all.
    share = 32 * 218112000 / LLAMA_3_8B
    assert row.elasticities["time.step"] == pytest.approx(fixed.elasticities["time.step"], rel=1e-9)
    assert row.elasticities["time.run"] - row.elasticities["time.step"] == pytest.approx(share, abs=0.01)
