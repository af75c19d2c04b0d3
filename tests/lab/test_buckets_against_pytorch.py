"""Buckets of gradients against those that torch's DistributedDataParallel fills."""

from __future__ import annotations

import pytest

from ledger.books.compiled_roles import compile_roles
from ledger.books.parameter_traffic import DEFAULT, FIRST, bucket_count, ready
from ledger.model.schedule import roles
from tests.model import plans


@pytest.mark.parametrize("limit", [0, 2**22])
def test_torch_fills_as_many(limit: int) -> None:
    """The reducer's own assignment of GPT-2's gradients, in the order of backward, to its limits and to stated ones."""
    import torch
    from torch import distributed

    plan = plans.compiled(
        model="gpt2",
        precision="bf16-true",
        cluster={"base": "h100-400g", "devices": 4, "devices_per_node": 4},
        parallelism={"data": 4},
        run={"seq_len": 64, "micro_batch": 1, "global_batch": 4},
    ).plan
    (book,) = compile_roles(plan, roles(plan))
    elements = [int(book.value(size)) for size in ready(book.program, book.value)]
    assert sum(elements) == 124_439_808  # each weight once, the tied one too
    tensors = [torch.empty(size, dtype=torch.bfloat16, device="meta") for size in elements]
    limits = [limit] if limit else [FIRST, DEFAULT]
    indices, _ = distributed._compute_bucket_assignment_by_size(  # what DistributedDataParallel calls
        tensors, limits, [False] * len(tensors), list(range(len(tensors)))
    )
    assert bucket_count([2 * size for size in elements], limit) == len(indices)


def test_default_limits_are_torchs() -> None:
    """25 MiB, and 1 MiB for the first bucket."""
    from torch import distributed
    from torch.nn.parallel import distributed as module

    assert module._DEFAULT_BUCKET_CAP_MB * 2**20 == DEFAULT  # it has no public name
    assert distributed._DEFAULT_FIRST_BUCKET_BYTES == FIRST  # it has no public name
