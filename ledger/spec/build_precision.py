"""Number formats of a plan, and how the operands of its matrix products are quantised, from validated mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ledger.spec.plan import Precision
from ledger.spec.recipe import ROW, WHOLE, Recipe, Stored
from ledger.spec.view import View

STORED = ("core", "activation")  # parts of a layer whose saved activations may wait in a narrower format
NAMED_BLOCKS: Mapping[str, tuple[int, int]] = {"tensor": WHOLE, "row": ROW}


def precision(view: View, name: str) -> Precision:
    """A number format per role."""
    roles = ("weights", "gradients", "states", "compute", "activations", "reduction")
    return Precision(
        name=name,
        master=None if view.text("master") == "none" else view.text("master"),
        softmax=view.text("softmax", "fp32"),
        logits=view.text("logits", "fp32"),
        autocast=view.flag("autocast"),
        matmul=_recipe(view.inner("matmul")) if view.has("matmul") else None,
        stored=tuple(_stored(view.inner("stored"))) if view.has("stored") else (),
        **{role: view.text(role) for role in roles},
    )


def _recipe(view: View) -> Recipe:
    """How operands are quantised; gradients in the format of the rest where nothing else is said."""
    scales, default = view.inner("scales"), Recipe("", "", "fp32")
    return Recipe(
        format=view.text("format"),
        gradient=view.text("gradient", view.text("format")),
        scale=scales.text("dtype", default.scale),
        activation_block=_block(scales, "activations"),
        weight_block=_block(scales, "weights"),
        tensor_scale=scales.text("tensor"),
        padded=_block(scales, "padded") if scales.has("padded") else default.padded,
        history=scales.size("history"),
        layouts=view.text("layouts", default.layouts),
        saves=view.text("saves", default.saves),
        weights=view.text("weights", default.weights),
        keep=view.words("keep"),
        gathers=view.text("gathers", default.gathers),
    )


def _stored(view: View) -> Iterator[Stored]:
    """A format for each part that is named."""
    for part in STORED:
        if view.has(part):
            rule = view.inner(part)
            yield Stored(part, rule.text("format"), _block(rule, "block") if rule.has("block") else None)


def _block(view: View, key: str) -> tuple[int, int]:
    """`tensor`, `row`, or the sides of a block."""
    if view.text(key, "tensor") in NAMED_BLOCKS:
        return NAMED_BLOCKS[view.text(key, "tensor")]
    kept, contracted = (int(str(item.value)) for item in view.inner(key).node.items)
    return kept, contracted
