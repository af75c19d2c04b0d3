"""The layout of a row of published facts: its mesh, its stages, and how sequences and weights are split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ledger.lab.score.facts import Facts
from ledger.lab.score.sources import Software

PRECISIONS: Mapping[str, str] = {"bf16": "bf16-autocast", "fp16": "fp16-mixed", "fp32": "fp32"}
# The stage of ZeRO that each word for a layout stands for.
ZERO_STAGES: Mapping[str, int] = {
    **dict.fromkeys(("none", "ddp"), 0),
    "zero1": 1,
    "zero2": 2,
    **dict.fromkeys(("zero3", "fsdp", "fsdp2", "hsdp"), 3),
}
DEVICES_PER_NODE = 8  # where the data sheet says nothing else


class SkippedError(Exception):
    """A row that no plan can be made of, with the reason."""


def row_layout(row: Facts, software: Software, assumed: list[str]) -> dict[str, Any]:
    """The `parallelism` of a plan: what a row leaves out is 1, and data is the rest; what it leaves open is `assumed`.

    Raises SkippedError where degrees and devices contradict each other, and for an unknown word.
    """
    tensor, pipeline, context = row.tp or 1, row.pp or 1, row.cp or 1
    data, rest = divmod(row.n_gpus or 1, tensor * pipeline * context)
    if rest:
        raise SkippedError(f"{row.n_gpus} devices are no multiple of tp x pp x cp = {tensor * pipeline * context}")
    if row.dp not in (None, data):
        raise SkippedError(f"dp x tp x pp x cp = {row.dp * tensor * pipeline * context}, but n_gpus = {row.n_gpus}")
    if row.interleave is None and pipeline > 1:
        assumed.append("interleave not stated: 1")
    kind = (row.data_parallel_kind.split() or ["none"])[0]
    if kind not in ZERO_STAGES:
        raise SkippedError(f"data_parallel_kind `{row.data_parallel_kind}` is not known")
    layout: dict[str, Any] = {"data": data, "tensor": tensor, "pipeline": pipeline, "context": context}
    layout["zero"] = ZERO_STAGES[kind] if data * context > 1 else 0
    if kind == "hsdp" and data > DEVICES_PER_NODE:
        assumed.append("hybrid sharding: one copy a node")
        layout["replicate"] = data // DEVICES_PER_NODE
    layout["interleave"] = row.interleave or 1
    layout |= _stages(row, software, pipeline, assumed)
    layout["sequence"] = _sequence(row, software, tensor, assumed)
    if context > 1:
        layout["context_exchange"] = software.exchange
    if row.ep and row.ep > 1:
        layout["expert"] = row.ep
    return layout


def _stages(row: Facts, software: Software, pipeline: int, assumed: list[str]) -> dict[str, Any]:
    """How many layers each stage holds, where they are not all alike."""
    layers, chunks = row.layers or 1, pipeline * (row.interleave or 1)
    if software.balanced and pipeline > 1:
        return {"stages": list(stages_by_compute(row, pipeline))}
    if layers % chunks and not (layers + 2) % chunks:
        assumed.append("embedding and head count as a layer each")
        return {"ends": "layer"}
    if layers % chunks:
        each, rest = divmod(layers, chunks)
        assumed.append(f"{layers} layers over {chunks} stages: the last {rest} hold one more")
        return {"stages": [each] * (chunks - rest) + [each + 1] * rest}
    return {}


def stages_by_compute(row: Facts, pipeline: int) -> Iterator[int]:
    """Layers of each stage as nanotron cuts a model: one is full once it has its share of the matmuls, head included.

    nanotron/models/base.py (build_model) and models/llama.py (get_block_compute_costs).
    """
    hidden, layers = row.hidden or 1, row.layers or 1
    layer = 4 * hidden * hidden + 3 * hidden * (row.ffn_hidden or 1)
    model = layers * layer + hidden * (row.vocab or 1)
    placed = 0
    for stage in range(1, pipeline):
        here = min(layers, -(-stage * model // (pipeline * layer))) - placed
        placed += here
        yield here
    yield layers - placed


def _sequence(row: Facts, software: Software, tensor: int, assumed: list[str]) -> str:
    """How the sequence is split beside tensor parallelism; gathered tensors that are quantised are kept as gathered."""
    if tensor == 1:
        return "off"
    stated = software.sequence_parallel if row.sequence_parallel is None else row.sequence_parallel
    if stated is None:
        assumed.append("sequence parallelism not stated: on")
    if stated is False:
        return "off"
    return software.sequence if row.dtype in ("", *PRECISIONS) else "save_gathered"
