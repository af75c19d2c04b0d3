"""Megatron-LM's arguments: those that shape a model or a run with their defaults, those that nobody here understands.

Defaults: NVIDIA/Megatron-LM, megatron/training/arguments.py.
"""

from __future__ import annotations

from collections.abc import Mapping

WHOLE, NUMBER, TEXT, SWITCH = "a whole number", "a number", "text", "no value"

# What each understood argument takes; `None` is the default of those that have none.
UNDERSTOOD: Mapping[str, tuple[str, object]] = {
    # sizes
    "num-layers": (WHOLE, None),
    "hidden-size": (WHOLE, None),
    "ffn-hidden-size": (WHOLE, None),
    "num-attention-heads": (WHOLE, None),
    "kv-channels": (WHOLE, None),
    "group-query-attention": (SWITCH, False),
    "num-query-groups": (WHOLE, 1),
    "max-position-embeddings": (WHOLE, None),
    "seq-length": (WHOLE, None),
    "vocab-size": (WHOLE, None),
    "padded-vocab-size": (WHOLE, None),
    "make-vocab-size-divisible-by": (WHOLE, 128),
    "untie-embeddings-and-output-weights": (SWITCH, False),
    # kinds of layers
    "normalization": (TEXT, "LayerNorm"),
    "swiglu": (SWITCH, False),
    "openai-gelu": (SWITCH, False),
    "no-bias-gelu-fusion": (SWITCH, False),
    "disable-bias-linear": (SWITCH, False),
    "add-qkv-bias": (SWITCH, False),
    "qk-layernorm": (SWITCH, False),
    "position-embedding-type": (TEXT, "learned_absolute"),
    "use-rotary-position-embeddings": (SWITCH, False),
    "no-position-embedding": (SWITCH, False),
    "rotary-percent": (NUMBER, 1.0),
    "attention-dropout": (NUMBER, 0.1),
    "hidden-dropout": (NUMBER, 0.1),
    "window-size": (TEXT, None),
    "softmax-type": (TEXT, "vanilla"),
    # latent attention
    "multi-latent-attention": (SWITCH, False),
    "q-lora-rank": (WHOLE, None),
    "kv-lora-rank": (WHOLE, 32),
    "qk-head-dim": (WHOLE, 128),
    "qk-pos-emb-head-dim": (WHOLE, 64),
    "v-head-dim": (WHOLE, 128),
    # experts
    "num-experts": (WHOLE, None),
    "moe-layer-freq": (TEXT, "1"),
    "moe-ffn-hidden-size": (WHOLE, None),
    "moe-router-topk": (WHOLE, 2),
    "moe-router-score-function": (TEXT, "softmax"),
    "moe-router-pre-softmax": (SWITCH, False),
    "moe-router-num-groups": (WHOLE, None),
    "moe-router-dtype": (TEXT, None),
    "moe-shared-expert-intermediate-size": (WHOLE, None),
    "moe-shared-expert-gate": (SWITCH, False),
    "moe-expert-capacity-factor": (NUMBER, None),
    # the run
    "tensor-model-parallel-size": (WHOLE, 1),
    "pipeline-model-parallel-size": (WHOLE, 1),
    "context-parallel-size": (WHOLE, 1),
    "expert-model-parallel-size": (WHOLE, 1),
    "sequence-parallel": (SWITCH, False),
    "num-layers-per-virtual-pipeline-stage": (WHOLE, None),
    "num-virtual-stages-per-pipeline-rank": (WHOLE, None),
    "cp-comm-type": (TEXT, "p2p"),
    "use-distributed-optimizer": (SWITCH, False),
    "micro-batch-size": (WHOLE, None),
    "global-batch-size": (WHOLE, None),
    "train-iters": (WHOLE, None),
    "train-samples": (WHOLE, None),
    "bf16": (SWITCH, False),
    "fp16": (SWITCH, False),
    "fp8-format": (TEXT, None),
    "fp8-recipe": (TEXT, "delayed"),
    "optimizer": (TEXT, "adam"),
    "recompute-activations": (SWITCH, False),
    "recompute-granularity": (TEXT, None),
    "recompute-method": (TEXT, None),
    "recompute-num-layers": (WHOLE, None),
    "transformer-impl": (TEXT, "transformer_engine"),
    "use-flash-attn": (SWITCH, False),
    "attention-backend": (TEXT, "auto"),
    "overlap-grad-reduce": (SWITCH, False),
    "overlap-param-gather": (SWITCH, False),
    "tp-comm-overlap": (SWITCH, False),
    "cross-entropy-loss-fusion": (SWITCH, False),
    "cross-entropy-fusion-impl": (TEXT, "native"),
    "no-rope-fusion": (SWITCH, False),
    "no-bias-swiglu-fusion": (SWITCH, False),
    "nnodes": (WHOLE, None),
    "nproc-per-node": (WHOLE, None),
}
# Other spellings of an argument.
ALIASES: Mapping[str, str] = {"model-parallel-size": "tensor-model-parallel-size"}

# Arguments that make another model than a decoder of the kinds that a model spec has.
REFUSED: Mapping[str, str] = {
    "apply-residual-connection-post-layernorm": "a residual stream of normed values",
    "attention-output-gate": "gated attention",
    "decoder-num-layers": "an encoder",
    "encoder-num-layers": "an encoder",
    "encoder-seq-length": "an encoder",
    "experimental-attention-variant": "another kind of attention",
    "heterogeneous-layers-config-path": "layers described in another file",
    "hybrid-layer-pattern": "layers that are no transformer",
    "hybrid-override-pattern": "layers that are no transformer",
    "hybrid-attention-ratio": "layers that are no transformer",
    "is-hybrid-model": "layers that are no transformer",
    "moe-latent-size": "experts of another width than the stream",
    "mtp-num-layers": "modules that predict further tokens",
    "expert-tensor-parallel-size": "experts cut another way than the rest",
    "qk-l2-norm": "norms without weights",
    "quick-geglu": "another activation",
    "spec": "layers built by a module of your own",
    "squared-relu": "another activation",
    "use-torch-fsdp2": "another way to shard",
    "use-megatron-fsdp": "another way to shard",
    "window-attn-skip-freq": "layers of two kinds of window",
}
# Parts of the names of arguments that may shape a model or its layout.
SPEAKS_OF_SIZES = tuple(
    """
    num- -size hidden layer head -dim rank channels expert moe norm embedding attention rotary rope vocab parallel
    """.split()  # noqa: SIM905 - as above
)
