"""Patterns in which layers differ: the kind of each layer, from a configuration and back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ledger.spec.architecture import Group
from ledger.spec.imports.huggingface.terms import Values


@dataclass(frozen=True)
class LayerPattern:
    """One way in which layers differ: the kind of every layer, that of a group, and the fields that say it."""

    read: Callable[[Values], Sequence[str]]
    kind: Callable[[Group], str]
    write: Callable[[Sequence[str]], Values]


def sliding(types: Callable[[Values], Sequence[str]], switch: str = "") -> LayerPattern:
    """Layers that see a window (`local`) among such that see all (`global`), by transformers' names for them."""
    spelt = {"local": "sliding_attention", "global": "full_attention"}
    return LayerPattern(
        read=lambda values: ["local" if kind == spelt["local"] else "global" for kind in types(values)],
        kind=lambda group: "local" if group.attention.window else "global",
        write=lambda kinds: {
            "layer_types": [spelt[kind] for kind in kinds],
            **({switch: "local" in kinds} if switch else {}),
        },
    )


def _full(values: Values) -> Sequence[str]:
    return ["full_attention"] * values["num_hidden_layers"]


def _all_but_every(values: Values, period: int) -> Sequence[str]:
    layers = range(1, values["num_hidden_layers"] + 1)
    return values["layer_types"] or ["sliding_attention" if layer % period else "full_attention" for layer in layers]


def _windows_are_off(values: Values) -> bool:
    """Whether Qwen's windows are switched off, whatever the type of each layer."""
    return not (values["use_sliding_window"] and values["sliding_window"])


def _windows_below(values: Values) -> Sequence[str]:
    """Layer types as Qwen2-MoE states windows: layer by layer, or in every second one up to one (its config)."""
    if _windows_are_off(values):
        return _full(values)
    windows = values["max_window_layers"]
    return values["layer_types"] or [
        "sliding_attention" if layer % 2 == 0 and layer < windows else "full_attention"
        for layer in range(values["num_hidden_layers"])
    ]


def _windows_above(values: Values) -> Sequence[str]:
    """Layer types as Qwen states windows: layer by layer, or in all layers from one on."""
    if _windows_are_off(values):
        return _full(values)
    below = min(values["max_window_layers"], values["num_hidden_layers"])
    above = values["num_hidden_layers"] - below
    return values["layer_types"] or ["full_attention"] * below + ["sliding_attention"] * above


EVERY_OTHER = sliding(lambda values: _all_but_every(values, 2))
EVERY_OTHER_IF_ANY = sliding(lambda values: _all_but_every(values, 2) if values["sliding_window"] else _full(values))
ALL_BUT_EVERY = sliding(lambda values: _all_but_every(values, values["sliding_window_pattern"]))
UPPER = sliding(_windows_above, "use_sliding_window")
LOWER = sliding(_windows_below, "use_sliding_window")


def among_dense(sparse: Callable[[Values], Collection[int]], write: Callable[[Sequence[str]], Values]) -> LayerPattern:
    """Layers with experts among such without; `sparse`: those that have them, counted from 0."""

    def read(values: Values) -> Sequence[str]:
        routed = sparse(values)
        return ["experts" if layer in routed else "dense" for layer in range(values["num_hidden_layers"])]

    return LayerPattern(read, lambda group: "experts" if group.mlp.experts else "dense", write)


def _every_nth(values: Values, step: int) -> set[int]:
    return set(range(step - 1, values["num_hidden_layers"], step))


def _layers_of_kind(kinds: Sequence[str], kind: str) -> list[int]:
    return [layer for layer, layer_kind in enumerate(kinds) if layer_kind == kind]


# DeepSeek: the first layers are dense. Without experts nobody chooses any, and the field has no default.
AFTER_DENSE = among_dense(
    lambda values: range(values["first_k_dense_replace"], values["num_hidden_layers"]),
    lambda kinds: {
        "first_k_dense_replace": kinds.count("dense"),
        **({} if "experts" in kinds else {"num_experts_per_tok": 1}),
    },
)
# Qwen: every n-th layer has experts, those aside that are named.
EVERY_STEP = among_dense(
    lambda values: _every_nth(values, values["decoder_sparse_step"]) - set(values["mlp_only_layers"] or ()),
    lambda kinds: {"mlp_only_layers": _layers_of_kind(kinds, "dense")},
)
# Llama 4: the layers that are named, or every n-th.
NAMED_OR_EVERY = among_dense(
    lambda values: (
        _every_nth(values, values["interleave_moe_layer_step"])
        if values["moe_layers"] is None
        else set(values["moe_layers"])
    ),
    lambda kinds: {"moe_layers": _layers_of_kind(kinds, "experts")},
)

# Qwen3-Next: layers that keep a state, but for every n-th.
LINEAR = LayerPattern(
    read=lambda values: [
        "linear" if kind == "linear_attention" else "global"
        for kind in values["layer_types"]
        or [
            "linear_attention" if layer % values["full_attention_interval"] else "full_attention"
            for layer in range(1, values["num_hidden_layers"] + 1)
        ]
    ],
    kind=lambda group: "linear" if group.attention.recurrent else "global",
    write=lambda kinds: {
        "layer_types": ["linear_attention" if kind == "linear" else "full_attention" for kind in kinds]
    },
)

# Llama 4: whether a layer rotates, and whether its attention stays within a chunk.
_CHUNK_KINDS = {(True, True): "local", (False, False): "global", (True, False): "rotary", (False, True): "chunked"}


def _read_chunks(values: Values) -> Sequence[str]:
    """The kind of each layer: the same layers rotate and are chunked, unless the file names them."""
    layers, interval = values["num_hidden_layers"], values["no_rope_layer_interval"]
    rotates = values["no_rope_layers"] or [(layer + 1) % interval for layer in range(layers)]
    types = values["layer_types"] or ["chunked_attention" if turn else "full_attention" for turn in rotates[:layers]]
    pairs = zip(rotates, types, strict=False)
    return [_CHUNK_KINDS[bool(turn), kind == "chunked_attention"] for turn, kind in pairs]


CHUNKS = LayerPattern(
    read=_read_chunks,
    kind=lambda group: _CHUNK_KINDS[group.attention.rotary > 0, group.attention.chunk is not None],
    write=lambda kinds: {
        "no_rope_layers": [int(kind in ("local", "rotary")) for kind in kinds],
        "layer_types": ["chunked_attention" if kind in ("local", "chunked") else "full_attention" for kind in kinds],
    },
)
