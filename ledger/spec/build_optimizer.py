"""A validated document -> an optimizer."""

from __future__ import annotations

from ledger.spec.optimizer import (
    DEFAULT,
    KINDS,
    Implementation,
    NewtonSchulz,
    Optimizer,
    Scales,
    State,
    Temporary,
)
from ledger.spec.view import View


def optimizer(view: View, name: str) -> Optimizer:
    """An optimizer, and the one that updates what it does not."""
    rest = view.inner("otherwise")
    schulz = view.inner("newton_schulz")
    return Optimizer(
        name=name,
        title=view.text("optimizer", name),
        states={key: _state(View(node)) for key, node in view.inner("states").node.fields.items()},
        flops=view.size("flops"),
        update={key: _implementation(View(node), key) for key, node in view.inner("update").node.fields.items()},
        weights=view.words("weights") or KINDS,
        otherwise=optimizer(rest, rest.text("name")) if view.has("otherwise") else None,
        newton_schulz=NewtonSchulz(schulz.size("iterations"), schulz.text("dtype")) if schulz.node.fields else None,
        source=view.text("source"),
    )


def _state(view: View) -> State:
    """A shape for every kind of weight, or those that are listed."""
    listed = view.inner("shape").node.fields
    scales = view.inner("scales")
    return State(
        shapes={key: str(node.value) for key, node in listed.items()}
        or dict.fromkeys(KINDS, view.text("shape", "whole")),
        dtype=view.text("dtype", DEFAULT),
        scales=Scales(scales.size("block"), scales.text("dtype"), scales.size("smallest"))
        if view.has("scales")
        else None,
    )


def _implementation(view: View, name: str) -> Implementation:
    """Foreach works on all weights at once."""
    return Implementation(
        passes=view.size("passes"),
        temporaries=tuple(_temporary(entry) for entry in view.each("temporaries")),
        left=tuple(_temporary(entry) for entry in view.each("left")),
        together=name == "foreach",
    )


def _temporary(view: View) -> Temporary:
    return Temporary(
        view.text("shape", "whole"), view.text("dtype", DEFAULT), view.flag("copies"), view.flag("gathered")
    )
