"""The layout of a row of published facts: its mesh, its stages, and how sequences and weights are split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ledger.lab.score.facts import Facts
from ledger.lab.score.software import SkippedError, Software
from ledger.lab.score.spelled import UnknownWordError, meaning
from ledger.spec.library import Library
from ledger.spec.load import load_precision

DEVICES_PER_NODE = 8  # where neither the row nor its publication says another number
UNQUANTISED = ("bf16", "fp16", "fp32")  # words for formats whose gathered tensors may be gathered again
PER_NODE, OF_LAYOUT = "cluster.devices_per_node", "parallelism."
SEQUENCE, EXCHANGE = "parallelism.sequence", "parallelism.context_exchange"


def row_layout(row: Facts, software: Software, library: Library, assumed: list[str]) -> dict[str, Any]:
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
    layout: dict[str, Any] = {"data": data, "tensor": tensor, "pipeline": pipeline, "context": context}
    layout |= _sharing(row, software, library, data * context, assumed)
    layout["interleave"] = row.interleave or 1
    layout |= _stages(row, software, pipeline, assumed)
    layout["sequence"] = _sequence(row, software, library, tensor, assumed)
    if context > 1 and (exchange := stated(software, EXCHANGE)):
        layout["context_exchange"] = exchange
    if row.ep and row.ep > 1:
        layout["expert"] = row.ep
    further = {**software.stack.defaults.plan, **software.plan}
    named = {path.removeprefix(OF_LAYOUT): value for path, value in further.items() if path.startswith(OF_LAYOUT)}
    layout |= {name: value for name, value in named.items() if name not in (*layout, "context_exchange")}
    return layout


def stated(software: Software, path: str) -> Any:
    """What a publication says of a path of the plan, else what the stack does where nothing is said."""
    return software.plan.get(path, software.stack.defaults.plan.get(path))


def _sharing(row: Facts, software: Software, library: Library, sharers: int, assumed: list[str]) -> dict[str, Any]:
    """The stage of ZeRO, and the copies of what `sharers` devices share."""
    if row.data_parallel_kind:
        try:
            said = meaning("data_parallel_kind", row.data_parallel_kind, library).value
        except UnknownWordError as error:
            raise SkippedError(str(error)) from error
    else:
        said = {"zero": stated(software, "parallelism.zero") or 0}
        if sharers > 1:
            assumed.append(f"data_parallel_kind not stated: ZeRO {said['zero']}")
    found = {"zero": said["zero"] if sharers > 1 else 0}
    if said.get("copy") == "node" and sharers > (node := _devices_per_node(row, software)):
        assumed.append("hybrid sharding: one copy a node")
        found["replicate"] = sharers // node
    return found


def _devices_per_node(row: Facts, software: Software) -> int:
    """As the row or its publication states them; raises SkippedError for what is no number."""
    given = row.paths.get(PER_NODE) or str(stated(software, PER_NODE) or DEVICES_PER_NODE)
    if not given.isdecimal() or not int(given):
        raise SkippedError(f"`{PER_NODE}` = `{given}` is not a whole number from 1")
    return int(given)


def _stages(row: Facts, software: Software, pipeline: int, assumed: list[str]) -> dict[str, Any]:
    """How many layers each stage holds, where they are not all alike."""
    layers, chunks = row.layers or 1, pipeline * (row.interleave or 1)
    if chunks > layers + 2:  # embedding and head may stand for a layer each
        raise SkippedError(f"{layers} layers do not fill {chunks} stages")
    if software.stack.defaults.stages == "by_matmuls" and pipeline > 1:
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


def _sequence(row: Facts, software: Software, library: Library, tensor: int, assumed: list[str]) -> str:
    """How the sequence is split beside tensor parallelism; gathered tensors that are quantised are kept as gathered."""
    if tensor == 1 or row.sequence_parallel is False:
        return "off"
    way: str = stated(software, SEQUENCE) or "regather"
    if row.sequence_parallel is None and SEQUENCE not in software.plan:
        assumed.append("sequence parallelism not stated: on")
    return way if way == "off" or _gathered_narrow(row, software, library) else "save_gathered"


def _gathered_narrow(row: Facts, software: Software, library: Library) -> bool:
    """Whether a sequence that was gathered can be gathered again: as it is, or as the row's format quantises it.

    Raises SkippedError for a dtype that is none.
    """
    try:
        word = meaning("dtype", row.dtype or "bf16", library).value
    except UnknownWordError as error:
        raise SkippedError(str(error)) from error
    if not isinstance(word, Mapping) and word in UNQUANTISED:
        return True
    stated = word["precision"] if isinstance(word, Mapping) else software.stack.defaults.formats.get(word, "")
    name = stated.get("base", "") if isinstance(stated, Mapping) else stated
    found = load_precision(name) if isinstance(name, str) and name else None
    if found is None or found.matmul is None:
        return found is not None and found.multiplies in UNQUANTISED
    return found.matmul.gathers == "quantised"
