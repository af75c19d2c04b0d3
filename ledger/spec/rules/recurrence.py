"""Rules on recurrences along the sequence, and on layers that have no feed-forward part beside them."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.places import Places, divisors
from ledger.spec.plan import Model, Parallelism, Run
from ledger.spec.problems import Problem


def groups_share_states(model: Model, at: Places) -> Iterator[Problem]:
    """Every group of a recurrence writes and reads the states of equally many heads."""
    for group in model.groups:
        heads, groups = group.attention.heads, group.attention.state_groups
        if groups and heads % groups:
            message = f"heads = {heads} of `{group.name}` is no multiple of state.groups = {groups}"
            yield Problem(at(f"model.layers.{group.name}.attention.state.groups"), message, divisors(heads))


def states_are_whole(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A device scans whole sequences of all heads: no exchange of states, and no cut of their heads, is modelled."""
    cuts = {"tensor": parallelism.tensor, "context": parallelism.context}
    for group in model.groups:
        for axis in [axis for axis, degree in cuts.items() if degree > 1 and group.attention.recurrent]:
            message = (
                f"{axis} = {cuts[axis]} cuts the scan of `{group.name}`, and how that is put together is not modelled"
            )
            yield Problem(
                at(f"parallelism.{axis}"), message, f"`{axis}: 1`; data, pipeline and ZeRO leave a scan whole"
            )


def scans_know_no_documents(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A state that a document leaves would reach the next one of its sequence."""
    for group in model.groups:
        if run.documents is not None and group.attention.recurrent:
            message = f"packed documents with the scan of `{group.name}` are not modelled"
            yield Problem(at("run.documents"), message, "leave `documents` out, or a model without recurrences")


def mixers_stand_alone(model: Model, at: Places) -> Iterator[Problem]:
    """A layer without a feed-forward part has one norm before its mixer, and one addition."""
    for group in model.groups:
        path = f"model.layers.{group.name}"
        if group.mlp.kind != "none":
            continue
        if group.norms != "pre" or group.residual != "sequential":
            message = (
                f"`{group.name}` has no feed-forward part, with norms {group.norms} and a {group.residual} residual"
            )
            yield Problem(at(f"{path}.mlp"), message, "`norms: pre`, `residual: sequential`")
        for key in ("d_ff", "activation", "bias", "capacity_factor"):
            if f"{path}.mlp.{key}" in at.origins:
                yield Problem(at(f"{path}.mlp.{key}"), f"`{key}` of no feed-forward part", f"leave `{key}` out")
