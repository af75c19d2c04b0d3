"""`ledger solve`: what is printed, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable

from click.testing import Result

CommandLine = Callable[..., Result]


def test_the_value_comes_first(command_line: CommandLine) -> None:
    """Then the values that are legal, the closed form, and a table of the conditions."""
    result = command_line("solve", "7b-8xh100", "--for", "run.seq_len", "--subject-to", "memory.peak <= 60 GB")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("run.seq_len = ")
    assert lines[1].startswith("closed form: memory.peak = ")
    assert lines[-1].startswith("memory.peak <= 60 GB")
    assert lines[-1].endswith("binds")


def test_what_cannot_be_met_is_printed_with_exit_code_1(command_line: CommandLine) -> None:
    """It is an answer, and no error of the input."""
    asked = ("solve", "7b-8xh100", "--for", "run.micro_batch", "--subject-to", "memory.peak <= 1 GB")
    result = command_line(*asked)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        1,
        "no run.micro_batch meets the conditions; the nearest miss is 1",
    )
    shown = json.loads(command_line(*asked, "--json").stdout)
    assert (shown["schema"], shown["value"], shown["nearest"]) == ("ledger-solve/1", None, 1)
    assert shown["conditions"][0]["limit"] == 10**9


def test_unknown_keys_have_near_misses(command_line: CommandLine) -> None:
    """Exit code 2, with the place in what was typed."""
    result = command_line("solve", "7b-8xh100", "--for", "run.micro_bach")
    assert result.exit_code == 2
    assert "did you mean `run.micro_batch`" in result.stderr


def test_one_objective_at_a_time(command_line: CommandLine) -> None:
    """Which of two would win is not for us to say."""
    both = ("--maximize", "mfu", "--minimize", "time.step")
    assert command_line("solve", "7b-8xh100", "--for", "run.micro_batch", *both).exit_code == 2


def test_the_parameters_of_layers_are_no_near_miss_of_themselves(command_line: CommandLine) -> None:
    """Exit code 2, with what to solve for instead."""
    result = command_line("solve", "70b", "--for", "model.parameters")
    assert result.exit_code == 2
    assert "follows from its shapes" in result.stderr
    assert "did you mean" not in result.stderr


def test_what_caps_the_devices_is_printed(command_line: CommandLine) -> None:
    """With exit code 1, since no number of devices is enough."""
    result = command_line("solve", "70b", "--for", "cluster.devices", "--subject-to", "time.run <= 1 d")
    assert result.exit_code == 1
    assert "note: no more than 8192 devices: data x micro_batch must divide global_batch = 1024" in result.stdout


def test_a_second_key_is_no_key_that_is_dropped(command_line: CommandLine) -> None:
    """One input is looked for at a time, and asking for two is told."""
    result = command_line("solve", "7b-8xh100", "--for", "run.seq_len", "--for", "run.micro_batch")
    assert result.exit_code == 2
    assert "one KEY at a time is solved for, not run.seq_len and run.micro_batch" in result.stderr
