"""Rules on optimizers: what updates which weight, with which kernels, in which number formats."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.optimizer import KINDS, Optimizer
from ledger.spec.places import Places
from ledger.spec.plan import Accelerator, Kernels
from ledger.spec.problems import Problem
from ledger.spec.rules_device import peak_key


def update_exists(optimizer: Optimizer, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """The optimizer has the implementation that the plan names; what the stack prefers gives way by itself."""
    there = optimizer.implementations()
    if kernels.optimizer not in there:
        message = f"{optimizer.title or optimizer.name} has no {kernels.optimizer} update"
        yield Problem(at("kernels.optimizer"), message, f"it has {', '.join(there)}")


def every_weight_is_updated(optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """What a rule does not update, another does."""
    rule, place = optimizer, "optimizer"
    while rule.otherwise is not None:
        rule, place = rule.otherwise, f"{place}.otherwise"
    left = [kind for kind in KINDS if kind not in rule.weights]
    if left:
        message = f"nothing updates the {' and '.join(left)}: {rule.title} is for {' and '.join(rule.weights)}"
        yield Problem(at(f"{place}.weights"), message, "`otherwise: adamw` updates the rest")


def update_multiplies(optimizer: Optimizer, accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """The accelerator multiplies in the dtype of the products that an update is made of."""
    schulz = optimizer.newton_schulz
    if schulz is not None and peak_key(schulz.dtype) not in accelerator.peak:
        message = f"{accelerator.title} has no {schulz.dtype} peak, and {optimizer.title} multiplies in it"
        yield Problem(at("optimizer.newton_schulz.dtype"), message, f"it has {', '.join(accelerator.peak)}")


def states_are_of_a_shape(optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """Scales belong to blocks of whole states."""
    for name, state in optimizer.states.items():
        odd = sorted(set(state.shapes.values()) - {"whole"})
        if state.scales is not None and odd:
            message = f"`{name}` has scales for blocks of {state.scales.block}, but is {' and '.join(odd)}"
            yield Problem(at(f"optimizer.states.{name}.scales"), message, "only `shape: whole` is cut into blocks")
