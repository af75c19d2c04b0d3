"""Every verb on a plan that serves: an answer, or one line that says why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from ledger.spec.quantities import parse_any
from tests.library_plans import SERVING, SPECS

ROOT = SPECS.parent
PLAN = "serve-70b"


@pytest.mark.parametrize("plan", [path.stem for path in SERVING])
def test_show_meets_the_contract(command_line: Callable[..., Result], plan: str) -> None:
    """What `show --json` prints of a service is described by the schema of all plans."""
    shown = json.loads(command_line("show", plan, "--json").stdout)
    schema = json.loads((ROOT / "ledger" / "cli" / "schemas" / "show.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(shown, schema)
    assert {"serve.ttft", "serve.time_per_token", "cost.per_million_tokens"} <= set(shown["totals"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("serve.ttft", "formula  passes of a prompt x seconds of one through all stages"),
        ("memory.peak", "formula  memory.weights + memory.cache + memory.activations + memory.logits"),
        ("serve.cache.per_device", "formula  what sequences of a replica keep in the layers of a device"),
        ("decoder/attention/core", "formula  4*B*S*H*E*Z/tp"),
        ("serve.prompt", "specs/serve-70b.yaml:11:17"),
    ],
)
def test_what_is_shown_can_be_explained(command_line: Callable[..., Result], name: str, told: str) -> None:
    """A total, an account and an input of a service have a formula or a place."""
    found = command_line("explain", PLAN, name)
    assert found.exit_code == 0
    assert told in found.stdout


def test_the_largest_concurrency_keeps_its_limit(command_line: Callable[..., Result]) -> None:
    """As many sequences as a time per token allows, and one more breaks it."""
    asked = ("solve", PLAN, "--for", "serve.concurrency", "--subject-to", "serve.time_per_token <= 50 ms", "--json")
    found = json.loads(command_line(*asked).stdout)
    (bound,) = found["conditions"]
    limit = float(parse_any("50 ms")[0])
    assert bound["at"] <= limit < bound["beyond"]
    assert found["value"] == found["beyond"] - 1


def test_no_more_requests_fit_than_are_answered(command_line: Callable[..., Result]) -> None:
    """The largest rate of arrivals is what a service answers: `check` passes at it, and fails a twentieth above."""
    arriving = ("--set", "serve.concurrency=null", "--set")
    asked = ("solve", PLAN, *arriving, "serve.arrival_rate=1 requests/s", "--for", "serve.arrival_rate", "--json")
    most = json.loads(command_line(*asked).stdout)["value"]
    checked = [
        command_line("check", PLAN, *arriving, f"serve.arrival_rate={share * most:.12g} requests/s")
        for share in (0.999, 1.05)
    ]
    assert [one.exit_code for one in checked] == [0, 1]
    assert "does not keep up" in checked[1].stdout


def test_a_first_token_alone_depends_on_no_load(command_line: Callable[..., Result]) -> None:
    """The question is refused with the total that is meant, and that is solved for."""
    asked = ("solve", PLAN, "--for", "serve.concurrency", "--subject-to")
    refused = command_line(*asked, "serve.ttft <= 500 ms")
    assert refused.exit_code == 2
    assert "`serve.ttft.under_load` depends on it" in refused.stderr
    assert command_line(*asked, "serve.ttft.under_load <= 500 ms").exit_code == 0


def test_layouts_and_loads_are_solved_together(command_line: Callable[..., Result]) -> None:
    """Every degree with its largest load: the best keeps both conditions, and replicas are what the degree leaves."""
    conditions = ("--subject-to", "fits", "--subject-to", "serve.time_per_token <= 40 ms")
    asked = ("--for", "parallelism.tensor", "--for", "serve.concurrency", "--maximize", "serve.tokens_per_second")
    found = json.loads(command_line("solve", PLAN, *asked, *conditions, "--json").stdout)
    assert found["changes"]["parallelism.tensor"] * found["changes"].get("parallelism.data", 1) == 8
    assert all(bound["at"] <= bound["limit"] for bound in found["conditions"])


def test_longer_prompts_are_solved_for(command_line: Callable[..., Result]) -> None:
    """The longest prompt whose first token comes in time."""
    asked = ("--for", "serve.prompt", "--subject-to", "serve.ttft <= 500 ms", "--json")
    found = json.loads(command_line("solve", PLAN, *asked).stdout)
    assert found["value"] > 4096


def test_a_sweep_prints_layouts_and_their_price(command_line: Callable[..., Result]) -> None:
    """The best layouts beside the plan, with what a million tokens costs, and the plan's text with one of them."""
    found = command_line("sweep", PLAN, "--over", "parallelism.pipeline=1", "--subject-to", "serve.ttft <= 200 ms")
    assert found.exit_code == 0
    assert "cost.per_million_tokens" in found.stdout
    assert "meet the conditions" in found.stdout
    applied = command_line("sweep", PLAN, "--over", "parallelism.pipeline=1", "--apply", "1")
    assert "serve: {prompt: 4096 tokens" in applied.stdout


def test_two_services_are_compared(command_line: Callable[..., Result], tmp_path: Path) -> None:
    """Of two loads of one model the cheaper is recommended, by the price of a million tokens."""
    busy = tmp_path / "busy.yaml"
    busy.write_text((SPECS / f"{PLAN}.yaml").read_text("utf-8").replace("concurrency: 64", "concurrency: 128"), "utf-8")
    found = command_line("compare", PLAN, str(busy), "--json")
    assert found.exit_code == 0
    assert "busy" in json.dumps(json.loads(found.stdout)["choice"])


def test_a_change_of_the_load_is_told_by_its_cause(command_line: Callable[..., Result], tmp_path: Path) -> None:
    """`diff` names the input that moved the time of a token."""
    busy = tmp_path / "busy.yaml"
    busy.write_text((SPECS / f"{PLAN}.yaml").read_text("utf-8").replace("concurrency: 64", "concurrency: 128"), "utf-8")
    found = command_line("diff", PLAN, str(busy))
    assert found.exit_code == 0
    assert "serve.concurrency" in found.stdout
    assert "serve.time_per_token" in found.stdout


def test_a_longer_prompt_is_one_input_and_moves_what_is_read_first(
    command_line: Callable[..., Result], tmp_path: Path
) -> None:
    """No `run.seq_len`, which a service's plan does not state; the first token and the price stand on top."""
    short = tmp_path / "short.yaml"
    short.write_text((SPECS / f"{PLAN}.yaml").read_text("utf-8").replace("prompt: 4096", "prompt: 2048"), "utf-8")
    found = json.loads(command_line("diff", PLAN, str(short), "--json").stdout)
    assert [one["path"] for one in found["inputs"]] == ["serve.prompt"]
    text = command_line("diff", PLAN, str(short)).stdout
    first = text[text.index("What changes first") : text.index("FLOPs")]
    assert "serve.ttft" in first
    assert "cost.per_million_tokens" in first


def test_a_training_plan_and_a_service_differ(command_line: Callable[..., Result]) -> None:
    """Two plans with hardly a total in common are compared all the same."""
    assert command_line("diff", PLAN, "70b").exit_code == 0
    assert command_line("compare", PLAN, "70b", "--json").exit_code == 0
