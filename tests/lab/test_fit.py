"""Plans that ran out of memory come out so, and their neighbours fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ledger.cli import main
from ledger.lab.fit import Fit, fitted, read_fits
from ledger.spec.library import default_library
from ledger.spec.problems import SpecError

NANOTRON = default_library().folder("evidence") / "nanotron-out-of-memory.yaml"
# Out of memory on the machine, and 5 to 12 % below it by the replay: see docs/accuracy.md.
CLOSE = {"1B-tp2-pp4-mb16 (job 13848191)", "8B-tp2-pp4-mb4 (job 13848201)"}


@pytest.fixture(scope="module")
def fits() -> tuple[Fit, ...]:
    """Every plan of the file."""
    return tuple(fitted(read_fits(NANOTRON)))


def test_plans_that_ran_fit(fits: tuple[Fit, ...]) -> None:
    """No plan that trained is refused, and what its first device reserved is met within 20 %."""
    ran = [fit for fit in fits if fit.seen]
    assert len(ran) == 6
    assert all(fit.fits for fit in ran)
    assert all(fit.error is not None and abs(fit.error) < 0.2 for fit in ran)


def test_plans_without_memory_do_not_fit(fits: tuple[Fit, ...]) -> None:
    """Five plans that ran out of memory come out so; two more are within 12 % of the edge."""
    failed = [fit for fit in fits if not fit.seen]
    assert {fit.run.name for fit in failed if fit.fits} <= CLOSE
    assert sum(not fit.fits for fit in failed) >= 5
    assert all(fit.needed > 0.88 * fit.capacity for fit in failed)


def test_the_verb_prints_what_was_seen(fits: tuple[Fit, ...]) -> None:
    """The evidence is scored by its name, as a table and as JSON."""
    printed = CliRunner().invoke(main, ["score", "nanotron-out-of-memory"])
    assert printed.exit_code == 0
    assert printed.stdout.splitlines()[-1].endswith(f"of {len(fits)} as seen")
    found = json.loads(CliRunner().invoke(main, ["score", "nanotron-out-of-memory", "--json"]).stdout)
    assert {row["id"]: row["needed_bytes"] for row in found["rows"]} == {fit.run.name: fit.needed for fit in fits}


def test_other_evidence_has_no_such_plans(tmp_path: Path) -> None:
    """A file of step times is told what it lacks."""
    with pytest.raises(SpecError, match="records of `what: fit`"):
        read_fits(default_library().folder("evidence") / "korthikanti-2022.yaml")
