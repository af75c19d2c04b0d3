"""How much memory of a device stays free: a planning level, a share, an amount, or nothing."""

from __future__ import annotations

from ledger.books.verdict import HEADROOM
from ledger.books.what_if.conditions import fault
from ledger.numbers import said
from ledger.spec.near import closest
from ledger.spec.plan import Plan
from ledger.spec.quantities import QuantityError, parse, parse_any

FLAG = "--headroom "
NONE = "none"
HELP = f"{NONE}, {', '.join(HEADROOM)}, a share such as `10 %`, or bytes such as `8 GB`"


def headroom_bytes(plan: Plan, text: str = "") -> float:
    """Bytes of each device that stay free: as a text of the command line says, else as the plan does."""
    wanted = text.strip() or plan.assumptions.headroom
    if wanted == NONE:
        return 0.0
    if wanted in HEADROOM:
        return HEADROOM[wanted]
    try:
        share = wanted.endswith("%")
        amount = float(parse_any(wanted)[0]) * plan.accelerator.memory if share else float(parse(wanted, "B"))
    except QuantityError as error:
        near = closest(wanted, [NONE, *HEADROOM])
        help_text = f"did you mean `{near[0]}`?" if near else f"give {HELP}"
        raise fault(f"{FLAG}{text}", len(FLAG) + 1, f"`{wanted}` is no headroom", help_text) from error
    if amount < 0:
        raise fault(
            f"{FLAG}{text}", len(FLAG) + 1, "headroom is what stays free, so it is not negative", f"give {HELP}"
        )
    if amount >= plan.accelerator.memory:
        message = f"{wanted} headroom leaves nothing of the {said(plan.accelerator.memory, 'B')} of a device"
        raise fault(f"{FLAG}{text or wanted}", len(FLAG) + 1, message, f"give {HELP}")
    return amount


def headroom_words(plan: Plan, text: str = "") -> str:
    """The headroom as it was asked for, or as the plan has it."""
    return text.strip() or plan.assumptions.headroom
