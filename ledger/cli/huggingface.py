"""A Hugging Face `config.json` -> the model spec of the same architecture.

Keys and their defaults are those of the configuration classes of transformers 5.23 (`models/*/configuration_*.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ledger.spec.problems import Problem, SpecError
from ledger.spec.reader import Node, Scalar

Spec = dict[str, Any]

# transformers' names of activation functions -> ours; its `gelu_new` and `gelu_pytorch_tanh` are one function
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


@dataclass(frozen=True)
class Config:
    """The configuration with the place of each of its values."""

    node: Node

    def value(self, key: str, default: Scalar) -> Scalar:
        """A value, or its default where the key is absent."""
        found = self.node.fields.get(key)
        return default if found is None else found.value  # type: ignore[return-value]  # callers ask for scalars only

    def size(self, *keys: str, default: int | None = None) -> int:
        """The positive integer at the first of the keys that is present and not null; raises SpecError."""
        for key in keys:
            found = self.node.fields.get(key)
            if found is None or found.value is None:
                continue
            if isinstance(found.value, int) and not isinstance(found.value, bool) and found.value > 0:
                return found.value
            raise SpecError([Problem(found.where, f"{key} must be a positive integer", "give the size of the model")])
        if default is None:
            raise SpecError([Problem(self.node.where, f"{keys[0]} is missing", "import the config.json of a model")])
        return default

    def activation(self, key: str, default: str) -> str:
        """Our name of the activation function; raises SpecError for one that the compiler does not know."""
        name = str(self.value(key, default))
        if name not in ACTIVATIONS:
            where = self.node.fields[key].where
            raise SpecError([Problem(where, f"unknown activation {name!r}", f"known are {', '.join(ACTIVATIONS)}")])
        return ACTIVATIONS[name]


def model_spec(node: Node, title: str, source: str) -> Spec:
    """The model spec of a configuration; raises SpecError where its architecture is unknown."""
    config = Config(node)
    family = config.value("model_type", "")
    if family not in FAMILIES:
        where = node.fields["model_type"].where if "model_type" in node.fields else node.where
        raise SpecError([Problem(where, f"unknown model_type {family!r}", f"known are {', '.join(FAMILIES)}")])
    return {"spec": "ledger/1", "model": title, "source": source, **FAMILIES[str(family)](config)}


def llama(config: Config) -> Spec:
    """Llama, and what differs from it by a bias or a window."""
    bias = bool(config.value("attention_bias", default=False))
    attention = grouped_query(config) | when(bias, qkv_bias=True, out_bias=True)
    mlp = gated(config, "silu") | when(bool(config.value("mlp_bias", default=False)), bias=True)
    return rotary_decoder(config, attention, mlp)


def mistral(config: Config) -> Spec:
    """Llama with a sliding window, unless it is null."""
    window = config.value("sliding_window", 4096)
    return rotary_decoder(config, grouped_query(config) | when(window, window=window), gated(config, "silu"))


def qwen2(config: Config) -> Spec:
    """Llama with biases on q, k and v; its window is off by default."""
    windowed = config.value("use_sliding_window", default=False)
    if windowed:
        where = config.node.fields["use_sliding_window"].where
        raise SpecError([Problem(where, "a window on some of the layers is unknown", "write the groups by hand")])
    return rotary_decoder(config, grouped_query(config) | {"qkv_bias": True}, gated(config, "silu"))


def gemma(config: Config) -> Spec:
    """Gemma: scaled, tied embedding, and norms that multiply by 1 + weight."""
    attention = grouped_query(config, head_dim=256)
    return rotary_decoder(config, attention, gated(config, "gelu_tanh"), tied=True) | GEMMA_PARTS


def gemma2(config: Config) -> Spec:
    """Gemma 2: windowed and global layers take turns, norms before and after each part, capped scores and logits."""
    capped = config.value("attn_logit_softcapping", 50.0)
    attention = grouped_query(config, head_dim=256)
    softcap = when(capped, softcap=capped)
    mlp = gated(config, "gelu_tanh", "hidden_activation")
    layers = config.size("num_hidden_layers")
    window = {"window": config.size("sliding_window", default=4096)}
    groups = [
        {**group("local", (layers + 1) // 2, attention | window | softcap, mlp), "norms": "sandwich"},
        {**group("global", layers // 2, attention | softcap, mlp), "norms": "sandwich"},
    ]
    head_cap = config.value("final_logit_softcapping", 30.0)
    head = {"bias": False} | when(head_cap, softcap=head_cap)
    spec = rotary_decoder(config, attention, mlp, tied=True)
    return spec | GEMMA_PARTS | {"head": head, "layers": groups, "alternating": True}


def gpt2(config: Config) -> Spec:
    """GPT-2: learned positions, LayerNorm, biases everywhere, one projection for q, k and v, dropout."""
    d_model, heads = config.size("n_embd"), config.size("n_head")
    positions = config.size("n_positions", default=1024)
    attention = {"heads": heads, "kv_heads": heads, "head_dim": d_model // heads, **FUSED_BIASED}
    mlp = {
        "kind": "plain",
        "d_ff": config.size("n_inner", default=4 * d_model),
        "activation": config.activation("activation_function", "gelu_new"),
        "bias": True,
    }
    embedding = {"tied": bool(config.value("tie_word_embeddings", default=True)), "learned_positions": positions}
    scores, embedded, residual = (config.value(key, 0.1) for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop"))
    return {
        "d_model": d_model,
        "vocab": config.size("vocab_size"),
        "max_seq_len": positions,
        "embedding": embedding | when(embedded, dropout=embedded),
        "norm": {"kind": "layer", "bias": True},
        "head": {"bias": False},
        "layers": [group("decoder", config.size("n_layer"), attention | when(scores, dropout=scores), mlp)],
    } | when(residual, residual_dropout=residual)


def gpt_neox(config: Config) -> Spec:
    """GPT-NeoX and Pythia: attention and MLP read the same stream; a fraction of each head is rotated."""
    d_model, heads = config.size("hidden_size"), config.size("num_attention_heads")
    attention = {
        "heads": heads,
        "kv_heads": heads,
        "head_dim": d_model // heads,
        "rotary": config.value("rotary_pct", 0.25),
        **FUSED_BIASED,
    }
    mlp = {
        "kind": "plain",
        "d_ff": config.size("intermediate_size"),
        "activation": config.activation("hidden_act", "gelu"),
        "bias": True,
    }
    parallel = when(config.value("use_parallel_residual", default=True), residual="parallel")
    return {
        **sizes(config),
        "embedding": {"tied": bool(config.value("tie_word_embeddings", default=False))},
        "norm": {"kind": "layer", "bias": True},
        "head": {"bias": False},
        "layers": [group("decoder", config.size("num_hidden_layers"), attention, mlp) | parallel],
    }


GEMMA_PARTS: Spec = {"embedding": {"tied": True, "scale": True}, "norm": {"kind": "rms", "unit_offset": True}}
FUSED_BIASED: Spec = {"fused_qkv": True, "qkv_bias": True, "out_bias": True}
FAMILIES: Mapping[str, Callable[[Config], Spec]] = {
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "gemma": gemma,
    "gemma2": gemma2,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
}


def when(condition: object, **entries: object) -> Spec:
    """The entries where the condition holds, else none."""
    return dict(entries) if condition else {}


def sizes(config: Config) -> Spec:
    """The model's own sizes under their usual keys."""
    return {
        "d_model": config.size("hidden_size"),
        "vocab": config.size("vocab_size"),
        "max_seq_len": config.size("max_position_embeddings"),
    }


def grouped_query(config: Config, head_dim: int | None = None) -> Spec:
    """Attention with rotary positions; a head is d_model / heads wide unless the configuration says otherwise."""
    heads = config.size("num_attention_heads")
    return {
        "heads": heads,
        "kv_heads": config.size("num_key_value_heads", default=heads),
        "head_dim": config.size("head_dim", default=head_dim or config.size("hidden_size") // heads),
        "rotary": 1,
    }


def gated(config: Config, activation: str, key: str = "hidden_act") -> Spec:
    """A gated MLP."""
    return {
        "kind": "gated",
        "d_ff": config.size("intermediate_size"),
        "activation": config.activation(key, activation),
    }


def group(name: str, repeat: int, attention: Spec, mlp: Spec) -> Spec:
    """So many equal layers."""
    return {"group": name, "repeat": repeat, "attention": attention, "mlp": mlp, "norms": "pre"}


def rotary_decoder(config: Config, attention: Spec, mlp: Spec, *, tied: bool = False) -> Spec:
    """A decoder of equal layers with RMSNorm."""
    return {
        **sizes(config),
        "embedding": {"tied": bool(config.value("tie_word_embeddings", default=tied))},
        "norm": {"kind": "rms"},
        "head": {"bias": False},
        "layers": [group("decoder", config.size("num_hidden_layers"), attention, mlp)],
    }
