"""`python -m ledger.evidence.published predicted | constants | worth`: what the library says of the runs it carries."""

from __future__ import annotations

import sys

from ledger.evidence.published import worth
from ledger.evidence.published.carried import predictions, written
from ledger.evidence.published.constants import lines, trials
from ledger.evidence.published.known import PREDICTED, folder


def main() -> None:
    """Writes the table of predictions, or prints the fit of the stacks' constant, or what mechanisms are worth."""
    if sys.argv[1:] == ["worth"]:
        sys.stdout.writelines(f"{line}\n" for line in worth.lines())
        return
    if sys.argv[1:] == ["constants"]:
        sys.stdout.writelines(f"{line}\n" for line in lines(trials()))
        return
    path = folder() / PREDICTED
    after = written(predictions())
    if not path.exists() or path.read_text(encoding="utf-8") != after:
        path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
