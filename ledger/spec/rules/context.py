"""Rules on what attention can do with a sequence that is cut over devices."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.places import Places, divisors
from ledger.spec.plan import Group, Kernels, Model, Parallelism
from ledger.spec.problems import Problem

# Kernels that hand out the log of each row's sum, by which the results of blocks of keys are put together, and that
# take any number of heads.
FUSED = ("flash", "flash_repeated", "flash3", "efficient", "cudnn", "cudnn_grouped")


def exchange_needs_context(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What is not cut needs no exchange."""
    if parallelism.context > 1:
        return
    for field, default in (("context_exchange", "all_gather"), ("context_balance", "zigzag")):
        value = getattr(parallelism, field)
        if value != default:
            message = f"{field} = {value} without context parallelism"
            yield Problem(at(f"parallelism.{field}"), message, f"leave `{field}` out, or a `context` of 2 or more")


def exchange_needs_a_fused_kernel(kernels: Kernels, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Blocks of a ring are put together by the sums of their rows, which only fused kernels hand out."""
    exchange = parallelism.context_exchange
    if parallelism.context > 1 and exchange != "all_gather" and kernels.attention not in FUSED:
        message = f"context_exchange = {exchange} cannot run with {kernels.attention} attention"
        help_text = f"`kernels.attention` of {', '.join(FUSED)}; or `context_exchange: all_gather`"
        yield Problem(at("parallelism.context_exchange"), message, help_text)


def rings_see_everything(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Windows and chunks leave blocks of a ring, or ranks in plain order, without work: no framework runs them so."""
    mesh = parallelism
    plain = mesh.context_balance == "none"
    if mesh.context == 1 or not (plain or mesh.context_exchange == "ring"):
        return
    field = "context_exchange" if mesh.context_exchange == "ring" else "context_balance"
    for group in model.groups:
        limit = _limit(group)
        if limit:
            message = f"{field} = {getattr(mesh, field)}, but layers of `{group.name}` see only a {limit}"
            legal = "`all_gather` or `all_to_all`" if field == "context_exchange" else "`zigzag`"
            yield Problem(at(f"parallelism.{field}"), message, legal)


def _limit(group: Group) -> str:
    if group.attention.window is not None:
        return f"window of {group.attention.window} tokens"
    return f"chunk of {group.attention.chunk} tokens" if group.attention.chunk is not None else ""


def heads_split_over_context(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """An all-to-all cuts heads instead of the sequence, within tensor parallelism (Jacobs et al. 2023, 2309.14509)."""
    mesh = parallelism
    if mesh.context == 1 or mesh.context_exchange != "all_to_all":
        return
    parts = mesh.tensor * mesh.context
    for group in model.groups:
        for field in ("heads", "kv_heads"):
            count = getattr(group.attention, field)
            if count % parts and not count % mesh.tensor:
                message = f"{field} = {count} of `{group.name}` does not split over tensor x context = {parts}"
                message += " (context_exchange = all_to_all)"
                each = count // mesh.tensor
                yield Problem(
                    at("parallelism.context"), message, f"{divisors(each)}; or `context_exchange: all_gather`"
                )
