"""The verbs on the plans of the library: the whole way from a file to what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

import ledger
from ledger.books.breakdown import breakdown
from ledger.books.compiled import Compiled
from ledger.cli import main
from ledger.report.files import REPORT_FORMATS as ASKED
from ledger.report.write import REPORT_WRITERS as WRITTEN
from tests.model import plans

ROOT = Path(__file__).resolve().parents[2]
PLANS = sorted(path.stem for path in (ROOT / "specs").glob("*.yaml"))
STATES = ("weights", "master", "gradients", "optimizer", "cache")
MEMORY = (*STATES, "activations", "logits", "workspace", "unsharded")


@pytest.fixture(scope="module")
def seventy() -> Compiled:
    """The reference plan."""
    return ledger.compile(str(ROOT / "specs" / "70b.yaml"))


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_of_the_library_meets_the_contract(plan: str) -> None:
    """What `show --json` prints is described by its schema, and its memory parts sum to its peak."""
    result = CliRunner().invoke(main, ["show", plan, "--json"], catch_exceptions=False)
    shown = json.loads(result.stdout)
    schema = json.loads((ROOT / "ledger" / "cli" / "schemas" / "show.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(shown, schema)
    assert shown["spec"] == plan
    assert sum(shown["totals"].get(f"memory.{part}", 0) for part in MEMORY) == shown["totals"]["memory.peak"]


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_of_the_library_meets_its_expectations(plan: str) -> None:
    """Published counts hold; whether a plan fits is its own affair."""
    result = CliRunner().invoke(main, ["check", plan, "--json"], catch_exceptions=False)
    (record,) = json.loads(result.stdout)["specs"]
    assert not record["problems"]
    assert not [failure for failure in record["failures"] if failure["message"].startswith("Expected")]


def test_every_symbol_leads_to_its_line(seventy: Compiled) -> None:
    """Each symbol of each formula is written somewhere in a spec, at exactly the path it names."""
    used = {str(symbol) for leaf in seventy.accounts for symbol in leaf.expression.free_symbols}
    assert used <= set(seventy.symbols)
    nowhere = {name for name in used if seventy.symbols[name].path not in seventy.plan.origins}
    assert not nowhere


def test_every_account_can_be_explained() -> None:
    """Names that `show` prints are names that `explain` takes, in accounts as in totals."""
    shown = json.loads(CliRunner().invoke(main, ["show", "gpt2", "--json"]).stdout)
    names = [leaf["account"] for leaf in shown["accounts"]][:3] + list(shown["totals"])[:3]
    for name in names:
        assert CliRunner().invoke(main, ["explain", "gpt2", name]).exit_code == 0


@pytest.mark.parametrize("plan", PLANS)
def test_parts_sum_to_their_total(plan: str) -> None:
    """`explain` of a total accounts for all of it, exactly: memory of the peak, FLOPs of the job, bytes of a device."""
    compiled = ledger.compile(plan)
    summed = [key for key in compiled.totals if key.startswith("comm.") and key.endswith(".bytes")]
    whole = ("memory.peak", "flops.forward", "flops.backward", "flops.recompute", "flops.step", "traffic.step")
    summed += [key for key in whole if key in compiled.totals]
    found = {key: sum(value for _, value in breakdown(compiled, key).parts) for key in summed}
    assert found == {key: compiled.totals[key] for key in summed}


def test_the_waterfall_is_the_step(seventy: Compiled) -> None:
    """The spans on the critical path sum to the step."""
    spans = breakdown(seventy, "time.step").parts
    assert float(sum(value for _, value in spans)) == pytest.approx(float(seventy.totals["time.step"]))


def test_overrides_reach_the_books() -> None:
    """`--set` is the same as another value in the file: twice the sequences in a step are twice its FLOPs."""
    shown = [
        json.loads(CliRunner().invoke(main, ["show", "gpt2", "flops.forward", "--json", *setting]).stdout)["totals"]
        for setting in ([], ["--set", "run.global_batch=960"])
    ]
    assert shown[1]["flops.forward"] == 2 * shown[0]["flops.forward"]


@pytest.mark.parametrize("verb", ["show", "explain"])
def test_a_value_in_vain_is_noted_beside_the_figures(verb: str) -> None:
    """The figure goes to standard output as ever; what was typed for nothing is told of on standard error."""
    plain = CliRunner().invoke(main, [verb, "8b", "flops.step"], catch_exceptions=False)
    typed = ["--set", "kernels.residual=fused", "--set", "kernels.experts=eager"]
    noted = CliRunner().invoke(main, [verb, "8b", "flops.step", *typed], catch_exceptions=False)
    assert (noted.exit_code, noted.stdout, plain.stderr) == (0, plain.stdout, "")
    experts, residual = noted.stderr.splitlines()
    assert experts.startswith("--set kernels.experts=eager:1:23: note: `kernels.experts` has no effect: no layer")
    assert residual.startswith("--set kernels.residual=fused:1:24: note: `kernels.residual` has no effect: without it")


def test_check_warns_of_a_value_in_vain() -> None:
    """Once for each, as of any other warning; `--strict` fails."""
    typed = [
        "check",
        "8b",
        "--no-search",
        "--json",
        "--set",
        "kernels.residual=fused",
        "--set",
        "kernels.experts=eager",
    ]
    (record,) = json.loads(CliRunner().invoke(main, typed, catch_exceptions=False).stdout)["specs"]
    told = [warning["message"].partition(" has")[0] for warning in record["warnings"]]
    assert [message for message in told if message.startswith("`kernels")] == [
        "`kernels.experts`",
        "`kernels.residual`",
    ]
    assert CliRunner().invoke(main, [*typed, "--strict"], catch_exceptions=False).exit_code == 1


def test_the_first_plan_of_init_compiles(command_line: Callable[..., Result]) -> None:
    """What a newcomer is given works as it is."""
    command_line("init", "mine.yaml")
    record = json.loads(command_line("check", "mine.yaml", "--json").stdout)["specs"][0]
    assert not record["problems"]


def test_every_format_of_the_report_can_be_asked_for() -> None:
    """The command line, which loads nothing to say what there is, and the writer agree on the formats."""
    assert set(ASKED) == set(WRITTEN)


def test_what_the_host_holds_and_moves_is_explained() -> None:
    """Parts of host memory are those of one of eight devices of a node; copies and traffic sum to their total."""
    found = plans.compiled(
        model="llama-3-8b",
        cluster={"base": "h100-400g", "devices": 16},
        precision="bf16-mixed",
        parallelism={"data": 16, "zero": 1, "offload": ["optimizer"]},
        run={"seq_len": 4096, "micro_batch": 1, "global_batch": 16},
    )
    sums = {
        key: sum(value for _, value in breakdown(found, key).parts)
        for key in ("memory.host", "traffic.host", "host_link.down.bytes", "host_link.up.bytes")
    }
    assert sums == {key: found.totals[key] // (8 if key == "memory.host" else 1) for key in sums}
