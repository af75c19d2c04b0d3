"""Recomputation as training code does it, applied to a transformers model: the judge of every recompute policy.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from transformers import ResNetForImageClassification

from ledger.lab.reference.cuda_guard import identity, storage_of
from ledger.lab.reference.written import StepsModule
from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.plan import CustomPart, Kernels, Model, Recompute

aten = torch.ops.aten
KEPT_OPERATORS = {
    "matmul": [
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten._grouped_mm.default,  # noqa: SLF001  # its only name
    ],
    "attention": [
        aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001  # the names SDPA dispatches to
        aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
        aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
    ],
}
PROJECTIONS = (aten.mm.default, aten.addmm.default)
MODULES = {
    "attention": ("self_attn", "attn", "attention"),
    "mlp": ("mlp",),
    "experts": ("mlp.experts",),
    "norm": ("input_layernorm", "post_attention_layernorm", "ln_1", "ln_2"),
}
OPTIONS: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # a fake device has no generator


def apply(built: Any, recompute: Recompute) -> None:
    """Checkpoint what `recompute` names; raises `NoReferenceError` for what these modules do not have."""
    layers = layers_of(built)
    if recompute.policy == "keep":
        contexts = partial(create_selective_checkpoint_contexts, _kept_operators(recompute))
        if recompute.matmuls == "every_second":
            contexts = partial(_alternating_contexts, recompute)
        for layer in layers:
            _checkpoint_together([layer], context_fn=contexts)
    elif recompute.policy in ("full", "every", "layers"):
        for layer in layers[: recompute.layers or None : recompute.every]:
            _checkpoint_together([layer])
    elif recompute.policy == "segment":
        length = recompute.segment or math.ceil(math.sqrt(len(layers)))
        for first in range(0, len(layers), length):
            _checkpoint_together(layers[first : first + length])
    else:
        _checkpoint_components(built, layers, recompute.components or ("core",))


def layers_of(built: Any) -> list[nn.Module]:
    """The layers of a transformers model, or of one of blocks, first to last."""
    if has_blocks(built):
        return block_layers(built)
    inner = built.base_model
    if hasattr(inner, "decoder"):
        stacks = (inner.encoder, inner.decoder)
        return [layer for stack in stacks for layer in (stack.block if hasattr(stack, "block") else stack.layers)]
    if hasattr(inner, "encoder"):
        return list(inner.encoder.layer)
    return list(inner.h if hasattr(inner, "h") else inner.layers)


# --- operators ---


def _kept_operators(recompute: Recompute) -> list[Any]:
    """The operators whose outputs are kept."""
    return [operator for name in recompute.keep for operator in KEPT_OPERATORS[name]]


def _alternating_contexts(recompute: Recompute) -> Any:
    """Contexts of one layer in which every second projection is rebuilt, as torchtitan counts them, forward and again.

    Products of two activations (aten.bmm) are not in its list of operators to save.
    """
    saved_operators, count = _kept_operators(recompute), {False: 0, True: 0}

    def decide(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operator in PROJECTIONS:
            count[context.is_recompute] += 1
        odd = operator not in PROJECTIONS or count[context.is_recompute] % 2
        is_saved = operator in saved_operators and operator is not aten.bmm.default
        return CheckpointPolicy.MUST_SAVE if is_saved and odd else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(decide)


# --- layers together ---


def _checkpoint_together(layers: Sequence[Any], **options: Any) -> None:
    """A segment is one checkpoint: its first layer runs them all, the others hand on what they are given.

    The checkpoint is called from a function of its own, since torch.compile leaves alone what begins with it.
    """
    forwards = [layer.forward for layer in layers]

    def run(hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        for forward in forwards:
            hidden = forward(hidden, *args, **kwargs)
        return hidden

    def checkpointed(hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(run, hidden, *args, **OPTIONS, **options, **kwargs)

    layers[0].forward = checkpointed
    for layer in layers[1:]:
        layer.forward = lambda hidden, *_, **__: hidden


# --- components ---


def _checkpoint_components(built: Any, layers: Sequence[Any], named: Sequence[str]) -> None:
    if "core" in named and "attention" not in named:
        _checkpoint_core(built, layers[0])
    promises = Promises()
    for layer in layers:
        for name in ("attention", "mlp", "experts"):
            for module in _modules(layer, name) if name in named else ():
                _checkpoint_module(module)
        for module in _modules(layer, "norm") if "norm" in named else ():
            module.forward = partial(promises.discard, module.forward)
        if "activation" in named and "mlp" not in named:
            _discard_activation(layer.mlp, promises)
    absent = {"experts"} if not any(True for layer in layers for _ in _modules(layer, "experts")) else set()
    if missing := set(named) - ({"core", "activation", *MODULES} - absent):
        raise NoReferenceError(f"recompute {', '.join(sorted(missing))}: transformers has no such module")
    built.forward = partial(promises.watched, built.forward)


def _modules(layer: Any, component: str) -> Iterator[Any]:
    for path in MODULES[component]:
        module = layer
        for name in path.split("."):
            module = getattr(module, name, None)
        if module is not None:
            yield module


def _checkpoint_module(module: Any) -> None:
    """The module as one checkpoint, but for the dropout at its end (GPT-2), which belongs to the residual addition."""
    forward, dropout = module.forward, nn.Identity()
    for name in ("resid_dropout", "dropout"):
        if isinstance(getattr(module, name, None), nn.Dropout):
            dropout = getattr(module, name)
            setattr(module, name, nn.Identity())

    def checkpointed(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        # by position: what checkpoint is given by name it holds itself, instead of saving it as autograd does
        result = checkpoint(forward, hidden_states, *args, **OPTIONS, **kwargs)
        return (dropout(result[0]), *result[1:]) if isinstance(result, tuple) else dropout(result)

    module.forward = checkpointed


def _checkpoint_core(built: Any, layer: Any) -> None:
    """From query, key and value to their mixture as one checkpoint, whichever function does it."""
    from transformers import AttentionInterface
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    (attention,) = _modules(layer, "attention")
    eager = sys.modules[type(attention).__module__].eager_attention_forward
    chosen = ALL_ATTENTION_FUNCTIONS.get_interface(built.config._attn_implementation, eager)  # noqa: SLF001

    def core(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(chosen, *args, **OPTIONS, **kwargs)

    AttentionInterface.register("ledger_core", core)
    built.config._attn_implementation = "ledger_core"  # noqa: SLF001  # as reference_model sets it


def _discard_activation(mlp: Any, promises: Promises) -> None:
    """The nonlinearity, and in a gated MLP the product after it."""
    if not hasattr(mlp, "gate_proj"):
        mlp.act.forward = partial(promises.discard, mlp.act.forward)
        return

    def product(gate: Tensor, up: Tensor) -> Tensor:
        return mlp.act_fn(gate) * up

    def forward(hidden: Tensor) -> Any:
        return mlp.down_proj(promises.discard(product, mlp.gate_proj(hidden), mlp.up_proj(hidden)))

    mlp.forward = forward


# --- models of blocks ---


class BlockModel(nn.Module):  # type: ignore[misc]  # torch's types are not followed
    """A stem, blocks, the mean of each channel, and a classifier, as transformers puts them together."""

    def __init__(self, model: Model, kernels: Kernels) -> None:
        super().__init__()
        if model.stem is None:
            raise NoReferenceError(f"{model.title}: blocks without a stem")
        self.config = SimpleNamespace()
        self.stem = _written_module(model.stem, kernels)
        self.layers = nn.ModuleList(_written_module(group.block, kernels) for group in model.layers if group.block)
        self.classifier = nn.Linear(model.d_model, model.classes, bias=model.head_bias)

    def forward(self, pixels: Tensor) -> Any:
        """Scores of the classes of each image."""
        x = self.stem(pixels)
        for layer in self.layers:
            x = layer(x)
        means = torch.mean(x, [*range(2, x.ndim)]) if x.ndim > 2 else x
        return SimpleNamespace(logits=self.classifier(means))


def _written_module(component: CustomPart, kernels: Kernels) -> StepsModule:
    return StepsModule(component, dict(component.dims), kernels, paired=False)


def has_blocks(built: Any) -> bool:
    """Whether a built model is one of blocks: of its own, or transformers' ResNet."""
    return isinstance(built, BlockModel | ResNetForImageClassification)


def block_layers(built: Any) -> list[nn.Module]:
    """The layers of a model of blocks, one after the other: its own, or those of all stages of transformers' ResNet."""
    if isinstance(built, BlockModel):
        return list(built.layers)
    return [layer for stage in built.resnet.encoder.stages for layer in stage.layers]


# --- results that are computed again when they are asked for ---


@dataclass
class Promise:
    """A result that is not kept: the first who asks for it has it computed again, with the graph for its gradient."""

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...] = ()
    packed: int = 0
    result: Any = None
    edge: Any = None
    leaves: tuple[Tensor, ...] = ()

    def take_result(self) -> Tensor:
        """The result for one more of those who packed it; let go with the last."""
        self.rebuild()
        self.packed -= 1
        detached: Tensor = self.result.detach()
        if not self.packed:
            self.result = None
        return detached

    def rebuild(self) -> None:
        """Runs the function on its inputs once more, the first time that anybody asks for what it saved."""
        if self.edge is None:
            self.leaves = tuple(tensor.detach().requires_grad_() for tensor in self.inputs)
            with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                self.result = self.function(*self.leaves)
            self.edge = torch.autograd.graph.get_gradient_edge(self.result)
            if not self.packed:
                self.result = None


class _Discarded(torch.autograd.Function):  # type: ignore[misc]  # torch's types are not followed
    """Runs a function without a graph; backward goes through the graph of its second run."""

    @staticmethod
    def forward(ctx: Any, promise: Promise, *inputs: Tensor) -> Tensor:
        ctx.promise = promise
        promise.inputs = tuple(tensor.detach() for tensor in inputs)
        return promise.function(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        promise = ctx.promise
        promise.rebuild()
        edge, promise.edge = promise.edge, None
        torch.autograd.backward((edge,), gradients)
        leaf_gradients = tuple(leaf.grad for leaf in promise.leaves)
        promise.inputs = promise.leaves = ()  # the node itself lives as long as the loss
        return (None, *leaf_gradients)


@dataclass
class Promises:
    """The results that are discarded, by the storage that readers pack."""

    open: dict[int, Promise] = field(default_factory=dict)

    def discard(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """The function's result, which whoever reads it does not keep."""
        promise = Promise(function)
        result: Tensor = _Discarded.apply(promise, *inputs)
        storage = result.untyped_storage()
        self.open[identity(storage)] = promise
        weakref.finalize(storage, self.open.pop, identity(storage), None)
        return result

    def watched(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The forward pass, in which readers of discarded results pack promises."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
            return forward(*args, **kwargs)

    def _pack(self, tensor: Tensor) -> Any:
        promise = self.open.get(storage_of(tensor))
        if promise is None:
            return tensor
        promise.packed += 1
        return promise, tensor.shape, tensor.stride(), tensor.storage_offset()


def _unpack(packed: Any) -> Tensor:
    if isinstance(packed, Tensor):
        return packed
    promise, shape, stride, offset = packed
    return promise.take_result().as_strided(shape, stride, offset)
