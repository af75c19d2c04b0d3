"""What a plan says in DeepSpeed's own words: the fields of its configuration, and why it cannot say the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledger.lab.transformers.config import NoReferenceError, family
from ledger.lab.verification.layouts import missing_kernels_reason
from ledger.model.schedule import micro_batches
from ledger.spec.plan import Plan

Fields = dict[str, Any]
POLICIES = ("none", "full")


def refusal(plan: Plan) -> str:
    """Why DeepSpeed cannot be asked about a plan; empty where it can."""
    return next((reason for ask in REFUSALS if (reason := ask(plan))), "")


def fields(plan: Plan) -> Fields:
    """The configuration of DeepSpeed's engine; what is not here has DeepSpeed's default."""
    return {
        "train_micro_batch_size_per_gpu": plan.run.micro_batch,
        "gradient_accumulation_steps": int(micro_batches(plan)),
        "gradient_clipping": 1.0 if "clip" in plan.stack.optimizer_passes else 0.0,
        "bf16": {"enabled": True},
        "zero_optimization": _zero(plan),
        "zero_allow_untested_optimizer": True,  # torch.optim's
        "zero_force_ds_cpu_optimizer": False,  # whose kernel would be compiled here
    }


def _zero(plan: Plan) -> Fields:
    """The fields of DeepSpeed's section on ZeRO."""
    layout = plan.parallelism
    zero: Fields = {"stage": layout.zero, "overlap_comm": plan.stack.overlap.data == "backward"}
    if plan.stack.reduction_buffer:
        zero["reduce_bucket_size"] = plan.stack.reduction_buffer
    if plan.stack.unshard == "modules":
        zero |= {name: getattr(plan.stack, part) for part, name in GATHERED.items()}
    for part, name in HOSTED.items():
        if part in layout.offload:
            zero[name] = {"device": "cpu"}
    return zero


GATHERED = {
    "prefetch": "stage3_prefetch_bucket_size",
    "live_parameters": "stage3_max_live_parameters",
    "reuse_distance": "stage3_max_reuse_distance",
    "persistent": "stage3_param_persistence_threshold",
}
HOSTED = {"optimizer": "offload_optimizer", "weights": "offload_param"}


def _model(plan: Plan) -> str:
    try:
        family(plan.model)
    except NoReferenceError as error:
        return str(error)
    return ""


def _layout(plan: Plan) -> str:
    layout = plan.parallelism
    for axis in ("tensor", "pipeline", "context", "expert", "replicate"):
        if getattr(layout, axis) > 1:
            return f"parallelism.{axis} = {getattr(layout, axis)}: the judge's ranks are data parallel alone"
    if "activations" in layout.offload:
        return f"parallelism.offload = {layout.offload}: the judge's activations stay on the device"
    if "weights" in layout.offload and layout.zero < 3:
        return (
            f"parallelism.offload = {layout.offload} with zero = {layout.zero}: DeepSpeed offloads parameters of ZeRO-3"
        )
    if layout.offload and layout.zero == 0:
        return f"parallelism.offload = {layout.offload} with zero = 0: DeepSpeed offloads what ZeRO shares"
    return ""


def _precision(plan: Plan) -> str:
    precision = plan.precision
    formats = (precision.weights.every, precision.master, precision.states, precision.gradients, precision.reduction)
    extras = precision.autocast or precision.matmul or precision.stored
    if formats != ("bf16", "fp32", "fp32", "bf16", "bf16") or extras:
        return f"precision = {precision.name}: the judge trains bf16 weights and gradients with fp32 masters and states"
    return ""


def _training(plan: Plan) -> str:
    if plan.train.kind != "all":
        return f"train = {plan.train.kind}: the judge trains all weights"
    if plan.optimizer.name not in ("adam", "adamw"):
        return f"optimizer = {plan.optimizer.name}: the judge has adam and adamw"
    if plan.recompute.policy not in POLICIES:
        return f"recompute = {plan.recompute.policy}: transformers rebuilds whole layers, all or none"
    return ""


REFUSALS: tuple[Callable[[Plan], str], ...] = (_model, missing_kernels_reason, _layout, _precision, _training)
CHECKPOINTS: Mapping[str, bool] = {"early_stop": False, "reentrant": True}  # use_reentrant
