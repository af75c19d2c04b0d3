"""What the prices of a step rest on, in a sentence: measurements of its device, of others, figures, data sheets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ledger import numbers
from ledger.evidence import citations
from ledger.evidence.basis import Basis, basis

if TYPE_CHECKING:
    from ledger.books.results import Compiled

NAPKIN = "No step is priced: its length is 6ND, 6 × parameters × tokens, at the assumed utilisation."
LEAST = 0.0005  # a share that prints as nought is not told


def basis_sentence(compiled: Compiled) -> str:
    """The verdict's word for the evidence, and what shares of the step rest on what.

    A step here is its kernels and the transfers that delay it; the rest of it has no price.
    """
    if not any(role.kernels for role in compiled.roles):
        return NAPKIN
    shares = list(_shares(basis(compiled)))
    word = compiled.verdict.evidence.capitalize()
    if len(shares) == 1:
        return f"{word}: the time of a step rests on {shares[0][1]} alone."
    parts = [f"{numbers.percent(share)} on {what}" for share, what in shares]
    return f"{word}: {_joined(parts)}."


def _shares(rests: Basis) -> Iterator[tuple[float, str]]:
    """Every share that is not nought, measurements first."""
    named = [(share, f"measurements of {name or 'this device'}") for name, share in rests.devices.items()]
    for share, what in (*named, (rests.figures, "single published figures"), (rests.sheets, "data sheets")):
        if share >= LEAST:
            yield share, what


def _joined(parts: list[str]) -> str:
    first, rest = parts[0].replace(" on ", " of a step's time rests on ", 1), parts[1:]
    return ", ".join([first, *rest[:-1]]) + (f" and {rest[-1]}" if rest else "")


def no_microbenchmarks_sentence(compiled: Compiled) -> str:
    """Why no microbenchmark can be shown beside the plan's kernels."""
    if compiled.plan.model.bare:
        return "No kernel follows from a parameter count."
    lost = citations.missing_files(compiled.plan)
    if lost:
        named = ", ".join(lost)
        return f"No microbenchmark can be shown: prices of this plan cite {named}, which is no longer there."
    if not compiled.plan.accelerator.calibration:
        return "No microbenchmark prices this device: data sheets do."
    return "No microbenchmark behind these prices is near a kernel of this plan."
