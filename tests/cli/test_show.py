"""`ledger show` and its published contract."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

SCHEMA = Path(__file__).resolve().parents[2] / "ledger" / "cli" / "schemas" / "show.schema.json"
HUGE = 2**53 + 1


def test_json_meets_its_published_schema(run: Callable[..., Result]) -> None:
    """What other tools read is what the schema promises them."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(run("show", "tiny.yaml", "--json").stdout), schema)


def test_json_keeps_integers_whole(run: Callable[..., Result]) -> None:
    """Counts beyond 2**53 do not pass through a float."""
    assert json.loads(run("show", "tiny.yaml", "--json").stdout)["totals"]["parameters"] == HUGE


def test_json_names_plan_and_role(run: Callable[..., Result]) -> None:
    """The contract's own fields: the spec as named, the digest with its hash, a role's parts and seconds per step."""
    shown = json.loads(run("show", "tiny.yaml", "--json").stdout)
    assert (shown["spec"], shown["digest"]) == ("tiny.yaml", "sha256:" + "ab" * 32)
    (role,) = shown["roles"]
    assert sum(role["memory"]["parts"].values()) == role["memory"]["peak"]
    assert role["time"] == {"compute": 4 * 0.5, "comm": 2 * 0.25, "exposed": 2 * 0.1}


def test_json_of_a_branch_holds_only_that_branch(run: Callable[..., Result]) -> None:
    """ACCOUNT narrows the accounts by whole path parts, and leaves the shape of the contract alone."""
    shown = json.loads(run("show", "tiny.yaml", "decoder/mlp", "--json").stdout)
    assert {leaf["account"] for leaf in shown["accounts"]} == {"decoder/mlp/up"}
    assert shown["totals"] == {}
    assert run("show", "tiny.yaml", "decoder/ml").exit_code == 2


def test_text_tells_verdict_totals_and_formulas(run: Callable[..., Result]) -> None:
    """A person reads the verdict first, then every total and account with its unit and formula."""
    result = run("show", "tiny.yaml")
    assert result.exit_code == 0
    assert result.stdout.index("It fits.") < result.stdout.index("memory.peak") < result.stdout.index("decoder/mlp/up")
    assert "2*B*D*S" in result.stdout
    assert "300 B" in result.stdout
    assert not result.stderr


def test_a_total_can_be_shown_alone(run: Callable[..., Result]) -> None:
    """`memory` shows the totals below it and nothing else."""
    lines = run("show", "tiny.yaml", "memory").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["total", "memory.peak", "memory.weights", "memory.logits"]


@pytest.mark.parametrize(("typed", "meant"), [("decoder/mlp/upp", "decoder/mlp/up"), ("peak", "memory.peak")])
def test_an_unknown_name_gets_near_ones(run: Callable[..., Result], typed: str, meant: str) -> None:
    """A slip in a name costs one look, not a search."""
    result = run("show", "tiny.yaml", typed)
    assert result.exit_code == 2
    assert typed in result.stderr
    assert meant in result.stderr
    assert not result.stdout
