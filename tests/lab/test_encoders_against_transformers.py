"""Encoders and decoders against transformers' T5 and Whisper: what autograd keeps, the bytes of a step, what moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.books.compiled import Compiled
from ledger.lab.observed.one_device import saved_storages
from ledger.lab.reference.workload import workload
from ledger.lab.verification import checks, predicted
from tests.model import plans

SOURCE, TARGET, SEQUENCES = 53, 19, 3
STEP_COUNT, SCALARS = 4, 8  # bytes of an optimizer's count for each weight; and at most of a loss and its gradient
CASES = {
    "T5": (plans.T5, {"attention": ("eager",), "norm": ("fused", "eager")}),
    "T5, gated": (plans.T5_GATED, {"attention": ("eager",), "norm": ("eager",), "activation": ("fused", "eager")}),
    "Whisper": (plans.WHISPER, {"attention": ("flash", "efficient", "math", "eager")}),
}


def compiled(model: plans.Mapped, precision: str, **parts: object) -> Compiled:
    """Three sources, and shorter sequences that answer them."""
    length = {} if "sound" in model else {"source_len": SOURCE}
    run = {"seq_len": TARGET, "micro_batch": SEQUENCES, "global_batch": SEQUENCES, **length}
    return plans.compiled(**{"model": model, "precision": precision, "run": run, **parts})


def cases() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Each model in each precision, with each of its kernels in turn."""
    for name, (_, kernels) in CASES.items():
        for precision in ("bf16-true", "bf16-autocast", "fp32"):
            usual = {key: listed[0] for key, listed in kernels.items()}
            if precision == "fp32" and usual["attention"] == "flash":
                usual["attention"] = "efficient"
            yield name, precision, usual
            for key, listed in kernels.items():
                yield from ((name, precision, {**usual, key: other}) for other in listed[1:])


@pytest.mark.parametrize(("name", "precision", "kernels"), tuple(cases()), ids=str)
def test_saved_bytes(name: str, precision: str, kernels: dict[str, str]) -> None:
    """What the two sides save for backward is what PyTorch packs: what is shared is there once, tables in one layer."""
    plan = compiled(CASES[name][0], precision, kernels=kernels)
    assert plan.totals["saved.total"] == sum(storage.bytes for storage in saved_storages(workload(plan.plan)))


def of_optimizer(plan: Compiled) -> int:
    """Bytes that torch's optimizer keeps beside its states: a count for each weight that it updates."""
    (book,) = plan.books
    return sum(STEP_COUNT * int(book.value(count)) for count, weight in book.weights() if not weight.frozen)


def test_a_step_of_t5_holds_what_pytorch_allocates() -> None:
    """Weights, what waits for backward, and the fullest moments of backward in both sides, to the byte.

    Between its sides and in front of both, frames of Python hold tensors that are not counted here.
    """
    plan = compiled(plans.T5, "bf16-autocast", kernels={"attention": "eager", "norm": "eager"})
    ours, theirs, counts = predicted.memory(plan), checks.one_device(plan.plan), of_optimizer(plan)
    exact = ("static", "after forward", "backward/loss", "backward/decoder", "backward/encoder", "optimizer")
    inner = ("backward/decoder/inner", "backward/decoder/end", "backward/encoder/inner", "backward/encoder/end")
    for moment in (*exact, *inner):
        assert counts <= theirs[moment].requested - ours[moment] <= counts + SCALARS, moment


@pytest.mark.parametrize("model", [plans.T5, plans.WHISPER], ids=("T5", "Whisper"))
def test_shards_of_both_sides_move_as_fsdp_moves_them(model: plans.Mapped) -> None:
    """A set for each layer, the first of T5's with its table, and a root of both ends: calls and bytes."""
    core = "flash" if "sound" in model else "eager"
    parts = {"parallelism": {"data": 4, "zero": 3}, "cluster": {"base": "h100-400g", "devices": 4}}
    plan = compiled(
        model,
        "bf16-mixed",
        kernels={"attention": core, "norm": "eager", "optimizer": "foreach"},
        **{
            **parts,
            "run": {"seq_len": TARGET, "micro_batch": 1, "global_batch": 4}
            | ({} if "sound" in model else {"source_len": SOURCE}),
        },
    )
    theirs = {key: value.bytes for key, value in checks.one_rank(plan.plan).items() if key.startswith("comm.")}
    assert predicted.collectives(plan) == theirs
    layers = sum(group["repeat"] for group in model["layers"])
    assert theirs["comm.all_gather.data.forward.count"] == layers + 1
