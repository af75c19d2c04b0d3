"""Rules on how a run is kept going: what is stated has the other half that gives it a meaning."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.operations import BEST, NAME, Operations
from ledger.spec.places import Places
from ledger.spec.problems import Problem
from ledger.spec.rules.effects import idle

INTERVAL, RATE = f"{NAME}.checkpoint_interval", f"{NAME}.failure_rate"


def best_interval_follows(operations: Operations, at: Places) -> Iterator[Problem]:
    """The best interval weighs what a checkpoint takes against what a failure costs, so it needs both."""
    if operations.checkpoint_interval != BEST:
        return
    if not operations.failure_rate:
        message = f"the best `{INTERVAL}` follows from how often devices fail, and no rate above zero is stated"
        yield Problem(at(INTERVAL), message, f"state `{RATE}`, as `0.0005 /d`, or an interval")
    if not (operations.checkpoint_cost or operations.storage_bandwidth):
        message = f"the best `{INTERVAL}` follows from what a checkpoint takes, and that is not stated"
        help_text = f"state `{NAME}.storage_bandwidth`, `{NAME}.checkpoint_cost` above zero, or an interval"
        yield Problem(at(INTERVAL), message, help_text)


def losses_are_stated_whole(operations: Operations, at: Places) -> Iterator[Problem]:
    """Lost time follows from pairs: how often and how long; either alone says nothing."""
    rate, saved = bool(operations.failure_rate), operations.checkpoint_interval is not None
    costs = bool(operations.checkpoint_cost or operations.storage_bandwidth)
    every, takes = f"{NAME}.evaluation_interval", f"{NAME}.evaluation_time"
    lacking = (
        (RATE, f"`{INTERVAL}` is not stated", saved),
        (INTERVAL, f"neither `{RATE}` nor what a checkpoint takes is stated", rate or costs),
        (f"{NAME}.checkpoint_cost", f"`{INTERVAL}` is not stated", saved),
        (f"{NAME}.storage_bandwidth", f"`{INTERVAL}` is not stated", saved),
        (f"{NAME}.restart_time", f"`{INTERVAL}` is not stated", saved),
        (f"{NAME}.restart_time", f"`{RATE}` is not stated", rate or not saved),
        (f"{NAME}.storage_bandwidth", "`checkpoint_cost` says what a checkpoint takes",
         operations.checkpoint_cost is None or not saved),
        (every, f"`{takes}` is not stated", bool(operations.evaluation_time)),
        (takes, f"`{every}` is not stated", bool(operations.evaluation_interval)),
    )  # fmt: skip
    for path, why, known in lacking:
        if at.states(path) and not known:
            yield idle(path, why, "state it too, or leave this out", at)
