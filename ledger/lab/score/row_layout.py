"""The layout and the model of a row of published facts: its mesh, its stages, its sizes, and how it is split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ledger.lab.score.facts import Facts
from ledger.lab.score.spelled import SkippedError, Software, UnknownWordError, meaning, row_meaning
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
    data, remainder = divmod(row.n_gpus or 1, tensor * pipeline * context)
    if remainder:
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
    """A path of the plan as a publication states it, else as the stack has it where nothing is said."""
    return software.plan.get(path, software.stack.defaults.plan.get(path))


def _sharing(row: Facts, software: Software, library: Library, sharers: int, assumed: list[str]) -> dict[str, Any]:
    """The stage of ZeRO, and the copies of what `sharers` devices share."""
    if row.data_parallel_kind:
        said = row_meaning("data_parallel_kind", row.data_parallel_kind, library).value
    else:
        said = {"zero": stated(software, "parallelism.zero") or 0}
        if sharers > 1:
            assumed.append(f"data_parallel_kind not stated: ZeRO {said['zero']}")
    sharing = {"zero": said["zero"] if sharers > 1 else 0}
    if said.get("copy") == "node" and sharers > (node := _devices_per_node(row, software)):
        assumed.append("hybrid sharding: one copy a node")
        sharing["replicate"] = sharers // node
    return sharing


def _devices_per_node(row: Facts, software: Software) -> int:
    """Devices of a node as the row or its publication states them; raises SkippedError for what is no number."""
    text = row.paths.get(PER_NODE) or str(stated(software, PER_NODE) or DEVICES_PER_NODE)
    if not text.isdecimal() or not int(text):
        raise SkippedError(f"`{PER_NODE}` = `{text}` is not a whole number from 1")
    return int(text)


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
        even, remainder = divmod(layers, chunks)
        assumed.append(f"{layers} layers over {chunks} stages: the last {remainder} hold one more")
        return {"stages": [even] * (chunks - remainder) + [even + 1] * remainder}
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
        added = min(layers, -(-stage * model // (pipeline * layer))) - placed
        placed += added
        yield added
    yield layers - placed


def _sequence(row: Facts, software: Software, library: Library, tensor: int, assumed: list[str]) -> str:
    """How the sequence is split beside tensor parallelism; gathered tensors that are quantised are kept as gathered."""
    if tensor == 1 or row.sequence_parallel is False:
        return "off"
    sequence: str = stated(software, SEQUENCE) or "regather"
    if row.sequence_parallel is None and SEQUENCE not in software.plan:
        assumed.append("sequence parallelism not stated: on")
    return sequence if sequence == "off" or _gathers_again(row, software, library) else "save_gathered"


def _gathers_again(row: Facts, software: Software, library: Library) -> bool:
    """Whether a sequence that was gathered can be gathered again: as it is, or as the row's format quantises it.

    Raises SkippedError for a dtype that is none.
    """
    word = row_meaning("dtype", row.dtype or "bf16", library).value
    if not isinstance(word, Mapping) and word in UNQUANTISED:
        return True
    stated = word["precision"] if isinstance(word, Mapping) else software.stack.defaults.formats.get(word, "")
    name = stated.get("base", "") if isinstance(stated, Mapping) else stated
    precision = load_precision(name) if isinstance(name, str) and name else None
    if precision is None or precision.matmul is None:
        return precision is not None and precision.multiplies in UNQUANTISED
    return precision.matmul.gathers == "quantised"


# --- the model of a row ---

GATED: Mapping[str, Any] = {"mlp.kind": "gated", "mlp.activation": "silu"}
UNGATED: Mapping[str, Any] = {"mlp.kind": "plain", "mlp.activation": "gelu"}
# What a decoder has of which a row says nothing but sizes: Llama's.
USUAL: Mapping[str, Any] = {
    "model.embedding.tied": False,
    "model.norm.kind": "rms",
    "attention.rotary": 1,
}
PADDED = 128  # rows to which frameworks pad a vocabulary, times tensor parallelism (Megatron-LM)
POSITIONS: Mapping[str, Mapping[str, Any]] = {
    "rope": {"attention.rotary": 1, "model.embedding.learned_positions": None},
    "learned": {"attention.rotary": 0, "model.embedding.learned_positions": "{seq_len}"},
    "alibi": {"attention.rotary": 0, "model.embedding.learned_positions": None},
    "none": {"attention.rotary": 0, "model.embedding.learned_positions": None},
}
NORMS: Mapping[str, Mapping[str, Any]] = {
    "rmsnorm": {"model.norm.kind": "rms", "model.norm.bias": False},
    "rms": {"model.norm.kind": "rms", "model.norm.bias": False},
    "layernorm": {"model.norm.kind": "layer", "model.norm.bias": True},
    "layer": {"model.norm.kind": "layer", "model.norm.bias": True},
    "layernorm1p": {"model.norm.kind": "layer", "model.norm.bias": True},
}
ACTIVATIONS: Mapping[str, str] = {
    "swiglu": "silu",
    "silu": "silu",
    "gelu": "gelu",
    "geglu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "squared_relu": "relu2",
    "squared-relu": "relu2",
    "sqrelu": "relu2",
}
BIASES = ("attention.qkv_bias", "attention.out_bias", "mlp.bias")


def row_model(row: Facts, software: Software, library: Library, tensor: int, assumed: list[str]) -> dict[str, Any]:
    """A decoder of one group of equal layers; a vocabulary that tensor parallelism cannot split is padded.

    Raises SkippedError where sizes contradict each other, and for unknown words.
    """
    heads, hidden, vocab = row.heads or 1, row.hidden or 1, row.vocab or 1
    if vocab % tensor:
        vocab = math.ceil(vocab / (PADDED * tensor)) * PADDED * tensor
        assumed.append(f"vocabulary padded from {row.vocab} to {vocab}")
    if row.head_dim is None and hidden % heads:
        raise SkippedError(f"hidden = {hidden} is no multiple of heads = {heads}, and no head_dim is published")
    sizes = {"heads": heads, "kv_heads": row.kv_heads or heads, "head_dim": row.head_dim or hidden // heads}
    style = _style(row, software, library, assumed)
    group: dict[str, Any] = {
        "group": "decoder",
        "repeat": row.layers,
        "attention": {**sizes, **_paths_below("attention.", style)},
        "mlp": {**_paths_below("mlp.", style), **_width(row)},
        **_paths_below("layers.", style),
    }
    model: dict[str, Any] = {
        "model": row.model_name or "published model",
        "source": row.source or row.source_id or row.id,
        "d_model": hidden,
        "vocab": vocab,
    }
    for path, value in _paths_below("model.", style).items():
        part, _, inner = path.partition(".")
        model[part] = {**model.get(part, {}), inner: value} if inner else value
    return {**model, "layers": [group]}


def _paths_below(prefix: str, style: Mapping[str, Any]) -> dict[str, Any]:
    return {path.removeprefix(prefix): value for path, value in style.items() if path.startswith(prefix)}


def _style(row: Facts, software: Software, library: Library, assumed: list[str]) -> dict[str, Any]:
    """Defaults that sizes leave open, by path: the row's columns, then its publication, its stack and its family."""
    style = {**USUAL, **(UNGATED if row.gated_mlp is False else GATED), **_family(row, software, library, assumed)}
    style |= {path: value for path, value in software.stack.defaults.plan.items() if _is_of_model(path)}
    style |= {path: value for path, value in software.plan.items() if _is_of_model(path)}
    for stated in _stated_architecture(row):
        style |= stated
    if style["mlp.kind"] == "plain" and style["mlp.activation"] == "silu":
        style["mlp.activation"] = UNGATED["mlp.activation"]
    return {path: _fill_in_size(value, row) for path, value in style.items() if value is not None}


def _is_of_model(path: str) -> bool:
    return path.startswith(("model.", "attention.", "mlp."))


def _fill_in_size(value: Any, row: Facts) -> Any:
    """A value, or the row's own number that a default stands for: `{seq_len}`."""
    return getattr(row, value.strip("{}")) if isinstance(value, str) and value.startswith("{") else value


def _family(row: Facts, software: Software, library: Library, assumed: list[str]) -> Mapping[str, Any]:
    """Defaults of the row's family; where nobody knows it, of the stack's models without a gate, or none."""
    usual = software.stack.defaults.ungated if row.gated_mlp is False else ""
    try:
        defaults: Mapping[str, Any] = meaning("family", row.family or usual, library).value
    except UnknownWordError:
        defaults = meaning("family", usual, library).value if usual else {}
        if row.gated_mlp is False:
            said = f"family `{row.family}` is not known" if row.family else "family not stated"
            assumed.append(f"{said}: {usual or 'llama'}, without a gate")
    return defaults


def _stated_architecture(row: Facts) -> Iterator[Mapping[str, Any]]:
    """The architecture that the row's columns state; raises SkippedError for a word that means nothing there."""
    if row.gated_mlp is not None:
        yield {"mlp.kind": "gated" if row.gated_mlp else "plain"}
    if row.tied_embeddings is not None:
        yield {"model.embedding.tied": row.tied_embeddings}
    if row.activation:
        yield {"mlp.activation": _word_meaning("activation", row.activation, ACTIVATIONS)}
    if row.norm:
        yield _word_meaning("norm", row.norm, NORMS)
    if row.positions:
        yield _word_meaning("positions", row.positions, POSITIONS)
    if row.bias is not None:
        yield dict.fromkeys(BIASES, row.bias)
    if row.dropout is not None:
        yield dict.fromkeys(("model.embedding.dropout", "model.residual_dropout", "attention.dropout"), row.dropout)


def _word_meaning(column: str, word: str, table: Mapping[str, Any]) -> Any:
    if word.lower() not in table:
        raise SkippedError(f"`{column}` = `{word}` is not known; {', '.join(table)} are")
    return table[word.lower()]


def _width(row: Facts) -> dict[str, Any]:
    """Width of the feed-forward part, or of its experts."""
    if row.n_experts and row.n_experts > 1:
        return {"kind": "experts", "experts": row.n_experts, "top_k": row.top_k, "d_ff": row.moe_ffn_hidden}
    return {"d_ff": row.ffn_hidden}
