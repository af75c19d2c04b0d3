"""Layouts that tests put over plans of the library, whose own may change."""

from __future__ import annotations

# Llama 3 70B on 1024 H100 with tensor parallelism over each node, every state sharded over the 128 nodes.
TENSOR_PARALLEL = (
    "parallelism={data: 128, tensor: 8, sequence: save_gathered, zero: 3}",
    "run.micro_batch=8",
)
