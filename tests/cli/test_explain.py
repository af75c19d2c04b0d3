"""`ledger explain`: from a number to the lines it comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from click.testing import Result

from ledger.books.compiled import Compiled
from ledger.report.explained import input_record


def test_every_symbol_has_value_and_place(run: Callable[..., Result]) -> None:
    """A reviewer gets from an account to `file:line:column` of everything in its formula."""
    record = json.loads(run("explain", "tiny.yaml", "decoder/mlp/up", "--json").stdout)
    found = {item["symbol"]: (item["value"], item["where"], item["source"]) for item in record["symbols"]}
    assert found == {
        "B": (2, "tiny.yaml:3:7", ""),
        "S": (3, "", ""),
        "D": (5, "toy.yaml:1:1", "a paper"),
    }
    assert [entry["when"] for entry in record["entries"]] == ["forward", "first..loss"]


def test_text_has_formula_rule_and_place(run: Callable[..., Result]) -> None:
    """The same for a person, each posting of the account under its own phase."""
    text = run("explain", "tiny.yaml", "decoder/mlp/up").stdout
    for part in ("forward, matmul.bf16", "first..loss, memory", "2*B*D*S", "two per multiply-add", "tiny.yaml:3:7"):
        assert part in text


def test_parts_of_the_peak_sum_to_it(run: Callable[..., Result]) -> None:
    """A total is explained by parts that make it up, and the largest accounts behind them."""
    record = json.loads(run("explain", "tiny.yaml", "memory.peak", "--json").stdout)
    assert sum(part["value"] for part in record["parts"]) == record["value"]
    assert [item["account"] for item in record["largest"]] == ["head/output", "decoder/mlp/up"]
    assert "backward, loss" in record["note"]


def test_parts_of_flops_count_every_device(run: Callable[..., Result]) -> None:
    """Whole-job FLOPs are the accounts of one device times the devices of its role."""
    record = json.loads(run("explain", "tiny.yaml", "flops.forward", "--json").stdout)
    assert sum(part["value"] for part in record["parts"]) == record["value"]


def test_parts_of_a_step_sum_to_it(run: Callable[..., Result]) -> None:
    """The waterfall is the step."""
    record = json.loads(run("explain", "tiny.yaml", "time.step", "--json").stdout)
    assert sum(part["value"] for part in record["parts"]) == record["value"]
    assert "gradient reduction" in run("explain", "tiny.yaml", "time.step").stdout


def test_what_a_plan_leaves_out_is_an_input_all_the_same(compiled: Compiled) -> None:
    """No input of a total is blank: a schedule that is not stated follows, and no master weights are `none`."""
    assert input_record(compiled, "parallelism.schedule")["value"] == "1f1b"
    assert input_record(compiled, "precision.master")["value"] == "none"
    assert input_record(compiled, "parallelism.invented") == {}


def test_a_branch_is_no_account(run: Callable[..., Result]) -> None:
    """Only leaves carry a formula; the branch's leaves are offered."""
    result = run("explain", "tiny.yaml", "decoder/mlp")
    assert result.exit_code == 2
    assert "decoder/mlp/up" in result.stderr


def test_a_bubble_of_nothing_says_why(command_line: Callable[..., Result]) -> None:
    """Without a pipeline nobody waits, and the schedule that would follow is not told as if somebody did."""
    text = command_line("explain", "8b", "time.bubble").stdout
    assert text.startswith("time.bubble = 0 s\n")
    assert "\nnobody waits: with pipeline = 1 there is one stage, and each device runs all layers\n" in text
    assert "1f1b: one forward" not in text
    assert "interleaved: one forward" in command_line("explain", "405b", "time.bubble").stdout


def test_a_plan_whose_host_updates_nothing_moves_nothing_there(command_line: Callable[..., Result]) -> None:
    """Activations alone wait in host memory: no update runs there, and the total explains itself as zero."""
    found = command_line("explain", "gpt2", "traffic.host", "--set", "parallelism.offload=[activations]")
    assert found.exit_code == 0
    assert "nothing is moved" in found.stdout


def test_a_total_that_wants_a_price_is_no_misspelling(command_line: Callable[..., Result]) -> None:
    """What is missing is named, and no other total offered."""
    result = command_line("explain", "7b-8xh100", "cost.run", "--set", "accelerator=gb300")
    assert result.exit_code == 2
    assert "no price of gb300 is on file" in result.stderr
    assert "did you mean" not in result.stderr


def test_an_input_is_explained_by_where_it_is_written(command_line: Callable[..., Result]) -> None:
    """The product that tokens come from, and the place of any value; what is no input has near misses as before."""
    result = command_line("explain", "8b", "run.tokens", "--set", "run.tokens=20 a parameter")
    assert result.stdout.splitlines() == [
        "run.tokens = 20 a parameter × 8,030,261,248",
        "  where    --set run.tokens=20 a parameter:1:18",
    ]
    record = json.loads(command_line("explain", "8b", "run.micro_batch", "--json").stdout)
    assert (record["input"], record["value"]) == ("run.micro_batch", 1)
    assert command_line("explain", "8b", "run.tokns").exit_code == 2


def test_a_number_format_is_explained_by_its_bits(command_line: Callable[..., Result]) -> None:
    """What a value is stored as, part by part; what is no number, or has no bits in the format, is refused."""
    text = command_line("explain", "bf16", "0.15625").stdout
    assert text.startswith("0.15625 is stored as 2^(124 - 127) × (1 + 32/128) = 0.15625, exactly\n")
    assert re.search(r"mantissa +0100000 +1 \+ 32/128", text)
    figures = json.loads(command_line("explain", "fp8_e4m3", "0.003", "--json").stdout)["figures"]
    assert (figures["stored"]["value"], figures["bias"]["value"]) == (2**-8, 7)
    assert "values a block" in command_line("explain", "nvfp4").stdout
    for spec, value in (("bf16", "large"), ("e8m0", "0"), ("8b", "")):
        result = command_line("explain", spec, *([value] if value else []))
        assert (result.exit_code, "ACCOUNT" in result.stderr) == (2, True)


def test_a_small_value_survives_by_the_scale_of_its_block(command_line: Callable[..., Result]) -> None:
    """What becomes of 1e-8 is said of formats whose values stand for themselves, and of no others."""
    for name, said in (("fp16", True), ("e2m1", True), ("mxfp8", False), ("mxfp4", False), ("nvfp4", False)):
        assert ("1e-8 survives" in command_line("explain", name, "1e-8").stdout) == said


@pytest.mark.parametrize(
    ("value", "stored"), [("-128", -128), ("-0.5", -0.5), ("-.5", -0.5), ("-1e-8", -1e-8), ("-1/4", -0.25)]
)
def test_a_negative_value_is_no_option(command_line: Callable[..., Result], value: str, stored: float) -> None:
    """It is an argument before options and behind them; what is no number is still an option that there is not."""
    for words in (["fp32", value, "--json"], ["--json", "fp32", value], ["fp32", "--json", "--", value]):
        figures = json.loads(command_line("explain", *words).stdout)["figures"]
        assert figures["stored"]["value"] == pytest.approx(stored)
    result = command_line("explain", "fp32", "-x")
    assert (result.exit_code, "No such option" in result.stderr) == (2, True)


@pytest.mark.parametrize(("spelt", "name"), [("float16", "fp16"), ("FP16", "fp16"), ("BFloat16", "bf16")])
def test_formats_go_by_the_words_of_stacks(command_line: Callable[..., Result], spelt: str, name: str) -> None:
    """In any case, as the library's spellings have them."""
    assert json.loads(command_line("explain", spelt, "1", "--json").stdout)["format"] == name


@pytest.mark.parametrize(("spelt", "near"), [("half", ""), ("e4m3", "`fp8_e4m3`"), ("fp4", "`nvfp4`")])
def test_what_is_no_format_is_said_to_be_none(command_line: Callable[..., Result], spelt: str, near: str) -> None:
    """Where a number is asked of it: the formats are listed; a plan that is not there is still a missing file."""
    result = command_line("explain", spelt, "0.5")
    assert (result.exit_code, near in result.stderr) == (2, True)
    assert f"no number format is named `{spelt}`" in result.stderr
    assert "bf16, fp16, fp8_e4m3" in result.stderr
    assert "number format" not in command_line("explain", spelt, "memory.peak").stderr
