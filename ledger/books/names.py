"""Finding accounts and totals by the names that users type."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from ledger.books.compiled import Compiled
from ledger.books.results import Account
from ledger.spec.device_parts import LIST_PRICES, STATE_ONE, no_price
from ledger.spec.near import nearest
from ledger.spec.plan import Plan
from ledger.spec.problems import Location, Problem


def under(name: str, prefix: str) -> bool:
    """Whether an account or a total's key is `prefix`, or lies below it: `decoder/mlp`, `memory`."""
    return name == prefix or name.startswith((f"{prefix}/", f"{prefix}."))


def accounts_under(compiled: Compiled, prefix: str) -> list[Account]:
    """The leaves at or below an account, in ledger order."""
    return [account for account in compiled.accounts if under(account.account, prefix)]


def totals_under(compiled: Compiled, prefix: str) -> list[str]:
    """The keys of totals at or below a key."""
    return [key for key in compiled.totals if under(key, prefix)]


def unknown_name(compiled: Compiled, name: str) -> Problem:
    """What is wrong with a name that is neither an account nor a total, with the nearest ones that are."""
    if lacking := absent(compiled.plan, name):
        return Problem(Location(name), f"no total {name!r}: {lacking.message}", lacking.help)
    names = list(dict.fromkeys([*(account.account for account in compiled.accounts), *compiled.totals]))
    within = [candidate for candidate in names if name.lower() in candidate.lower()]
    near = list(dict.fromkeys([*get_close_matches(name, names, n=3), *within]))[:5]
    hint = f"did you mean {', '.join(near)}?" if near else "`ledger show SPEC` lists what there is"
    return Problem(Location(name), f"no account or total {name!r}", hint)


def no_total(plan: Plan | None, key: str, known: Collection[str]) -> tuple[str, str]:
    """That a key is none of the `known` totals: why the plan lacks it, or those that may have been meant."""
    lacking = absent(plan, key) if plan else None
    return (lacking.message, lacking.help) if lacking else (f"no total `{key}`", nearest(key, sorted(known)))


# --- Totals that a plan lacks because an input is not stated: which input that is, and what to state ---

OF_RUNS = ("time.run", "time.calendar", "cost.run", "energy.run", "carbon.run")
BY_HAND = ("napkin.flops.token", "napkin.flops.run", "napkin.time.run", "napkin.days")
PAID = ("cost.run", "cost.per_million_tokens")
POWERED = ("energy.run", "carbon.run")
DECODED = ("kv_cache", "prefill.time", "decode.time_per_token")
READ = ("time.data", "time.data.wait")
SAVED = ("checkpoint.interval", "checkpoint.time", "checkpoint.writing", "checkpoint.host")


@dataclass(frozen=True)
class Absent:
    """What `needed` input keeps a plan from having a total: `of` its device where that is the reason; in words."""

    needed: str
    message: str
    help: str
    of: str = ""


def absent(plan: Plan, key: str) -> Absent | None:
    """Why a plan lacks a total that others have; None where it has it, and for what no plan has."""
    return next(_lacking(plan, key), None)


def _lacking(plan: Plan, key: str) -> Iterator[Absent]:
    device = plan.accelerator.name
    if key in DECODED and plan.model.encodes:
        message = f"`{key}` is of models that make token after token, and this one reads a sequence in both directions"
        yield Absent("model", message, "ask `tokens_per_second`, or `time.step`")
    if key == "images_per_second" and not plan.model.image:
        yield Absent("model.image", "the model reads tokens, and no images", "ask `tokens_per_second`")
    if key in BY_HAND and plan.model.of_blocks:
        message = f"`{key}` counts each weight once a token, and a weight of a block meets an image at many places"
        yield Absent("model", message, "ask `flops.run`, or `time.run`")
    if key in OF_RUNS and not plan.run.tokens:
        yield Absent("run.tokens", f"`{key}` is of a whole run, and the plan states no tokens", "state `run.tokens`")
    if key in PAID and not plan.assumptions.price:
        yield Absent("assumptions.price", no_price(device), f"state one: {STATE_ONE}; {LIST_PRICES}", device)
    if key in POWERED and not (plan.operations.power or plan.accelerator.power):
        message = f"no power of {device} is stated, so the run has no `{key}`"
        yield Absent("operations.power", message, "state `operations.power`", device)
    if key == "carbon.run" and plan.operations.grid_intensity is None:
        needed = "operations.grid_intensity"
        yield Absent(needed, f"`{key}` needs `{needed}`", "state what the grid gives off, as `380 g/kWh`")
    if key == "goodput" and not plan.operations.loses:
        needed, message = "operations", "nothing is stated that keeps the run from training, so there is no `goodput`"
        yield Absent(needed, message, "state `operations`: failures, checkpoints, evaluation")
    yield from _lacking_of_data(plan, key)


def _lacking_of_data(plan: Plan, key: str) -> Iterator[Absent]:
    """Of what a run reads and saves."""
    if key in READ and not plan.data.waits(plan.model):
        message = "no rate of storage or of workers is stated, so a step waits for no data"
        yield Absent("data", message, "state `data: {workers: 8, rate: 300 images/s}`, or a bandwidth and bytes")
    if key == "traffic.storage" and not (plan.data.token or plan.data.sample):
        yield Absent("data", "no bytes of a token or a sample in storage are stated", "state `data: {token: 2 B}`")
    if key in SAVED[2:] and plan.operations.saves and not plan.operations.checkpoint_async:
        message = f"`{key}` is of checkpoints that are written beside training, and this run waits for its own"
        yield Absent("operations.checkpoint_async", message, "state `operations: {checkpoint_async: true}`")
    if key == "checkpoint.writing" and plan.operations.stages and not plan.operations.storage_bandwidth:
        needed = "operations.storage_bandwidth"
        yield Absent(needed, f"`{key}` needs `{needed}`", "state how fast storage takes a checkpoint in: `20 GB/s`")
    if key in SAVED and not plan.operations.saves:
        needed = "operations.checkpoint_interval"
        yield Absent(needed, f"`{key}` needs `{needed}`", "state how often the run is saved, and what that takes")
