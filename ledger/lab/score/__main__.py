"""`python -m ledger.lab.score predicted | constants | worth`: what the library says of the runs it carries."""

from __future__ import annotations

import sys

from ledger.evidence.published_runs import predictions_path
from ledger.lab.score.ablations import ablation_lines
from ledger.lab.score.library_runs import predictions, table_text
from ledger.lab.score.matmul_level import level_lines, trials


def main() -> None:
    """Writes the table of predictions, or prints the fit of the stacks' constant, or what mechanisms are worth."""
    if sys.argv[1:] == ["worth"]:
        sys.stdout.writelines(f"{line}\n" for line in ablation_lines())
        return
    if sys.argv[1:] == ["constants"]:
        sys.stdout.writelines(f"{line}\n" for line in level_lines(trials()))
        return
    path = predictions_path()
    after = table_text(predictions())
    if not path.exists() or path.read_text(encoding="utf-8") != after:
        path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
