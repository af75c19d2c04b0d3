"""Rules on what lives in host memory."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.optimizer import Optimizer
from ledger.spec.places import Places
from ledger.spec.plan import Accelerator, Model, Parallelism
from ledger.spec.problems import Problem

OFFLOAD = "parallelism.offload"


def host_updates_elements(parallelism: Parallelism, optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """An update that multiplies matrices runs where the matrix units are."""
    if "optimizer" in parallelism.offload and optimizer.newton_schulz is not None:
        message = f"offload of {optimizer.title}: its update multiplies matrices, which is not modelled on the host"
        yield Problem(at(OFFLOAD), message, "leave `offload` out, or an optimizer that works element by element: adamw")


def bare_models_keep_their_states(parallelism: Parallelism, model: Model, at: Places) -> Iterator[Problem]:
    """A parameter count has no layers whose gradients could move."""
    if parallelism.offload and model.bare:
        message = f"offload of {', '.join(parallelism.offload)} with a bare parameter count: nothing moves in it"
        yield Problem(at(OFFLOAD), message, "leave `offload` out, or give the model its layers")


def host_links_are_sends(accelerator: Accelerator, at: Places) -> Iterator[Problem]:
    """A copy over the link to the host has a start and a bandwidth."""
    for index, curve in enumerate(accelerator.calibration):
        if curve.what.startswith("host_link") and curve.form != "send":
            message = f"{curve.what}: form {curve.form}, but a copy to the host takes a + bytes/B"
            yield Problem(at(f"accelerator.calibration.{index}.form"), message, "`form: send`")


def host_updates_take_time(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """The step holds the copies over the link alone."""
    if "optimizer" in parallelism.offload:
        message = "the update on the host is taken to cost nothing beside its copies: no spec states the host's rates"
        help_text = "`traffic.host` over the rate of one device's share of host memory is the least that it adds"
        yield Problem(at(OFFLOAD), message, help_text)
