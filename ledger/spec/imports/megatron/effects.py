"""Megatron-LM's arguments that are in no plan: those that change no total, and those that are left out and told."""

from __future__ import annotations

from collections.abc import Mapping

# What is written down, watched, loaded, learned: the beginnings of such arguments' names, `no-` left aside.
UNRELATED = tuple(
    """
    adam- adlr- async-save attention-softmax-in-fp32 auto-detect-ckpt check-for-nan check-weight ckpt- clip-grad
    config-logger data- dataloader decoder-seq-length dist-ckpt distributed-backend distributed-timeout
    embedding-init end-weight-decay eod-mask eval- exit- finetune hysteresis init-method initial-loss-scale
    iterations-to-skip lazy-mpu load local-rank log- loss-scale lr make-vocab-size manual-gc master- merge-file
    min-loss-scale min-lr mmap-bin mock-data nccl- node-rank one-logger override-opt profile rdzv reset- rerun-mode
    save seed sgd-momentum skip-train split start-weight-decay te-rng tensorboard test-data-path tiktoken timing-log
    tokenizer train-data train-sync use-checkpoint use-dist-ckpt use-mcore-models use-rope-scaling
    use-tp-pp-dp-mapping valid-data vocab-file wandb weight-decay
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be two pages
)
# The same of single arguments, many of which speak of sizes all the same.
WITHOUT_EFFECT = frozenset(
    """
    accumulate-allreduce-grads-in-fp32 apply-query-key-layer-scaling layernorm-epsilon log-num-zeros-in-grad
    moe-aux-loss-coeff moe-grouped-gemm moe-per-layer-logging moe-router-bias-update-rate
    moe-router-enable-expert-bias moe-router-group-topk moe-router-load-balancing-type moe-router-topk-limited-devices
    moe-router-topk-scaling-factor moe-use-legacy-grouped-gemm moe-z-loss-coeff norm-epsilon
    num-dataset-builder-threads num-workers rotary-base rotary-interleaved rotary-scaling-factor
    rotary-seq-len-interpolation-factor rope-scaling-factor tokenizer-hf-use-fast
    no-async-tensor-model-parallel-allreduce
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
# Arguments that change memory or time, and no size of the model.
TOLD = frozenset(
    """
    apply-layernorm-1p bias-dropout-fusion bucket-size ddp-bucket-size ddp-num-buckets distribute-saved-activations
    eval-micro-batch-size masked-softmax-fusion moe-enable-deepep moe-expert-rank-capacity-factor moe-extended-tp
    moe-layer-recompute moe-pad-expert-input-to-capacity moe-permute-fusion moe-router-force-load-balancing
    moe-router-fusion moe-shared-expert-overlap moe-token-dispatcher-type moe-token-drop-policy no-bias-dropout-fusion
    no-masked-softmax-fusion no-persist-layer-norm num-distributed-optimizer-instances overlap-p2p-communication
    no-overlap-p2p-communication rampup-batch-size recompute-modules sequence-parallel-overlap tensorboard-queue-size
    tp-comm-bulk-dgrad tp-comm-bulk-wgrad tp-comm-overlap-ag tp-comm-overlap-rs
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
KNOWN = WITHOUT_EFFECT | TOLD
WHY: Mapping[str, str] = {
    "distribute-saved-activations": "what full recomputation keeps is whole on each tensor-parallel rank of a plan",
    "exp-avg-dtype": "`optimizer:` names a file that says what states are kept in",
    "exp-avg-sq-dtype": "`optimizer:` names a file that says what states are kept in",
    "fp8-param-gather": "a plan gathers weights in the dtype they are kept in",
    "main-grads-dtype": "`precision: {base: ..., gradients: ...}` says what gradients are kept in",
    "main-params-dtype": "`precision: {base: ..., master: ...}` says what master weights are kept in",
    "moe-layer-recompute": "`recompute: {components: [mlp]}`",
    "optimizer-cpu-offload": "`parallelism: {offload: [optimizer]}`",
    "rampup-batch-size": "a plan is of the full batch",
    "recompute-modules": "`recompute: {components: [...]}`",
    "use-precision-aware-optimizer": "`optimizer:` names a file that says what states are kept in",
}
