"""`ledger sweep`: what is printed, what is refused, and the exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result

from ledger.report.fitted_columns import aligned
from ledger.spec.inputs import changes
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments

CommandLine = Callable[..., Result]
ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "ledger" / "cli" / "schemas" / "sweep.schema.json"
PLAN = "7b-8xh100"
FEW = {
    "parallelism.tensor": "1,2",
    "parallelism.sequence": "off",
    "parallelism.pipeline": "1",
    "parallelism.context": "1",
    "parallelism.context_exchange": "null",
    "parallelism.schedule": "null",
    "parallelism.ends": "null",
    "parallelism.interleave": "1",
    "parallelism.zero": "1,3",
    "parallelism.reshard": "null,layers",
    "parallelism.replicate": "1",
    "parallelism.offload": "null",
    "recompute": "'none',{every: 2}",
    "run.micro_batch": "1",
}
OVER = tuple(word for key, values in FEW.items() for word in ("--over", f"{key}={values}"))


def test_counts_come_first_and_the_plan_stands_above_the_best(command_line: CommandLine) -> None:
    """Layouts are told by what they change of the plan."""
    result = command_line("sweep", PLAN, *OVER, "--top", "3")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].startswith("16 combinations, 8 legal, 8 fit with 8.55 GB free; ")
    assert lines[1].split()[:1] == ["changes"]
    assert "(the plan)" in lines[2]
    assert [line.split()[0] for line in lines[3:6]] == ["1", "2", "3"]
    assert "zero 1, micro_batch 1" in lines[3]


def test_json_is_the_contract_and_its_rows_are_plans(command_line: CommandLine) -> None:
    """Each row's changes alone make the plan that has its totals."""
    shown = json.loads(command_line("sweep", PLAN, *OVER, "--json").stdout)
    jsonschema.validate(shown, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert shown["counts"] == {"combinations": 16, "legal": 8, "fitting": 8}
    assert shown["best"] == shown["top"][0]
    assert shown["space"]["recompute"] == ["none", {"every": 2}]
    for row in shown["front"]:
        plan = load_plan(PLAN, assignments(row["changes"]))
        assert plan.parallelism.data == row["changes"]["parallelism.data"]


def test_apply_prints_the_plan_of_a_row(command_line: CommandLine) -> None:
    """Its comments are kept, and it is the plan that the row's changes make."""
    row = json.loads(command_line("sweep", PLAN, *OVER, "--json").stdout)["top"][1]
    text = command_line("sweep", PLAN, *OVER, "--apply", "2").stdout
    assert not changes(load_plan(PLAN, assignments(row["changes"])), load_plan(text))
    assert "# 20 tokens a parameter: Hoffmann et al. 2022, arXiv 2203.15556." in text


def test_where_nothing_meets_what_is_asked_the_nearest_miss_is_told(command_line: CommandLine) -> None:
    """Exit code 1, and by how much each limit is missed."""
    result = command_line("sweep", PLAN, *OVER, "--subject-to", "mfu >= 90 %")
    assert result.exit_code == 1
    assert "no layout meets the conditions" in result.stdout
    assert "mfu >= 90 %: " in result.stdout
    fits = command_line("sweep", PLAN, *OVER, "--headroom", "79 GB", "--json")
    shown = json.loads(fits.stdout)
    assert (fits.exit_code, shown["best"], shown["front"], shown["counts"]["fitting"]) == (1, None, [], 0)
    assert shown["nearest"]["totals"]["memory.reserved"] > 0


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--over", "parallelism.tensr=2"), "did you mean `tensor`"),
        (("--over", "bogus=1"), "`bogus` is no field"),
        (("--over", "run.micro_batch"), "is no `KEY=VALUE,VALUE`"),
        (("--over", "parallelism.tensor=two"), "--over parallelism.tensor=two:1:27"),
        (("--over", "parallelism.expert=2,4"), "no layer of the model has experts"),
        (("--over", "accelerator=h100-sxn"), "did you mean `h100-sxm`"),
        (("--over", "expect=[]"), "cannot vary"),
        (("--over", "parallelism={tensor: 2}"), "name them one by one"),
        (("--over", "recompute.every=2"), "give whole values"),
        (("--over", "run.micro_batch=1", "--over", "run.micro_batch=2"), "given twice"),
        (("--headroom", "prodution"), "did you mean `production`"),
        (("--minimize", "time.stp"), "did you mean `time.step`"),
        (("--minimize", "time.step", "--maximize", "mfu"), "exclude each other"),
        (("--front", "mfu,memory.resrved"), "did you mean `memory.reserved`"),
        (("--subject-to", "time.step < 1 s", "--subject-to", "time.step > 2 s"), "no layout can meet both"),
        (("--out", "x.parqet"), "no extension that says its form"),
        (("--out", "/proc/none/x.csv"), "--out /proc/none/x.csv:1:7: there is no folder `/proc/none`"),
        (("--out", "/proc/x.csv"), "--out /proc/x.csv:1:7: no file can be written in `/proc`"),
        (("--html", "none/x.html"), "--html none/x.html:1:8: there is no folder `none`"),
        (("--html", ""), "`--html` says nothing"),
        (("--headroom", ""), "`--headroom` says nothing"),
        (("--headroom", "110 %"), "leaves nothing of the 85.5 GB"),
        (("--front", "mfu,time.step,mfu"), "--front mfu,time.step,mfu:1:23: `mfu` is named twice"),
        (("--over", "run.microbatch=2"), "--over run.microbatch=2:1:8: `microbatch` is no field"),
        (("--over", "run.seq_len=[1,2"), "--over run.seq_len=[1,2:1:24: not valid YAML"),
        (("--over", "price.per_device_hour=2"), "write `assumptions.price`"),
        (("--over", "parallelism.zero=3,'3'"), "cannot be the text `3`"),
        (("--over", "run.tokens=5 GB"), "did you mean `5B tokens`?"),
        (("--workers", "2", "--scheduler", "tcp://[::1]:1"), "exclude each other"),
        (("--html", "x.pdf"), "a page ends in .html"),
        (("--apply", "1", "--json"), "one of them at a time"),
    ],
)
def test_bad_input_is_refused_before_work_begins(command_line: CommandLine, args: tuple[str, ...], told: str) -> None:
    """Exit code 2, with the place in what was typed; nothing is written."""
    result = command_line("sweep", PLAN, *args)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Usage:" not in result.stderr
    assert not list(Path.cwd().iterdir())


def test_what_is_not_installed_is_named(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to install; CSV needs nothing."""
    from ledger.search import outputs, workers

    monkeypatch.setattr(outputs, "find_spec", lambda _: None)
    monkeypatch.setattr(workers, "find_spec", lambda _: None)
    assert "pip install -e '.[parquet]'" in command_line("sweep", PLAN, *OVER, "--out", "x.parquet").stderr
    assert "pip install -e '.[cluster]'" in command_line("sweep", PLAN, *OVER, "--scheduler", "tcp://[::1]:1").stderr
    assert command_line("sweep", PLAN, *OVER, "--out", "x.csv").exit_code == 0
    assert len(Path("x.csv").read_text(encoding="utf-8").splitlines()) == 9


def test_the_page_needs_no_network_and_does_not_grow(command_line: CommandLine) -> None:
    """It has the front and the plan itself, and nothing outside it."""
    result = command_line("sweep", PLAN, *OVER, "--html", "x.html")
    page = Path("x.html").read_text(encoding="utf-8")
    assert result.exit_code == 0
    assert "the plan itself" in page
    for text in ("time of a step", "memory per device", "1 layout in a cell", 'class="diamond"'):
        assert text in page
    assert 'src="' not in page
    assert "https://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert len(page) < 1_500_000


def test_an_interrupt_prints_what_was_found(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, and a record that is not complete."""
    from ledger.search import tasks

    price = tasks.price_piece

    def interrupted(piece: tasks.SpacePiece, keys: list[str]) -> object:
        if piece.name != "00000":
            raise KeyboardInterrupt
        return price(piece, keys)

    monkeypatch.setattr(tasks, "price_piece", interrupted)
    result = command_line("sweep", PLAN, *OVER, "--json", "--out", "x.csv")
    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["complete"], shown["counts"]["legal"]) == (130, False, 2)
    assert not Path("x.csv").exists()
    monkeypatch.setattr(tasks, "price_piece", price)
    assert command_line("sweep", PLAN, *OVER, "--out", "x.csv").exit_code == 0
    assert [path.name for path in Path.cwd().iterdir()] == ["x.csv"]


def test_a_plan_without_a_price_is_left_out_and_named(command_line: CommandLine) -> None:
    """The others are compared; where none is left, the price is said to be missing."""
    asked = (*OVER, "--minimize", "cost.run", "--over")
    result = command_line("sweep", PLAN, *asked, "accelerator=h100-sxm,gb300", "--json")
    assert {row["changes"]["accelerator"] for row in json.loads(result.stdout)["top"]} == {"h100-sxm"}
    told = command_line("sweep", PLAN, *asked, "accelerator=h100-sxm,gb300").stdout
    assert "note: left out: gb300 (cost.run needs `assumptions.price`)" in told
    assert "no legal layout has accelerator" not in told
    none = command_line("sweep", PLAN, *asked, "accelerator=gb300")
    assert none.exit_code == 2
    assert "--minimize cost.run:1:12: no price of gb300 is on file" in none.stderr


@pytest.mark.parametrize("asked", [("--front", "time.run,cost.run"), ("--subject-to", "cost.run <= 5000 USD")])
def test_an_asked_total_that_wants_a_price_is_no_misspelling(command_line: CommandLine, asked: tuple[str, str]) -> None:
    """Its place is where it was typed, and other totals are not offered."""
    result = command_line("sweep", PLAN, *OVER, "--set", "accelerator=gb300", *asked)
    assert result.exit_code == 2
    assert "no price of gb300 is on file" in result.stderr
    assert asked[0] in result.stderr
    assert "did you mean" not in result.stderr


def test_steps_of_unlike_tokens_are_compared_by_their_rate(command_line: CommandLine) -> None:
    """Fewer tokens a step would always be the shortest step; a named objective stays."""
    over = (*OVER, "--over", "run.seq_len=512,4096", "--json")
    rates = [row["totals"]["tokens_per_second"] for row in json.loads(command_line("sweep", PLAN, *over).stdout)["top"]]
    assert rates == sorted(rates, reverse=True)
    named = json.loads(command_line("sweep", PLAN, *over, "--minimize", "time.step").stdout)["best"]
    assert named["changes"]["run.seq_len"] == 512
    assert named["totals"]["tokens_per_second"] < rates[0]


def test_a_cluster_of_another_device_is_warned_of_once(command_line: CommandLine) -> None:
    """One line a device on standard error, whatever else varies; none for the cluster's own device."""
    devices = ("--over", "accelerator=h100-sxm,b200", "--over", "run.seq_len=2048,4096")
    warned = command_line("sweep", PLAN, *OVER, *devices).stderr.splitlines()
    assert warned == ["warning: the cluster describes nodes of h100-sxm, and the plan runs on b200"]


def test_a_scheduler_that_is_none_is_one_message() -> None:
    """Nothing of the client that never was connected follows it."""
    pytest.importorskip("distributed")
    command = [sys.executable, "-m", "ledger", "sweep", PLAN, *OVER, "--scheduler", "nowhere"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert told.stderr.startswith("--scheduler nowhere:1:13: no scheduler answers")
    assert "ignored" not in told.stderr


def test_a_row_that_is_not_there_is_no_usage(command_line: CommandLine) -> None:
    """It says how many rows there are."""
    result = command_line("sweep", PLAN, *OVER, "--apply", "11")
    assert result.exit_code == 2
    assert "--apply 11:1:9: 8 layouts meet everything" in result.stderr
    assert "Usage:" not in result.stderr


def test_a_miss_smaller_than_the_figures_is_told_alone(command_line: CommandLine) -> None:
    """`265 ms is 45.9 us more than 265 ms` would be one figure too many."""
    time = json.loads(command_line("sweep", PLAN, *OVER, "--json").stdout)["best"]["totals"]["time.step"]
    condition = f"time.step <= {time * (1 - 1e-5) * 1e3!r} ms"
    told = command_line("sweep", PLAN, *OVER, "--subject-to", condition).stdout.splitlines()
    miss = next(line for line in told if line.startswith(f"  {condition}"))
    assert miss.endswith(" µs more")
    assert " is " not in miss


def test_an_interrupt_before_anything_is_priced_says_so(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of what fits."""
    from ledger.search import tasks

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "price_piece", interrupted)
    result = command_line("sweep", PLAN, *OVER)
    assert (result.exit_code, result.output) == (130, "interrupted before any layout was priced\n")


def test_a_table_that_is_too_wide_breaks_its_heads_between_words() -> None:
    """In 80 columns, too; where there is room, they stay whole."""
    heads = ("", "changes", "memory.reserved", "tokens_per_second", "cost.run", "energy.run", "against the plan")
    rows = [("1", "recompute {every: 2}, micro_batch 2", "67.5 GB", "84 684 tokens/s", "$8 856", "1.2 GJ", "+20 %")]
    shown = {
        width: "\n".join(line for lines in aligned([heads, *rows], range(2, 7), width) for line in lines)
        for width in (80, 200)
    }
    assert {"memory.", "reserved", "tokens_per_", "second", "cost.", "against"} <= set(shown[80].split())
    assert max(map(len, shown[80].splitlines())) <= 80
    assert "memory.reserved  tokens_per_second" in shown[200]


def test_lists_and_mappings_stand_as_a_spec_has_them(command_line: CommandLine) -> None:
    """The table of a person has no JSON."""
    told = command_line("sweep", PLAN, *OVER, "--headroom", "none").stdout
    assert "recompute {every: 2}" in told
    assert '"every"' not in told


@pytest.mark.parametrize("value", ["null", "'1'", "2 - 1", "1.0"])
def test_a_degree_of_an_axis_is_read_as_in_a_plan(command_line: CommandLine, value: str) -> None:
    """As text, as an expression, and left out, which means its default; the layouts are those of 1."""
    one, other = (json.loads(command_line("sweep", PLAN, *over(number), "--json").stdout) for number in ("1", value))
    assert (other["counts"], other["best"]) == (one["counts"], one["best"])


def over(tensor: str) -> tuple[str, ...]:
    """The few layouts, with these degrees of tensor parallelism."""
    axes = {**FEW, "parallelism.tensor": tensor, "parallelism.zero": "1"}
    return tuple(word for key, values in axes.items() for word in ("--over", f"{key}={values}"))


def test_more_plans_than_can_be_priced_are_refused(command_line: CommandLine) -> None:
    """Before any work: a key of thousands of values, and keys that make more plans than that."""
    many, some = ",".join(map(str, range(1, 1002))), ",".join(map(str, range(1, 102)))
    told = command_line("sweep", PLAN, "--over", f"run.seq_len={many}", "--over", f"run.micro_batch={many}").stderr
    assert told.count("has 1001 values") == 2
    told = command_line("sweep", PLAN, "--over", f"run.seq_len={some}", "--over", f"run.global_batch={some}").stderr
    assert "run.seq_len, run.global_batch make 10201 plans" in told


@pytest.mark.parametrize("axis", ["run.micro_batch=null", "parallelism.data=null"])
def test_what_every_layout_states_cannot_be_left_out(command_line: CommandLine, axis: str) -> None:
    """The micro-batch, and the data-parallel degree where it is named."""
    result = command_line("sweep", PLAN, "--over", axis)
    assert (result.exit_code, "cannot be left out of a layout" in result.stderr) == (2, True)
