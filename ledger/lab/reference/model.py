"""The model a plan means, as PyTorch and transformers build it, with the plan's kernels in place."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ledger.lab.reference import images
from ledger.lab.reference.cuda_guard import torch_dtype
from ledger.lab.reference.images import initialised, loss_of_images
from ledger.lab.reference.workload import Workload
from ledger.lab.transformers.config import NoReferenceError, family, is_of_a_family, mlp_of, transformers_config
from ledger.spec.plan import Kernels, Model, Precision, Recompute, Train

if TYPE_CHECKING:
    import torch

    Batch = tuple[torch.Tensor, ...]  # tokens, or pixels; before tokens what an encoder reads

ROUTED = ("flash", "efficient", "cudnn", "math")  # attention kernels called by name; eager is transformers' own
RMS_NORMS = ("RMSNorm", "L2Norm", "T5LayerNorm")  # ends of the names of modules
SEPARATE_LOSSES = ("fused", "chunked", "fused_linear")  # losses that transformers does not have


def born_dtype(precision: Precision) -> torch.dtype:
    """The dtype in which a model's parameters are made: of a quantised one that of all which is not quantised."""
    return torch_dtype(precision.weights.norms if precision.weights.is_stored_only else precision.weights.base)


def trained_dtype(precision: Precision) -> str:
    """The format of what is trained: of a quantised model, its adapters."""
    return precision.weights.adapters if precision.weights.is_stored_only else precision.weights.base


def reference_model(
    model: Model, kernels: Kernels, device: str, dtype: torch.dtype, precision: Precision | None = None
) -> Any:
    """The transformers model on `device` in `dtype`, training; raises `NoReferenceError`.

    Of `precision` it has what is quantised and what is stored narrow. Build it on `meta` or inside a fake mode:
    parameters are allocated at full size.
    """
    import torch

    if kernels.scan == "fused" and any(group.attention.recurrent for group in model.groups):
        raise NoReferenceError(f"{model.title}: the judge runs scans operator by operator, `kernels: {{scan: eager}}`")
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # parameters are born in `dtype`: fake ones cannot be converted in place
    try:
        with torch.device(device), initialised(model):
            built = _build(model, kernels)
    finally:
        torch.set_default_dtype(before)
    built.loss_type = "ForCausalLM"  # GPT-2's class name does not say so, and a warning would
    _replace_modules(built, model, kernels)
    recipe, stored = (precision.matmul, precision.stored) if precision else (None, ())
    if stored or kernels.activation == "fused_gated" or kernels.router == "fused":
        from ledger.lab.reference import fused

        fused.install(built, model, kernels, stored)
    if recipe is not None:
        from ledger.lab.reference.fused import quantise_layers

        quantise_layers(built, layers_of(built, model), recipe)
    if precision and precision.weights.is_stored_only:
        from ledger.lab.reference.stored_only import store_layers

        store_layers(built, layers_of(built, model), precision)
    return built.train()


def _build(model: Model, kernels: Kernels) -> Any:
    """The class of transformers with the parts that the model's author wrote; one of blocks alone where it has none."""
    import transformers

    if model.of_blocks and not is_of_a_family(model):
        from ledger.lab.reference.checkpoints import BlockModel

        return BlockModel(model, kernels)
    config = transformers_config(model)
    config._attn_implementation = _attention_name(kernels.attention)  # noqa: SLF001  # the argument's own name
    if mlp_of(model).experts:
        config._experts_implementation = _experts_name(model, kernels)  # noqa: SLF001  # as above
        config.output_router_logits = mlp_of(model).router.auxiliary_loss
    built = getattr(transformers, family(model).architecture)(config)
    if any(group.written for group in model.groups) and not model.of_blocks:
        from ledger.lab.reference import written

        written.put_in_place(layers_of(built, model), model, kernels)
    return built


def layers_of(built: Any, model: Model) -> Any:
    """The layers of a model in the order in which they run; raises `NoReferenceError`."""
    if model.of_blocks:
        from ledger.lab.reference.checkpoints import block_layers

        return block_layers(built)
    from torch.nn import ModuleList

    row = family(model)
    return ModuleList(layer for path in (row.layers, row.further) if path for layer in attrgetter(path)(built))


def experts_kernel(model: Model, asked: str = "grouped_mm") -> str:
    """The kernel with which transformers runs a model's experts: all on all tokens where scores multiply inputs."""
    return "dense" if mlp_of(model).router.scales == "input" else asked


def _experts_name(model: Model, kernels: Kernels) -> str:
    """The name that transformers has for what runs experts; `eager` where there is one way and no choice."""
    only = experts_kernel(model, "")
    if (only or kernels.experts) != kernels.experts:
        reason = f"as nothing but `{only}`, not as {kernels.experts}"
        raise NoReferenceError(f"transformers runs the experts of {model.title} {reason}")
    if kernels.weighing == "activation":
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

        from ledger.lab.reference.fused import WEIGHED, weighed_experts

        ALL_EXPERTS_FUNCTIONS.register(WEIGHED, weighed_experts)
        return WEIGHED
    return "eager" if only else kernels.experts


def training_loss(built: Any, work: Workload, batch: Batch) -> torch.Tensor:
    """The forward pass under the workload's autocast, as a training loop runs it; the logits are let go."""
    import torch

    *source, tokens = batch

    compute = torch_dtype(work.precision.compute)
    if mlp_of(work.model).experts and work.kernels.experts == "grouped_mm" and work.precision.weights.base != "bf16":
        raise NoReferenceError(f"grouped_mm experts take weights in bf16 alone, not in {work.precision.weights.base}")
    place = "cpu" if tokens.device.type == "cpu" else "cuda"
    with torch.autocast(place, compute, enabled=work.precision.autocast):
        mask: Any = None
        eager = work.kernels.attention not in ROUTED
        if source:
            if work.kernels.loss in SEPARATE_LOSSES:
                raise NoReferenceError(f"{work.kernels.loss} loss: the judge's is of models without an encoder")
            return images.loss_of_two_stacks(built, work, (*source, tokens), masked=eager)
        scans = {group.attention.recurrent for group in work.model.groups}
        if eager and False in scans:
            # an additive mask, as transformers makes it for eager attention; a scan takes none
            mask = torch.zeros(work.batch, 1, work.seq_len, work.seq_len, device=tokens.device, dtype=compute)
        if work.model.image:
            return loss_of_images(built, tokens, mask, stem=work.model.stem is not None)
        if scans == {True, False}:
            mask = {"full_attention": mask, "linear_attention": None}
        if work.kernels.loss in SEPARATE_LOSSES and (work.model.head_transform or work.model.head_scale):
            raise NoReferenceError(f"{work.kernels.loss} loss: the judge's has no transform and no factor of logits")
        if work.kernels.loss in SEPARATE_LOSSES:
            from ledger.lab.reference.losses import reference_loss

            hidden = built.base_model(tokens, attention_mask=mask, use_cache=False).last_hidden_state
            return reference_loss(built, hidden, tokens, work.kernels.loss, work.kernels.loss_chunks)
        if bidirectional(work.model):  # transformers' own loss of it leaves the logits narrow, and shifts nothing
            places = torch.arange(work.seq_len, device=tokens.device).unsqueeze(0)
            arguments = {"token_type_ids": torch.zeros_like(tokens), "position_ids": places}
            logits = built(tokens, attention_mask=mask, **arguments).logits
            return built.loss_function(logits=logits, labels=tokens, vocab_size=work.model.vocab)
        return built(tokens, attention_mask=mask, labels=tokens, use_cache=False).loss


def bidirectional(model: Model) -> bool:
    """Whether tokens see those after them."""
    return any(group.attention.bidirectional for group in model.groups)


def freeze(built: Any, train: Train, precision: Precision | None = None) -> None:
    """Freeze what `train` does not train; raises `NoReferenceError`. Within the fake mode, if there is one.

    Adapters are in the dtype that `precision` gives them, or in that of the matrices beside them.
    """
    if train.kind != "all":
        from ledger.lab.reference import trained

        adapter_dtype = torch_dtype(precision.weights.adapters) if precision and not precision.weights.every else None
        trained.set_up(built, train, adapter_dtype)


def checkpoint_layers(built: Any, recompute: Recompute) -> None:
    """Checkpoint what `recompute` names; raises `NoReferenceError` for parts that the model does not have."""
    if recompute.policy != "none":
        from ledger.lab.reference import checkpoints

        checkpoints.apply(built, recompute)


def _attention_name(kernel: str) -> str:
    """The name under which transformers knows `kernel`, registered if need be."""
    from transformers import AttentionInterface

    from ledger.lab.reference.modules import attention_backend

    if kernel not in ROUTED:
        return kernel
    registered = f"ledger_{ROUTED.index(kernel)}"  # transformers takes names with `flash` for a library to import
    AttentionInterface.register(registered, attention_backend(kernel))
    return registered


def _replace_modules(built: torch.nn.Module, model: Model, kernels: Kernels) -> None:
    """Swap norms and activations for those that `kernels` names; ReLU is one kernel either way."""
    from transformers.activations import GELUActivation, GELUTanh, NewGELUActivation

    from ledger.lab.reference.modules import FusedLayerNorm, FusedRMSNorm, UnfusedLayerNorm, UnfusedSiLU

    unfused = {
        "SiLUActivation": UnfusedSiLU,
        "GELUTanh": NewGELUActivation,
        "GELUActivation": lambda: GELUActivation(use_gelu_python=True),
    }
    fused = {"NewGELUActivation": GELUTanh}
    activations = unfused if kernels.activation == "eager" else fused
    for parent in list(built.modules()):
        for name, child in list(parent.named_children()):
            kind = type(child).__name__
            if kernels.norm == "fused" and kind.endswith(RMS_NORMS):
                setattr(parent, name, FusedRMSNorm(getattr(child, "weight", None), model.norm.unit_offset))
            elif kernels.norm == "fused" and kind.startswith("Cohere") and kind.endswith("LayerNorm"):
                setattr(parent, name, FusedLayerNorm(child.weight))
            elif kernels.norm == "operators" and kind == "LayerNorm":
                setattr(parent, name, UnfusedLayerNorm(child))
            elif kind in activations:
                setattr(parent, name, activations[kind]())
