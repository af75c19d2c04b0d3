"""`ledger diff`: formats and exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from click.testing import Result

CommandLine = Callable[..., Result]
SMALLER = ("--set", "run.micro_batch=6")


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        ([], 0),
        (["memory.peak > 0"], 0),
        (["memory.peak < -5%"], 1),
        (["memory.peak > 0", "flops.run != 0", "run.what > 1"], 2),
        (["fits"], 0),
    ],
)
def test_gates_decide_the_exit_code(command_line: CommandLine, gates: list[str], code: int) -> None:
    """Half the micro-batch halves activations: no gate on growth trips, one on shrinking does, an unknown one is 2."""
    options = [part for gate in gates for part in ("--fail-on", gate)]
    assert command_line("diff", "gpt2", "gpt2", *SMALLER, *options).exit_code == code


def test_a_plan_that_fits_no_more_trips_the_gate(command_line: CommandLine) -> None:
    """240 sequences of 1024 tokens have 240 x 1024 x 50257 x 4 B = 49 GB of fp32 logits, and as much for gradients."""
    two = [
        part for key in ("cluster.devices=2", "parallelism.data=2", "run.micro_batch=240") for part in ("--set", key)
    ]
    result = command_line("diff", "gpt2", "gpt2", *two, "--fail-on", "fits")
    assert (result.exit_code, result.stderr) == (1, "failed on: fits\n")


def test_json_is_for_programs(command_line: CommandLine) -> None:
    """Stable names, and the input with both places."""
    shown = json.loads(command_line("diff", "gpt2", "gpt2", *SMALLER, "--json").stdout)
    (change,) = shown["inputs"]
    assert (shown["schema"], change["path"], change["old"], change["new"]) == (
        "ledger-diff/1",
        "run.micro_batch",
        "12",
        "6",
    )
    assert re.search(r"specs/gpt2\.yaml:\d+:\d+$", change["old_where"])
    assert change["new_where"].startswith("--set run.micro_batch=6:1:")


@pytest.mark.parametrize("form", ["text", "md", "html"])
def test_every_format_leads_with_the_verdict(command_line: CommandLine, form: str) -> None:
    """The headline stands before any table."""
    shown = command_line("diff", "gpt2", "gpt2", *SMALLER, "--format", form).stdout
    assert -1 < shown.index("headline: ") < shown.index("What changes first")
