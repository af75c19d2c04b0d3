"""A model that is a parameter count and nothing else: what follows from the count alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.books.calendar import run
from ledger.books.compiled_roles import CompiledRole, whole
from ledger.books.counts import CHECKPOINT, checkpoint, napkin, parameters
from ledger.books.results import Check, Number, Verdict
from ledger.books.totals import static
from ledger.books.verdict import cost, expectations, operated, policy
from ledger.numbers import said
from ledger.spec.plan import Plan

STATE = ("weights", "master", "gradients", "optimizer")


def totals(plan: Plan, books: Sequence[CompiledRole]) -> dict[str, Number]:
    """Parameters, the napkin, persistent state, labelled capacity; the run at the assumed MFU."""
    found: dict[str, Number] = dict(parameters(whole(plan), books))
    found.update(napkin(plan, whole(plan)))
    found.update(checkpoint(plan, whole(plan)))
    for key, amount in (pair for book in books for pair in static(plan, book)):
        found[key] = max(found.get(key, 0), amount)
    found["memory.capacity"] = plan.accelerator.memory
    if "napkin.time.run" in found:
        steps = plan.run.global_batch * plan.run.seq_len
        step = float(found["napkin.time.run"]) * steps / (plan.run.token_count or 1)
        known = dict(run(plan, step, lambda: found[CHECKPOINT]))
        found.update({key: amount for key, amount in known.items() if key != "time.run"})
    return found


def verdict(plan: Plan, found: Mapping[str, Number]) -> Verdict:
    """Whether the state alone fits; activations, logits and buffers come on top and are not known."""
    state = sum(float(found[f"memory.static.{part}"]) for part in STATE)
    capacity = float(found["memory.capacity"])
    fits = state <= capacity
    figure = f"{said(state, 'B')} of {said(capacity, 'B')}"
    detail = "weights, gradients and optimizer state only; activations and buffers come on top"
    checks = [
        Check("fits", "State per device", "pass" if fits else "fail", figure, detail),
        Check("parameters", "Parameters", "pass", said(found["parameters"], "1")),
        *operated(plan, found),
        *policy(plan),
        *expectations(plan, found),
    ]
    headline = f"state {'fits' if fits else 'does not fit'}: {figure}"
    if "napkin.days" in found:
        length, assumed = said(found["time.calendar"], "s"), said(plan.assumptions.mfu, "%")
        headline += f"; {length} at the assumed {assumed} MFU{cost(plan, found)}"
    return Verdict(fits, "not known from a parameter count", "uncalibrated", headline, tuple(checks))
