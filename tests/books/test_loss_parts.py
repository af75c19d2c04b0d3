"""A loss that goes part by part: the parts that PyTorch and Liger cut, in every reading of the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ledger.arithmetic.tracing import Graph, Trace
from ledger.books.compiled import Compiled
from ledger.spec.loss_chunks import LossParts, loss_parts
from tests.model import plans

D_MODEL, VOCAB = 4096, 128_256  # of Llama 3 8B
BF16 = 2


def liger_parts(rows: int, vocab: int, width: int) -> list[int]:
    """The rows of each part, as the loop of Liger's forward pass cuts them."""
    inc_factor = (vocab + width - 1) // width
    chunk_size = 1
    while chunk_size < (rows + inc_factor - 1) // inc_factor:
        chunk_size *= 2
    return [min(start + chunk_size, rows) - start for start in range(0, rows, chunk_size)]


def torch_parts(tokens: int, count: int) -> list[int]:
    """The lengths that torch.chunk gives."""
    size = -(-tokens // count)
    return [min(start + size, tokens) - start for start in range(0, tokens, size)]


def llama(loss: str, chunks: int = 0, **run: int) -> Compiled:
    """Llama 3 8B with such a loss, a micro-batch a step."""
    kernels: dict[str, Any] = {"loss": loss} | ({"loss_chunks": chunks} if chunks else {})
    sizes = {"seq_len": 4096, "micro_batch": 1, **run}
    sizes["global_batch"] = sizes["micro_batch"]
    return plans.compiled(model="llama-3-8b", precision="bf16-true", kernels=kernels, run=sizes)


def cut(compiled: Compiled, **run: Any) -> LossParts:
    """The parts of a plan's loss with other sizes in its run."""
    plan = compiled.plan
    return loss_parts(plan.kernels, plan.model, replace(plan.run, **run), plan.parallelism)


def counted(parts: Sequence[int]) -> tuple[int, int, int]:
    """How many parts there are, the rows of the first and of the last."""
    return len(parts), parts[0], parts[-1]


def test_parts_are_those_of_liger_and_of_torch() -> None:
    """At every length: Liger's over all rows of a micro-batch, PyTorch's over each sequence, the last one shorter."""
    liger, asked, chunked = llama("fused_linear"), llama("fused_linear", 12), llama("chunked", 7)
    for tokens in (*range(7, 400), 2731, 8000, 8192, 115_761):
        for batch in (1, 3):
            run = {"seq_len": tokens, "micro_batch": batch}
            found = [cut(one, **run) for one in (liger, asked, chunked)]
            rows = torch_parts(tokens, 7)
            expected = [
                counted(liger_parts(batch * tokens, VOCAB, D_MODEL)),
                counted(torch_parts(batch * tokens, 12)),
                (len(rows), batch * rows[0], batch * rows[-1]),
            ]
            assert [(one.count, one.rows, one.last_rows) for one in found] == expected, run


def test_ligers_own_example() -> None:
    """4 sequences of 4096 rows of 4096 against a vocabulary of 32000 go in parts of 2048, as its comment says."""
    compiled = plans.compiled(model="llama-2-7b", kernels={"loss": "fused_linear"})
    assert cut(compiled, seq_len=4096, micro_batch=4) == LossParts(8, 2048, 2048)


@pytest.mark.parametrize("loss", ["fused_linear", "chunked"])
def test_parts_are_read_as_arrays_and_as_a_trace(loss: str) -> None:
    """A sweep's arrays and the live page's trace cut as plain numbers do, and the trace holds at every length."""
    compiled, lengths = llama(loss), [7, 38, 2731, 4096, 115_761]
    plain = [cut(compiled, seq_len=length) for length in lengths]
    arrays = cut(compiled, seq_len=np.array(lengths))
    trace = Trace(Graph())
    traced = [cut(compiled, seq_len=trace.input(f"seq_{length}", length)) for length in lengths]
    for name in ("count", "rows", "last_rows"):
        expected = [getattr(one, name) for one in plain]
        assert getattr(arrays, name).tolist() == expected
        assert [getattr(one, name).sample for one in traced] == expected
    assert not trace.guards


@pytest.mark.parametrize(
    ("loss", "chunks", "run", "rows"),
    [
        ("fused_linear", 0, {"seq_len": 4000}, liger_parts(4000, VOCAB, D_MODEL)),
        ("fused_linear", 0, {"seq_len": 1367, "micro_batch": 3}, liger_parts(3 * 1367, VOCAB, D_MODEL)),
        ("fused_linear", 6, {"seq_len": 4096}, torch_parts(4096, 6)),
        ("chunked", 6, {"seq_len": 4097, "micro_batch": 2}, [2 * length for length in torch_parts(4097, 6)]),
        ("chunked", 8, {"seq_len": 4096}, [512] * 8),
    ],
)
def test_parts_sum_to_the_whole(loss: str, chunks: int, run: dict[str, int], rows: list[int]) -> None:
    """The head's FLOPs and bytes are the sums over all parts, each of which reads the whole matrix."""
    (role,) = llama(loss, chunks, **run).roles
    kernels = [one for one in role.kernels if one.cause.name in ("head/logits", "head/logits.last")]
    forward = [one for one in kernels if one.when == "forward"]
    assert [one.times for one in forward] == [len(rows) - 1, 1]
    assert sum(one.times * one.flops for one in forward) == 2 * sum(rows) * D_MODEL * VOCAB
    each = [BF16 * (part * (D_MODEL + VOCAB) + D_MODEL * VOCAB) for part in rows]
    assert sum(one.times * one.bytes for one in forward) == sum(each)
    assert [one.bytes for one in forward] == [each[0], each[-1]]
    logits = max(moment.parts.get("logits", 0) for moment in role.moments)
    assert logits >= BF16 * rows[0] * VOCAB


@pytest.mark.parametrize(("loss", "chunks"), [("fused_linear", 0), ("chunked", 0)])
def test_one_token_more_is_one_token_more(loss: str, chunks: int) -> None:
    """Beyond a length that parts divide the head has the work of one token more, and memory does not fall."""
    short, long = (llama(loss, chunks, seq_len=length) for length in (4096, 4097))
    head = 2 * D_MODEL * VOCAB
    of_head = [
        sum(one.times * one.flops for one in compiled.roles[0].kernels if "head/logits" in one.cause.name)
        for compiled in (short, long)
    ]
    assert of_head[1] - of_head[0] == (3 if loss == "fused_linear" else 4) * head  # its logits are made twice
    assert long.totals["memory.peak"] >= short.totals["memory.peak"]
