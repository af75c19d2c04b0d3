"""The plan that Megatron-LM's arguments describe (layout, batches, dtypes, kernels), and its model."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from ledger.spec.imports.text import DEEPEST, NODE, Part, arranged, assumed_devices, stated

Values = Mapping[str, Any]
FP8 = {"delayed": "fp8-delayed", "tensorwise": "fp8-current", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
KERNELS = {"flash": "flash", "fused": "cudnn_grouped", "unfused": "fused_softmax", "local": "fused_softmax"}
MESH = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")
EXCHANGES = {"p2p": "ring", "a2a": "all_to_all", "allgather": "all_gather"}


def plan(
    values: Values, shape: Mapping[str, Any], variables: Mapping[str, str], title: str, devices: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of a plan, and those that it needs and the arguments do not state."""
    replica = devices_of_copy(values)
    stated_count = devices or stated_devices(values, variables)
    whole_nodes = -(-replica // NODE) * NODE
    devices = whole_nodes if whole_nodes % replica == 0 else replica
    if stated_count and stated_count % replica == 0:
        devices = stated_count
    data = max(devices // replica, 1)
    run, open_run = _run(values, data)
    stated_parts = {
        "spec": "ledger/1",
        "plan": title,
        "model": shape,
        "precision": _precision(values),
        "optimizer": "adamw" if values["optimizer"] == "adam" else "momentum",
        "parallelism": _parallelism(values, data),
        "recompute": _recompute(values),
        "stack": _stack(values),
        **stated(kernels=_kernels(values)),
        **({} if open_run else {"run": run}),
    }
    assumed = assumed_devices(devices, microscaled=stated_parts["precision"] == "mxfp8")
    return stated_parts, {**assumed, **({"run": run} if open_run else {})}


def devices_of_copy(values: Values) -> int:
    """Devices that hold one copy of the model."""
    return math.prod(int(values[name]) for name in MESH)


def stated_devices(values: Values, variables: Mapping[str, str]) -> int:
    """Nodes times processes of each, or the script's own count; 0 where neither is there."""
    if values["nnodes"] and values["nproc-per-node"]:
        return int(values["nnodes"]) * int(values["nproc-per-node"])
    count = variables.get("WORLD_SIZE", "")
    return int(count) if count.isdigit() else 0


def _run(values: Values, data: int) -> tuple[dict[str, Any], bool]:
    """Batches and tokens; whether something had to be assumed."""
    micro = values["micro-batch-size"] or 1
    batch = values["global-batch-size"] or micro * data
    length = values["seq-length"] or values["max-position-embeddings"]
    samples = values["train-samples"] or (values["train-iters"] or 0) * batch
    tokens = {"tokens": f"{samples * length} tokens"} if samples else {}
    run = {**tokens, "seq_len": length, "micro_batch": micro, "global_batch": batch}
    return run, not (values["micro-batch-size"] and values["global-batch-size"] and values["seq-length"])


def _precision(values: Values) -> str:
    if values["fp8-format"]:
        return FP8[values["fp8-recipe"]]
    if values["bf16"]:
        return "bf16-fp32-gradients"  # arguments.py sets accumulate_allreduce_grads_in_fp32 with bf16
    return "fp16-mixed" if values["fp16"] else "fp32"


def _parallelism(values: Values, data: int) -> dict[str, Any]:
    pipeline, chunk = values["pipeline-model-parallel-size"], values["num-layers-per-virtual-pipeline-stage"]
    interleave = values["num-virtual-stages-per-pipeline-rank"] or (
        values["num-layers"] // pipeline // chunk if chunk else None
    )
    context = values["context-parallel-size"]
    return {
        "data": data,
        "tensor": values["tensor-model-parallel-size"],
        "pipeline": pipeline,
        "context": context,
        **stated(
            expert=values["expert-model-parallel-size"] if values["expert-model-parallel-size"] > 1 else None,
            zero=int(values["use-distributed-optimizer"] and data * context > 1),
            sequence="regather" if values["sequence-parallel"] and values["tensor-model-parallel-size"] > 1 else None,
            interleave=interleave if interleave and interleave > 1 else None,
            context_exchange=EXCHANGES[values["cp-comm-type"]] if context > 1 else None,
        ),
    }


def _recompute(values: Values) -> Any:
    granularity, count = values["recompute-granularity"], values["recompute-num-layers"] or 1
    if granularity == "selective" or values["recompute-activations"]:
        return "selective"
    if granularity is None:
        return "none"
    if values["recompute-method"] == "block":
        return {"layers": count}
    return "full" if count == 1 else {"segment": count}


def _is_local(values: Values) -> bool:
    return bool(values["transformer-impl"] == "local")


def _stack(values: Values) -> Any:
    """The stack, without what the script leaves off: Megatron-LM hides nothing that no argument asks it to."""
    if _is_local(values):
        return "megatron-lm-2022"
    sharded = values["use-distributed-optimizer"]
    off = {
        "tensor": None if values["tp-comm-overlap"] else "weight_gradient",
        "data": None if values["overlap-grad-reduce"] else "none",
        "gather": None if values["overlap-param-gather"] or not sharded else "none",
    }
    sums = "gathered" if _is_engine_loss(values) else None if values["cross-entropy-loss-fusion"] else "apart"
    changed = stated(overlap=stated(**off) or None, loss_sums=sums)
    return {"base": "megatron-te-2024", **changed} if changed else "megatron-te-2024"


def _is_engine_loss(values: Values) -> bool:
    """Whether Transformer Engine's kernel computes the loss."""
    return bool(values["cross-entropy-loss-fusion"]) and values["cross-entropy-fusion-impl"] == "te"


def _kernels(values: Values) -> Mapping[str, str]:
    """Kernels that arguments choose; those of Transformer Engine's stack are fused where nothing says otherwise."""
    backend = "flash" if values["use-flash-attn"] else values["attention-backend"]
    engine = not _is_local(values)
    return stated(
        attention=KERNELS.get(backend, "fused_softmax" if engine and _precision(values) == "fp32" else None),
        loss="fused" if engine and _is_engine_loss(values) else None,
        rotary="eager" if engine and values["no-rope-fusion"] else None,
        activation="fused" if engine and values["no-bias-swiglu-fusion"] else None,
    )


# --- the model ---


def model(values: Values, title: str) -> dict[str, Any]:
    """The parts of a model spec, in its order."""
    positions = _positions(values)
    learned = values["max-position-embeddings"] if positions == "learned_absolute" else None
    layer = values["normalization"] == "LayerNorm"
    parts = {
        name: {"attention": _attention(values, positions), "mlp": mlp, "norms": "pre"}
        for name, mlp in (("dense", _dense_mlp(values)), ("experts", _expert_mlp(values)))
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
    window, share = values["window-size"], values["rotary-percent"]
    rotary = (int(share) if share == int(share) else share) if positions == "rope" else 0
    return {
        "heads": heads,
        "kv_heads": groups or heads,
        "head_dim": values["kv-channels"] or values["hidden-size"] // heads,
        **stated(fused_qkv=groups in (None, heads) and not values["qk-layernorm"]),
        **biases,
        **stated(
            rotary=rotary,
            qk_norm="head" if values["qk-layernorm"] else None,
            sinks=values["softmax-type"] == "learnable",
            window=int(window.strip("()").split(",")[0]) + 1 if window else None,
        ),
    }


def _dense_mlp(values: Values) -> Part:
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


def _expert_mlp(values: Values) -> Part | None:
    if not values["num-experts"]:
        return None
    scores = values["moe-router-score-function"]
    if scores == "softmax" and not values["moe-router-pre-softmax"]:
        scores = "softmax_of_chosen"
    shared = values["moe-shared-expert-intermediate-size"]
    return {
        "kind": "experts",
        "d_ff": values["moe-ffn-hidden-size"] or _dense_mlp(values)["d_ff"],
        "activation": _dense_mlp(values)["activation"],
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
    """The kind of each layer: every n-th has experts, from the first on, or those that a list marks."""
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
        marks = _evaluate_list(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(str(error)) from error
    if not isinstance(marks, list):
        raise ValueError("no list")  # noqa: TRY004 - of a text
    return marks


def _evaluate_list(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp):
        left, right = _evaluate_list(node.left), _evaluate_list(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        lengths = [len(side) if isinstance(side, list) else side for side in (left, right)]
        are_whole = all(isinstance(length, int) for length in lengths)
        if isinstance(node.op, ast.Mult) and isinstance(left, list) != isinstance(right, list) and are_whole:
            if lengths[0] * lengths[1] <= DEEPEST:
                return left * right
            raise ValueError("a list beyond reason")
    elif isinstance(node, ast.List):
        return [_evaluate_list(item) for item in node.elts]
    elif isinstance(node, ast.Constant):
        return node.value
    raise ValueError("no sum of lists")
