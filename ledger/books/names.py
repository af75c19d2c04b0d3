"""Finding accounts and totals by the names that users type."""

from __future__ import annotations

from difflib import get_close_matches

from ledger.books.results import Account, Compiled
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
    names = list(dict.fromkeys([*(account.account for account in compiled.accounts), *compiled.totals]))
    within = [known for known in names if name.lower() in known.lower()]
    near = list(dict.fromkeys([*get_close_matches(name, names, n=3), *within]))[:5]
    hint = f"did you mean {', '.join(near)}?" if near else "`ledger show SPEC` lists what there is"
    return Problem(Location(name), f"no account or total {name!r}", hint)
