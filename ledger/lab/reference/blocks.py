"""Models of blocks as PyTorch modules made of their steps, and the layers of such a model.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import ResNetForImageClassification

from ledger.lab.reference.written import Written
from ledger.lab.transformers.config import NoReferenceError
from ledger.spec.plan import Custom, Kernels, Model


class BlockModel(nn.Module):  # type: ignore[misc]  # torch's types are not followed
    """A stem, blocks, the mean of each channel, and a classifier, as transformers puts them together."""

    def __init__(self, model: Model, kernels: Kernels) -> None:
        super().__init__()
        if model.stem is None:
            raise NoReferenceError(f"{model.title}: blocks without a stem")
        self.config = SimpleNamespace()
        self.stem = _written(model.stem, kernels)
        self.layers = nn.ModuleList(_written(group.block, kernels) for group in model.layers if group.block)
        self.classifier = nn.Linear(model.d_model, model.classes, bias=model.head_bias)

    def forward(self, pixels: Tensor) -> Any:
        """Scores of the classes of each image."""
        x = self.stem(pixels)
        for layer in self.layers:
            x = layer(x)
        means = torch.mean(x, [*range(2, x.ndim)]) if x.ndim > 2 else x
        return SimpleNamespace(logits=self.classifier(means))


def _written(component: Custom, kernels: Kernels) -> Written:
    return Written(component, dict(component.dims), kernels, paired=False)


def has_blocks(built: Any) -> bool:
    """Whether a built model is one of blocks: of its own, or transformers' ResNet."""
    return isinstance(built, BlockModel | ResNetForImageClassification)


def block_layers(built: Any) -> list[nn.Module]:
    """The layers of a model of blocks, one after the other: its own, or those of all stages of transformers' ResNet."""
    if isinstance(built, BlockModel):
        return list(built.layers)
    return [layer for stage in built.resnet.encoder.stages for layer in stage.layers]
