"""The model that Megatron-LM's arguments describe."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from ledger.spec.imports.parts import DEEPEST, Part, arranged, stated

Values = Mapping[str, Any]


def model(values: Values, title: str) -> dict[str, Any]:
    """The parts of a model spec, in its order."""
    positions = _positions(values)
    learned = values["max-position-embeddings"] if positions == "learned_absolute" else None
    layer = values["normalization"] == "LayerNorm"
    parts = {
        name: {"attention": _attention(values, positions), "mlp": mlp, "norms": "pre"}
        for name, mlp in (("dense", _dense(values)), ("experts", _experts(values)))
        if mlp
    }
    return {
        "model": title,
        "source": f"arguments of Megatron-LM in {title}, through `ledger import`",
        "d_model": values["hidden-size"],
        "vocab": padded_vocabulary(values),
        "max_seq_len": values["max-position-embeddings"],
        "embedding": {
            "tied": not values["untie-embeddings-and-output-weights"],
            **stated(learned_positions=learned, dropout=values["hidden-dropout"]),
        },
        "norm": {"kind": "layer", "bias": True} if layer else {"kind": "rms"},
        **arranged(_kinds(values), parts),
        **stated(residual_dropout=values["hidden-dropout"]),
    }


def padded_vocabulary(values: Values) -> int:
    """Rows of the embedding: as many as split evenly over tensor-parallel ranks, in steps of a round number."""
    if values["padded-vocab-size"]:
        return int(values["padded-vocab-size"])
    step = values["make-vocab-size-divisible-by"] * values["tensor-model-parallel-size"]
    return int(-(-values["vocab-size"] // step) * step)


def _positions(values: Values) -> str:
    if values["use-rotary-position-embeddings"]:
        return "rope"
    if values["no-position-embedding"] and values["position-embedding-type"] == "learned_absolute":
        return "none"
    return str(values["position-embedding-type"])


def _attention(values: Values, positions: str) -> Part:
    biased = not values["disable-bias-linear"]
    biases = stated(qkv_bias=biased or values["add-qkv-bias"], out_bias=biased, dropout=values["attention-dropout"])
    heads = values["num-attention-heads"]
    if values["multi-latent-attention"]:
        return {
            "kind": "latent",
            "heads": heads,
            **stated(q_rank=values["q-lora-rank"]),
            "kv_rank": values["kv-lora-rank"],
            "nope_head_dim": values["qk-head-dim"],
            "rope_head_dim": values["qk-pos-emb-head-dim"],
            "v_head_dim": values["v-head-dim"],
            **stated(out_bias=biased, dropout=values["attention-dropout"]),
        }
    groups = values["num-query-groups"] if values["group-query-attention"] else None
    window = values["window-size"]
    return {
        "heads": heads,
        "kv_heads": groups or heads,
        "head_dim": values["kv-channels"] or values["hidden-size"] // heads,
        **stated(fused_qkv=groups in (None, heads) and not values["qk-layernorm"]),
        **biases,
        **stated(
            rotary=_short(values["rotary-percent"]) if positions == "rope" else 0,
            qk_norm="head" if values["qk-layernorm"] else None,
            sinks=values["softmax-type"] == "learnable",
            window=int(window.strip("()").split(",")[0]) + 1 if window else None,
        ),
    }


def _dense(values: Values) -> Part:
    gated, width = values["swiglu"], values["ffn-hidden-size"]
    if width is None:  # a gated layer of as many parameters as four times the width, in steps of 64
        width = values["hidden-size"] * 8 // 3 // 64 * 64 if gated else 4 * values["hidden-size"]
    plain = "gelu" if values["no-bias-gelu-fusion"] and not values["openai-gelu"] else "gelu_tanh"
    return {
        "kind": "gated" if gated else "plain",
        "d_ff": width,
        "activation": "silu" if gated else plain,
        **stated(bias=not values["disable-bias-linear"]),
    }


def _experts(values: Values) -> Part | None:
    if not values["num-experts"]:
        return None
    scores = values["moe-router-score-function"]
    if scores == "softmax" and not values["moe-router-pre-softmax"]:
        scores = "softmax_of_chosen"
    shared = values["moe-shared-expert-intermediate-size"]
    return {
        "kind": "experts",
        "d_ff": values["moe-ffn-hidden-size"] or _dense(values)["d_ff"],
        "activation": _dense(values)["activation"],
        "experts": values["num-experts"],
        "top_k": values["moe-router-topk"],
        "router": {
            "scores": scores,
            **stated(
                normalize=scores == "sigmoid", dtype=values["moe-router-dtype"], groups=values["moe-router-num-groups"]
            ),
        },
        **stated(
            shared={"d_ff": shared, **stated(gated=values["moe-shared-expert-gate"])} if shared else None,
            capacity_factor=values["moe-expert-capacity-factor"],
        ),
    }


def _kinds(values: Values) -> list[str]:
    """Which layers have experts: every n-th, from the first on, or those that a list marks."""
    layers = values["num-layers"]
    if not values["num-experts"]:
        return ["dense"] * layers
    frequency = values["moe-layer-freq"]
    if frequency.isdigit():
        return ["dense" if layer % int(frequency) else "experts" for layer in range(layers)]
    return ["experts" if mark else "dense" for mark in layer_marks(frequency)]


def layer_marks(text: str) -> list[Any]:
    """A list that is written with + and *, such as [0]*3+[1]*58; raises ValueError for anything else."""
    try:
        found = _listed(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(str(error)) from error
    if not isinstance(found, list):
        raise ValueError("no list")  # noqa: TRY004 - of a text
    return found


def _listed(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp):
        left, right = _listed(node.left), _listed(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        lengths = [len(side) if isinstance(side, list) else side for side in (left, right)]
        whole = all(isinstance(length, int) for length in lengths)
        if isinstance(node.op, ast.Mult) and isinstance(left, list) != isinstance(right, list) and whole:
            if lengths[0] * lengths[1] <= DEEPEST:
                return left * right
            raise ValueError("a list beyond reason")
    elif isinstance(node, ast.List):
        return [_listed(item) for item in node.elts]
    elif isinstance(node, ast.Constant):
        return node.value
    raise ValueError("no sum of lists")


def _short(value: float) -> float | int:
    return int(value) if value == int(value) else value
