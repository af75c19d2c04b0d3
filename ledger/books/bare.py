"""A model that is a parameter count and nothing else: what follows from the count alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.books.closed import Books
from ledger.books.counts import napkin, parameters
from ledger.books.results import Check, Number, Verdict
from ledger.books.totals import run, static
from ledger.books.verdict import GB, expectations, policy
from ledger.spec.plan import Plan

STATE = ("weights", "master", "gradients", "optimizer")


def totals(plan: Plan, books: Sequence[Books]) -> dict[str, Number]:
    """Parameters, the napkin, persistent state, labelled capacity; the run at the assumed MFU."""
    found: dict[str, Number] = dict(parameters(plan, books))
    found.update(napkin(plan, int(found["parameters"])))
    for key, amount in (pair for book in books for pair in static(plan, book)):
        found[key] = max(found.get(key, 0), amount)
    found["memory.capacity"] = plan.accelerator.memory
    if "napkin.time.run" in found:
        steps = plan.run.global_batch * plan.run.seq_len
        known = dict(run(plan, float(found["napkin.time.run"]) * steps / (plan.run.tokens or 1)))
        found.update({key: known[key] for key in ("cost.run", "energy.run", "goodput") if key in known})
    return found


def verdict(plan: Plan, found: Mapping[str, Number]) -> Verdict:
    """Whether the state alone fits; activations, logits and buffers come on top and are not known."""
    state = sum(float(found[f"memory.static.{part}"]) for part in STATE)
    capacity = float(found["memory.capacity"])
    fits = state <= capacity
    figure = f"{state / GB:.1f} of {capacity / GB:.1f} GB"
    detail = "weights, gradients and optimizer state only; activations and buffers come on top"
    checks = [
        Check("fits", "State per device", "pass" if fits else "fail", figure, detail),
        Check("parameters", "Parameters", "pass", f"{float(found['parameters']) / 1e9:.4g} B"),
        *policy(plan),
        *expectations(plan, found),
    ]
    headline = f"state {'fits' if fits else 'does not fit'}: {figure}"
    if "napkin.days" in found:
        headline += f"; {float(found['napkin.days']):.1f} days at the assumed {plan.assumptions.mfu:.0%} MFU"
    return Verdict(fits, "not known from a parameter count", "uncalibrated", headline, tuple(checks))
