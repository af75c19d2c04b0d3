"""How much memory of a device stays free in a search: as the command line says, else as the plan does."""

from __future__ import annotations

from ledger.books.what_if.conditions import fault
from ledger.numbers import said
from ledger.spec import headroom
from ledger.spec.headroom import POLICIES, Headroom
from ledger.spec.near import closest
from ledger.spec.plan import Plan
from ledger.spec.quantities import QuantityError, parse, parse_any

FLAG = "--headroom "
HELP = f"{', '.join(POLICIES)}, a share such as `10 %`, or bytes such as `8 GB`"


def kept_free(plan: Plan, text: str = "") -> float:
    """Bytes of each device that stay free; raises SpecError for a text that is no headroom, or leaves nothing."""
    wanted = text.strip()
    amount = headroom.headroom_bytes(_read(wanted, text) if wanted else plan.assumptions.headroom, _memory(plan))
    if amount < 0:
        raise fault(
            f"{FLAG}{text}", len(FLAG) + 1, "headroom is what stays free, so it is not negative", f"give {HELP}"
        )
    if amount >= _memory(plan):
        words = kept_free_words(plan, text)
        message = f"{words} headroom leaves nothing of the {said(_memory(plan), 'B')} of a device"
        raise fault(f"{FLAG}{text or words}", len(FLAG) + 1, message, f"give {HELP}")
    return amount


def kept_free_words(plan: Plan, text: str = "") -> str:
    """The headroom as it was asked for, or as the plan has it."""
    return text.strip() or headroom.headroom_words(plan.assumptions.headroom)


def _read(wanted: str, text: str) -> Headroom:
    if wanted in POLICIES:
        return wanted
    try:
        return float(parse_any(wanted)[0]) if wanted.endswith("%") else int(parse(wanted, "B"))
    except QuantityError as error:
        near = closest(wanted, [*POLICIES])
        help_text = f"did you mean `{near[0]}`?" if near else f"give {HELP}"
        raise fault(f"{FLAG}{text}", len(FLAG) + 1, f"`{wanted}` is no headroom", help_text) from error


def _memory(plan: Plan) -> int:
    return plan.accelerator.memory
