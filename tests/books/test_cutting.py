"""What a transfer of a sequence brings along: copies, parts of a sum, casts, and what cannot be moved by a matmul."""

from __future__ import annotations

import pytest

from ledger.books.compiled import Compiled
from tests.model import plans

TENSOR, TOKENS, D, LAYERS = 4, 256, 512, 2
MODEL = plans.layer(
    {**plans.LLAMA, "d_model": D, "vocab": 1024},
    repeat=LAYERS,
    attention={"heads": 8, "kv_heads": 4, "head_dim": 64},
    mlp={"d_ff": 1024},
)
COMPILED, EAGER, ASYNC = "pytorch-fsdp2-compile-2025", "pytorch-fsdp2-2025", "pytorch-fsdp2-compile-2025-async"
WHOLE = TOKENS * D  # elements of a gathered sequence


def compiled(stack: str, precision: str = "bf16-mixed") -> Compiled:
    """Two layers, sharded over two replicas of four devices, with sequence parallelism."""
    return plans.compiled(
        model=MODEL,
        accelerator="h100-sxm",
        cluster={"base": "h100-400g", "devices": 2 * TENSOR, "devices_per_node": 2 * TENSOR},
        parallelism={"data": 2, "tensor": TENSOR, "sequence": "save_gathered", "zero": 3},
        precision=precision,
        stack=stack,
        run={"seq_len": TOKENS, "micro_batch": 1, "global_batch": 2},
    )


def traffic(found: Compiled, ending: str) -> dict[str, int]:
    """Bytes that a layer's kernels of this name move, by pass."""
    sums: dict[str, int] = {}
    for row in found.accounts:
        if row.account.startswith("decoder/") and row.account.endswith(ending) and row.resource.name == "hbm":
            sums[row.when] = sums.get(row.when, 0) + int(row.amount) * int(row.times) // LAYERS
    return sums


def test_a_sequence_is_joined_and_cut_by_copies() -> None:
    """Attention and MLP each gather and reduce once a pass: a read and a write of the whole in bf16 for each.

    Compiled, the sums of the gradients of q, k, v and of gate and up are written where they are sent from.
    """
    copy = 2 * 2 * WHOLE
    assert traffic(compiled(EAGER), ".copy") == {"forward": 4 * copy, "backward": 4 * copy}
    assert traffic(compiled(COMPILED), ".copy") == {"forward": 4 * copy, "backward": 2 * copy}


def test_modules_with_the_sequence_outermost_copy_nothing() -> None:
    """Megatron-LM's tensors have the sequence first, which is how collectives join and cut."""
    assert traffic(compiled("megatron-te-2024"), ".copy") == {}


def test_matmuls_that_move_what_they_multiply_leave_parts_of_sums() -> None:
    """Nothing is copied; of every reduction the parts of all devices are read, and a device's share is written."""
    found = compiled(ASYNC)
    added = 2 * (WHOLE + WHOLE // TENSOR)
    assert traffic(found, ".copy") == {}
    assert traffic(found, ".reduce_scatter.sum") == {"forward": 2 * added}
    assert traffic(found, ".all_gather.gradient.sum") == {"backward": 2 * added}


def test_rows_are_gathered_in_the_open() -> None:
    """A scale for each row is found between gather and matmul: no matmul hides the gather; reductions still hide."""
    tensorwise, rowwise = (compiled(ASYNC, name) for name in ("fp8-tensorwise", "fp8-rowwise"))
    gathers = [
        row for row in rowwise.roles[0].kernels if str(row.kind) == "all_gather.tensor" and "decoder/" in row.account
    ]
    assert waited(rowwise) >= sum(row.seconds * row.times for row in gathers) > waited(tensorwise)
    assert traffic(rowwise, ".copy") == {"forward": 2 * 2 * 2 * WHOLE, "backward": 2 * 2 * 2 * WHOLE}
    assert traffic(tensorwise, ".copy") == {}


def waited(found: Compiled) -> float:
    """Seconds of a step that tensor-parallel transfers take in the open."""
    return sum(span.seconds for span in found.waterfall if span.name == "comm.tensor")


@pytest.mark.parametrize("stack", [COMPILED, ASYNC])
def test_what_is_gathered_quantised_is_cast_once_and_before(stack: str) -> None:
    """torchao's PrepareFloat8ModuleInput: a device casts its part of the input of attention and of the MLP, once each.

    The scale is found first, so a part is read twice and written in a byte. Backward turns what was gathered, a byte
    read and one written; the gradients of both results are cast in parts, gathered and turned.
    """
    found = compiled(stack, "fp8-tensorwise")
    scale = 4
    part = (2 * 2 * WHOLE + WHOLE + scale) // TENSOR
    assert traffic(found, "norm.gathered.quantise") == {"forward": 2 * part}
    turned = 2 * WHOLE
    assert traffic(found, "attention/v.quantise_input")["backward"] == pytest.approx(turned, abs=scale)
    assert traffic(found, "attention/q.quantise_input") == traffic(found, "attention/k.quantise_input") == {}
    assert traffic(found, "mlp/down.quantise_gradient")["backward"] == pytest.approx(part + turned, abs=2 * scale)
