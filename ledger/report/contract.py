"""The published form of a compiled plan: `ledger-show/1`, as ledger/cli/schemas/show.schema.json describes it.

Amounts are in SI base units; integers are exact, of any size.
"""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import Account, Number, RoleResult

SHOW_SCHEMA = "ledger-show/1"


def show_record(compiled: Compiled, spec: str) -> dict[str, Any]:
    """The object that `show --json` prints; `spec` is the plan as the user named it."""
    verdict = compiled.verdict
    return {
        "schema": SHOW_SCHEMA,
        "spec": spec,
        "digest": compiled.plan.digest,
        "totals": {key: json_number(value) for key, value in compiled.totals.items()},
        "accounts": [account_record(account) for account in compiled.accounts],
        "verdict": {
            "fits": verdict.fits,
            "bottleneck": verdict.bottleneck,
            "evidence": verdict.evidence,
            "headline": verdict.headline,
            "checks": [asdict(check) for check in verdict.checks],
        },
        "roles": [role_record(role) for role in compiled.roles],
    }


def json_number(value: Number) -> int | float:
    """A JSON number: whole fractions as integers, other fractions as the nearest float."""
    if not isinstance(value, Fraction):
        return value
    return value.numerator if value.denominator == 1 else float(value)


def json_number_or_none(value: Number | None) -> int | float | None:
    """A JSON number; null for None."""
    return None if value is None else json_number(value)


def account_record(account: Account) -> dict[str, Any]:
    """One leaf of the ledger; `amount` is that of one occurrence, which happens `times` a step."""
    return {
        "account": account.account,
        "role": account.role,
        "resource": account.resource.name,
        "unit": account.unit,
        "when": account.when,
        "amount": json_number(account.amount),
        "times": account.times,
        "formula": account.formula,
        "basis": account.basis,
    }


def role_record(role: RoleResult) -> dict[str, Any]:
    """One kind of device with its memory at the peak, and its kernels' seconds per step with nothing overlapped."""
    sent = [kernel for kernel in role.kernels if kernel.payload]
    computed = [kernel for kernel in role.kernels if not kernel.payload]
    return {
        "role": role.name,
        "stages": list(role.stages),
        "devices": role.devices,
        "memory": {
            "peak": role.peak.total,
            "reserved": role.reserved,
            "outside": [{"name": part.name, "bytes": part.bytes, "basis": part.basis} for part in role.outside],
            "moment": role.peak.name,
            "parts": dict(role.peak.parts),
        },
        "time": {
            "compute": sum(kernel.times * kernel.seconds for kernel in computed),
            "comm": sum(kernel.times * kernel.seconds for kernel in sent),
            "exposed": sum(kernel.times * kernel.exposed for kernel in sent),
        },
    }
