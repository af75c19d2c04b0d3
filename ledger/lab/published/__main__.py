"""`python -m ledger.lab.published predicted | constants | worth`: what the library says of the runs it carries."""

from __future__ import annotations

import sys

from ledger.evidence.known_runs import PREDICTED, folder
from ledger.lab.published import worth
from ledger.lab.published.carried import predictions, written
from ledger.lab.published.constants import lines, trials


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
