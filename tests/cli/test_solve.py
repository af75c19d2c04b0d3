"""`ledger solve`: what is printed, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from ledger.books.what_if import sizes
from ledger.cli.solve import KEPT
from tests.layouts import TENSOR_PARALLEL

SCHEMA = Path(__file__).resolve().parents[2] / "ledger" / "cli" / "schemas" / "solve.schema.json"
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
    result = command_line("solve", "7b-8xh100", "--for", "run.micro_batch", *both)
    assert result.exit_code == 2
    assert result.stderr.startswith("--maximize mfu --minimize time.step:1:1: ")


def test_the_parameters_of_layers_are_no_near_miss_of_themselves(command_line: CommandLine) -> None:
    """Exit code 2, with what to solve for instead."""
    result = command_line("solve", "70b", "--for", "model.parameters")
    assert result.exit_code == 2
    assert "follows from its shapes" in result.stderr
    assert "did you mean" not in result.stderr


def test_what_caps_the_devices_is_printed(command_line: CommandLine) -> None:
    """With exit code 1, since no number of devices is enough."""
    layout = [word for setting in TENSOR_PARALLEL for word in ("--set", setting)]
    result = command_line("solve", "70b", *layout, "--for", "cluster.devices", "--subject-to", "time.run <= 1 d")
    assert result.exit_code == 1
    assert "note: no more than 8192 devices: data x micro_batch must divide global_batch = 1024" in result.stdout


def test_two_keys_are_solved_for_together(command_line: CommandLine) -> None:
    """Both values come first, then what was tried and how to state the answer, then the conditions and a table."""
    asked = ("--for", "run.micro_batch", "--for", "parallelism.zero", "--set", "run.global_batch=16")
    result = command_line("solve", "7b-8xh100", *asked, "--set", "run.micro_batch=1")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("parallelism.zero = ")
    assert any(line.startswith("note: no objective is named: the least time.calendar of all") for line in lines)
    assert any(line.startswith("tried: 8, of which 8 legal; ") for line in lines)
    assert any(line.startswith("as overrides: --set ") for line in lines)
    assert any("answer" in line for line in lines)
    assert any(line.endswith("fits") and "fails" in line for line in lines)


def test_a_choice_says_why_others_are_not_it(command_line: CommandLine) -> None:
    """How much worse each is, or the rule that refuses it."""
    result = command_line("solve", "7b-8xh100", "--for", "parallelism.replicate")
    assert result.exit_code == 0
    assert "runner-up" in result.stdout
    assert "% time.calendar" in result.stdout
    assert "refused: 8: replicate = 8 leaves one device for each copy, so nothing is split" in result.stdout


@pytest.mark.parametrize(
    ("asked", "named", "exit_code"),
    [
        (("--for", "run.seq_len"), "run.seq_len", 0),
        (("--for", "model"), "model", 0),
        (("--for", "model", "--subject-to", "cost.run <= 1 USD"), "model", 1),
        (("--for", "accelerator", "--minimize", "cost.run"), "accelerator", 0),
        (("--for", "run.seq_len", "--subject-to", "memory.peak <= 1 GB"), "run.seq_len", 1),
        (("--for", "parallelism.zero"), "parallelism.zero", 0),
        (("--for", "parallelism.zero", "--subject-to", "memory.peak <= 1 GB"), "parallelism.zero", 1),
        (
            ("--for", "parallelism.zero", "--for", "run.micro_batch", "--subject-to", "memory.peak <= 1 GB"),
            ["parallelism.zero", "run.micro_batch"],
            1,
        ),
        pytest.param(("--for", "model.d_model", "--keep", "shape"), "model.d_model", 0, marks=pytest.mark.long),
        (("--for", "parallelism.reshard", "--for", "assumptions.mfu"), ["parallelism.reshard", "assumptions.mfu"], 0),
        (("--for", "parallelism.schedule", "--set", "parallelism.pipeline=2", "--set", "parallelism.data=4"), "", 0),
    ],
)
def test_json_meets_its_published_schema(
    command_line: CommandLine, asked: tuple[str, ...], named: str | list[str], exit_code: int
) -> None:
    """What other tools read is what the schema promises them; an answer is there if the exit code is 0."""
    limit = ("--subject-to", "napkin.days <= 40 d") if "assumptions.mfu" in asked else ()
    result = command_line("solve", "7b-8xh100", *asked, *limit, "--json", "--set", "run.micro_batch=1")
    shown = json.loads(result.stdout)
    jsonschema.validate(shown, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert result.exit_code == exit_code
    assert shown["for"] == (named or "parallelism.schedule")
    assert (shown["values"] is None) == (exit_code == 1)
    if isinstance(named, list):
        assert shown["value"] == shown["values"]
    elif exit_code == 0:
        assert shown["values"] == {shown["for"]: shown["value"]}


def test_what_is_kept_is_what_the_books_know() -> None:
    """The words of `--keep` stand beside the command, which loads no algebra to print its help."""
    assert tuple(sizes.KEPT) == KEPT


def test_a_missing_price_is_said_to_be_missing(command_line: CommandLine) -> None:
    """At the flag that asked for it; of several devices those without one are refused for that."""
    asked = ("--for", "run.micro_batch", "--minimize", "cost.run")
    result = command_line("solve", "7b-8xh100", "--set", "accelerator=gb300", *asked)
    assert result.exit_code == 2
    assert result.stderr.startswith("--minimize cost.run:1:12: no price of gb300 is on file")
    assert "assumptions: {price: " in result.stderr
    others = command_line("solve", "7b-8xh100", "--for", "accelerator", "--minimize", "cost.run")
    assert "the plan then has no cost.run: state `assumptions.price`" in others.stdout
    warned = [line for line in others.stderr.splitlines() if line.endswith("and the plan runs on b200")]
    assert warned == ["warning: the cluster describes nodes of h100-sxm, and the plan runs on b200"]
    assert "and the plan runs on h100-sxm" not in others.stderr


def test_it_is_noted_how_many_combinations_there_are() -> None:
    """First of all, then after each of them."""
    from ledger.books.what_if.solve import solve
    from ledger.spec.load import load_plan

    told: list[tuple[int, int]] = []
    found = solve(load_plan("7b-8xh100"), "parallelism.zero", note=lambda done, of: told.append((done, of)))
    assert told == [(number, found.counts["combinations"]) for number in range(found.counts["combinations"] + 1)]


def test_the_largest_model_of_a_budget_is_printed_with_what_it_takes(command_line: CommandLine) -> None:
    """The model first; then its figures beside the next larger one, what was skipped and why, and what to type."""
    budget = ("--for", "model", "--subject-to", "cost.run <= 1000 USD", "--set", "run.tokens=20 a parameter")
    result = command_line("solve", "7b-8xh100", *budget)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "model = gpt2-xl (maximize parameters; given: llama-2-7b)"
    assert "as overrides: --set model=gpt2-xl --set run.seq_len=1024" in lines
    assert any("next larger: " in line for line in lines)
    assert any(
        line.startswith("note: the next larger, ") and "misses `cost.run <= 1000 USD` by" in line for line in lines
    )
    [answer] = [line for line in lines if line.startswith("gpt2-xl ")]
    assert "1.56 billion" in answer  # parameters; 20 times as many tokens
    assert "31.2 billion" in answer
    [skipped] = [line for line in lines if line.startswith("skipped: ")]
    assert "llama-3-70b ($" in skipped


def test_the_cheapest_device_is_printed_with_its_price(command_line: CommandLine) -> None:
    """Cheapest first, each with the date of its price and the ends of its cost; those without a price by name."""
    result = command_line("solve", "7b-8xh100", "--for", "accelerator", "--minimize", "cost.run")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    heads = next(line for line in lines if line.startswith("accelerator  "))
    for head in ("cost.run", "time.calendar", "cost.run.low", "cost.run.high", "price", "layout", "fits"):
        assert f" {head} " in heads
    assert any(
        line.startswith("h100-sxm ") and "$2.50, 2026-05" in line and "yes, of 85.5 GB" in line for line in lines
    )
    assert any(line.startswith("rtx-4090 ") and "no, of 25.8 GB" in line for line in lines)
    [refused] = [line for line in lines if line.startswith("refused: ") and "b300" in line]
    assert refused.endswith("the plan then has no cost.run: state `assumptions.price`")
