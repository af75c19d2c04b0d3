"""Finding accounts and totals by the names that users type."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from ledger.books.absent import absent
from ledger.books.results import Account, Compiled
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


def unknown(compiled: Compiled, name: str) -> Problem:
    """What is wrong with a name that is neither an account nor a total, with the nearest ones that are."""
    if lacking := absent(compiled.plan, name):
        return Problem(Location(name), f"no total {name!r}: {lacking.message}", lacking.help)
    names = list(dict.fromkeys([*(account.account for account in compiled.accounts), *compiled.totals]))
    within = [known for known in names if name.lower() in known.lower()]
    near = list(dict.fromkeys([*get_close_matches(name, names, n=3), *within]))[:5]
    hint = f"did you mean {', '.join(near)}?" if near else "`ledger show SPEC` lists what there is"
    return Problem(Location(name), f"no account or total {name!r}", hint)


def no_total(plan: Plan | None, key: str, known: Collection[str]) -> tuple[str, str]:
    """That a key is none of the `known` totals: why the plan lacks it, or those that may have been meant."""
    lacking = absent(plan, key) if plan else None
    return (lacking.message, lacking.help) if lacking else (f"no total `{key}`", nearest(key, sorted(known)))
