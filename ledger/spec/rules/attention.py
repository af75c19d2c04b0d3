"""Rules on kinds of attention, and on what runs them."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.attention import ATTENTION_KINDS
from ledger.spec.places import Places
from ledger.spec.plan import Kernels, Model, Parallelism
from ledger.spec.problems import Problem

WITH_SINKS = ("eager", "cudnn_grouped")  # kernels with a gradient for sinks: Transformer Engine calls cuDNN's


def attention_has_its_own_keys(model: Model, at: Places) -> Iterator[Problem]:
    """Sizes of another kind of attention would be without effect."""
    for group in model.groups:
        place = f"model.layers.{group.name}.attention"
        for key in ATTENTION_KINDS[group.attention.kind].foreign:
            if f"{place}.{key}" in at.origins:
                message = f"`{key}` is no size of {group.attention.kind} attention"
                yield Problem(at(f"{place}.{key}"), message, f"leave `{key}` out, or change `kind`")


def attention_sees_one_region(model: Model, at: Places) -> Iterator[Problem]:
    """A window and chunks are two ways to limit what a token sees."""
    for group in model.groups:
        if group.attention.window and group.attention.chunk:
            place = at(f"model.layers.{group.name}.attention.chunk")
            yield Problem(place, f"`{group.name}` has a window and chunks", "one of the two")


def both_directions_are_whole(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What sees all tokens has no window and no chunks, and shares of a cut sequence are those of a causal mask."""
    for group in model.groups:
        seen = group.attention
        if not seen.bidirectional:
            continue
        path = f"model.layers.{group.name}.attention"
        for key in [key for key in ("window", "chunk") if getattr(seen, key)]:
            yield Problem(at(f"{path}.{key}"), f"`{group.name}` is bidirectional and has a {key}", "one of the two")
        if parallelism.context > 1:
            message = f"context = {parallelism.context} cuts sequences that `{group.name}` sees in both directions"
            yield Problem(at("parallelism.context"), message, "`context: 1`: exchanges are those of a causal mask")


def sinks_have_a_kernel(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """Few attention kernels take a sink beside the scores, and fewer have a gradient for it."""
    for group in model.groups:
        if group.attention.sinks and kernels.attention not in WITH_SINKS:
            message = f"{kernels.attention} attention has no sinks, and `{group.name}` does"
            yield Problem(at("kernels.attention"), message, f"`kernels: {{attention: {' | '.join(WITH_SINKS)}}}`")


def norms_find_their_heads(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A norm over all heads would need a sum over the devices that hold some of them."""
    for group in model.groups:
        if group.attention.qk_norm == "all" and parallelism.tensor > 1:
            message = f"tensor = {parallelism.tensor} splits the heads over which `{group.name}` norms queries and keys"
            yield Problem(at("parallelism.tensor"), message, "`tensor: 1`, or `qk_norm: head`")


def norms_fit_the_residual(model: Model, at: Places) -> Iterator[Problem]:
    """Parallel parts are normed before, each or together; one norm for two parts needs them to be parallel."""
    for group in model.groups:
        parallel = group.residual == "parallel"
        if parallel != (group.norms == "shared") and (group.norms == "shared" or group.norms != "pre"):
            message = f"norms = {group.norms} of `{group.name}` with a {group.residual} residual"
            legal = "pre or shared" if parallel else "pre, post, sandwich or residual"
            yield Problem(at(f"model.layers.{group.name}.norms"), message, f"possible here: {legal}")
