"""Packages that a verb needs beside those that the program is installed with."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import click

FOR_STEPS = ("torch", "transformers")  # what runs a training step; the extra `evidence` has them


def installed(why: str, needed: Sequence[str] = FOR_STEPS) -> None:
    """Raises a usage error that says `why` PyTorch is needed, and how to get what is missing."""
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        wanted = "-e '.[evidence]'" if needed is FOR_STEPS else " ".join(missing)
        place = " in ledger's folder" if needed is FOR_STEPS else ""
        raise click.UsageError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed, and {why}; "
            f"`pip install {wanted}`{place} installs what is needed"
        )
