"""Packed documents: attention stays within each, and its FLOPs are the sum over documents."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.books.compiled import Compiled
from ledger.books.compiler import compile_plan
from ledger.books.traced import setting
from ledger.books.what_if.sensitivity import sensitivities
from ledger.books.what_if.solve import solve
from ledger.search.pricing import pieces, price_piece
from ledger.search.space import space_of
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments
from ledger.spec.problems import SpecError
from tests.model import plans

SEQ, BATCH, LENGTH = 37, 3, 11  # three documents of 11 tokens and the first 4 of another
HEADS, HEAD_DIM, LAYERS, WINDOW = 6, 24, 2, 7  # of plans.LLAMA
TWO = {"lengths": [{"tokens": "5 tokens", "share": "75 %"}, {"tokens": "22 tokens", "share": "25 %"}]}


def packed(documents: dict[str, Any] | None, model: plans.Mapped = plans.LLAMA, attention: str = "flash") -> Compiled:
    """The small plan with documents packed into its sequences."""
    run = {"seq_len": SEQ, "micro_batch": BATCH, "global_batch": BATCH}
    kernels = {"attention": attention}
    return plans.compiled(model=model, kernels=kernels, run={**run, **({"documents": documents} if documents else {})})


def mask(lengths: list[int], window: int | None = None) -> np.ndarray:
    """Which keys each query of documents side by side sees: those before it of its own document, and of its window."""
    own = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(own))
    seen = (own[:, None] == own[None, :]) & (place[:, None] >= place[None, :])
    return seen if window is None else seen & (place[:, None] - place[None, :] < window)


def core(found: Compiled, when: str, kind: str = "matmul") -> int:
    """FLOPs of the core of attention in one phase of a step."""
    rows = [a for a in found.accounts if a.resource.kind == kind and a.when == when and "attention/" in a.account]
    return int(sum(a.amount * a.times for a in rows if a.account.split("/")[2].split(".")[0] in CORES))


CORES = ("core", "scores", "context")
EACH = 2 * 2 * HEADS * HEAD_DIM * LAYERS * BATCH  # FLOPs of a point of the square: scores and context, 2 each


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_flops_are_those_of_a_block_diagonal_mask(attention: str, window: int | None) -> None:
    """The points that a mask of documents leaves, counted one by one; backward has two products for each of forward."""
    model = plans.layer(plans.LLAMA, attention={"window": window}) if window else plans.LLAMA
    found = packed({"length": f"{LENGTH} tokens"}, model, attention)
    points = int(mask([11, 11, 11, 4], window).sum())
    assert core(found, "forward") == EACH * points
    assert core(found, "backward") == 2 * EACH * points


def test_documents_of_several_lengths_are_the_mean_over_their_tokens() -> None:
    """Of four documents three have 5 tokens and one 22: 37 tokens, a sequence of each kind of document, in all."""
    found = packed(TWO)
    assert core(found, "forward") == EACH * int(mask([5, 5, 5, 22]).sum())


def test_a_mean_alone_understates_what_lengths_cost() -> None:
    """The same mean length, 37/4, costs more where lengths vary: squares are added up."""
    assert core(packed(TWO), "forward") > core(packed({"length": "9 tokens"}), "forward")


def test_kernels_that_are_told_bounds_run_no_scores_between_documents() -> None:
    """Flash attention counts a square for each document, eager attention computes all of one and masks the rest."""
    told, eager = packed({"length": f"{LENGTH} tokens"}), packed({"length": f"{LENGTH} tokens"}, attention="eager")
    whole = packed(None)
    squares = 3 * LENGTH**2 + 4**2
    less = EACH * (SEQ**2 - squares)
    assert whole.totals["flops.counter.forward"] - told.totals["flops.counter.forward"] == less
    assert core(told, "forward", "masked") == 0
    assert core(eager, "forward", "masked") == EACH * (SEQ**2 - int(mask([11, 11, 11, 4]).sum()))
    assert eager.totals["flops.counter.forward"] == packed(None, attention="eager").totals["flops.counter.forward"]


@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_model_flops_count_documents_without_their_causal_mask(attention: str) -> None:
    """PaLM's count leaves out the causal mask and no more: a query attends to its document."""
    found, whole = packed({"length": f"{LENGTH} tokens"}, attention=attention), packed(None, attention=attention)
    less = EACH * (SEQ**2 - 3 * LENGTH**2 - 4**2)
    assert whole.totals["flops.unmasked"] - found.totals["flops.unmasked"] == less


def test_nothing_but_attention_knows_of_documents() -> None:
    """Bytes, parameters and every other kernel are those of the sequence: cu_seqlens are four bytes a document."""
    found, whole = packed({"length": f"{LENGTH} tokens"}), packed(None)
    for key in ("memory.peak", "saved.total", "traffic.step", "parameters"):
        assert found.totals[key] == whole.totals[key]
    rest = {a.account for a in whole.accounts if "attention/core" not in a.account}
    assert all(
        (a.amount, a.times) == (b.amount, b.times)
        for a, b in zip(found.accounts, whole.accounts, strict=True)
        if a.account in rest
    )


def test_short_documents_are_priced_as_short_sequences() -> None:
    """A kernel is slower on short rows (the price form's `seq`): fewer FLOPs take less time, but less than in ratio."""
    long = plans.compiled(
        model="llama-3-8b", run={"seq_len": 8192, "micro_batch": 1, "global_batch": 1}, precision="bf16-mixed"
    )
    short = plans.compiled(
        model="llama-3-8b",
        run={"seq_len": 8192, "micro_batch": 1, "global_batch": 1, "documents": {"length": "512 tokens"}},
        precision="bf16-mixed",
    )
    rows = [
        next(row for row in found.roles[0].kernels if row.account.endswith("attention/core") and row.when == "forward")
        for found in (long, short)
    ]
    work, time = (getattr(rows[1], name) / getattr(rows[0], name) for name in ("flops", "seconds"))
    assert work == pytest.approx(513 / 8193)
    assert work < time < 1


def test_a_document_as_long_as_its_sequence_changes_nothing() -> None:
    """One document fills the sequence, which is said."""
    found, whole = packed({"length": "37 tokens"}), packed(None)
    assert found.totals == whole.totals
    others = {warning.message for warning in whole.plan.warnings}
    said = [warning.message for warning in found.plan.warnings if warning.message not in others]
    assert [message.split(":")[0] for message in said] == ["`documents` has no effect"]


@pytest.mark.parametrize(
    ("run", "plan", "said"),
    [
        ({"lengths": [{"tokens": "40 tokens", "share": 1}]}, {}, "documents of 40 tokens do not fit sequences of 37"),
        ({"lengths": [{"tokens": "5 tokens", "share": "50 %"}]}, {}, "the shares of documents sum to 0.5, not 1"),
        ({"length": "11 tokens"}, {"kernels": {"attention": "efficient"}}, "efficient attention knows no bounds"),
        ({"length": "11 tokens"}, {"model": plans.layer(plans.LLAMA, attention={"chunk": 8})}, "packed documents with"),
    ],
)
def test_what_is_not_modelled_is_refused(run: dict[str, Any], plan: dict[str, Any], said: str) -> None:
    """Lengths that do not fit, kernels without a mask of documents, chunks."""
    whole = {"seq_len": SEQ, "micro_batch": BATCH, "global_batch": BATCH, "documents": run}
    with pytest.raises(SpecError) as caught:
        plans.compiled(run=whole, **plan)
    assert said in str(caught.value)


def test_a_part_that_is_written_out_keeps_no_documents_apart() -> None:
    """Steps over a sequence say nothing of where a document ends, so that they are not counted as if they did."""
    own = Path(__file__).resolve().parents[1] / "lab" / "own_attention.yaml"
    with pytest.raises(SpecError, match="written out over a sequence"):
        load_plan(own, ("run.documents={length: 11 tokens}",))


def test_other_words_for_it_are_offered() -> None:
    """`run.packed` is what others call it."""
    with pytest.raises(SpecError) as caught:
        plans.compiled(run={"seq_len": SEQ, "micro_batch": BATCH, "global_batch": BATCH, "packed": True})
    (problem,) = caught.value.problems
    assert problem.help == "did you mean `documents`?"


SPEC = ("8b", ["run.documents={length: 700 tokens}"])


def test_a_search_prices_packed_layouts_as_the_compiler_does() -> None:
    """Rows of a space are what the compiler says of each layout, attention's FLOPs among them."""
    over = {"parallelism.tensor": [1, 2], "parallelism.pipeline": [1], "parallelism.context": [1],
            "parallelism.interleave": [1], "run.micro_batch": [1], "recompute": ["none"], "parallelism.zero": [3],
            "parallelism.offload": [None], "parallelism.replicate": [1]}  # fmt: skip
    space = space_of(load_plan(*SPEC), over)
    blocks = [block for piece in pieces(space) for block in price_piece(piece, ("time.step", "flops.forward", "mfu"))]
    found = [(block.layout(row), {key: float(block.totals[key][row]) for key in block.totals})
             for block in blocks for row in range(len(block))]  # fmt: skip
    assert found
    for layout, totals in found[::3]:
        exact = compile_plan(load_plan(SPEC[0], (*SPEC[1], *assignments(layout)))).totals
        assert totals == pytest.approx({key: float(exact[key]) for key in totals}, rel=1e-9)


def test_sensitivities_and_solve_go_on() -> None:
    """A longer sequence of the same documents costs no more attention a token: steps grow in proportion."""
    compiled = compile_plan(load_plan(*SPEC))
    assert "seq_len" in setting(compiled.plan)
    by_path = {one.path: one for one in sensitivities(compiled)}
    assert 0 < by_path["run.seq_len"].elasticities["time.step"] <= 1.05
    found = solve(compiled.plan, "run.seq_len", ["time.step <= 2 s"])
    assert found.values is not None
    assert int(found.values["run.seq_len"]) > 8192


def test_the_mean_of_keys_is_exact() -> None:
    """Of three documents of 11 and one of 4, a token's document has (3 x 11^2 + 4^2) / 37 tokens on average."""
    found = packed({"length": f"{LENGTH} tokens"})
    (symbol,) = (one for one in found.symbols.values() if one.path == "run.documents")
    assert symbol.value == Fraction(3 * 11**2 + 4**2, 37)
