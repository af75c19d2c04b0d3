"""Tables of published runs: read safely, turned into plans, predicted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ledger.books import compile_plan
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.results import Number
from ledger.cli import main
from ledger.evidence.tables import TableRow, read_table
from ledger.lab.score.facts import FACT_COLUMNS, NEEDED_COLUMNS, Facts, UnreadableError, facts
from ledger.lab.score.plan_cache import PlanCache
from ledger.lab.score.predictions import measured_step, predict_rows, row_plan_text
from ledger.lab.score.row_layout import stages_by_compute
from ledger.lab.score.row_plans import row_plan
from ledger.lab.score.rows import summarise
from ledger.lab.score.spelled import SkippedError
from ledger.model.schedule import roles
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
from tests.lab.published_rows import NANOTRON, NANOTRON_8B, TORCHTITAN, written

LIBRARY = default_library()


def row(folder: Path, **changes: str) -> TableRow:
    """The torchtitan row with these cells, as read from a file."""
    return read_table(written(folder, {**TORCHTITAN, **changes}), NEEDED_COLUMNS)[0]


def typed(folder: Path, **changes: str) -> Facts:
    """The same, typed."""
    return facts(row(folder, **changes))


def score(*arguments: str) -> Result:
    """The verb."""
    return CliRunner().invoke(main, ["score", *arguments])


# --- what contradicts itself ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"measured_step_s": "9000", "measured_tokens_per_s_per_gpu": "5000"}, "`measured_step_s` = 9000, and by"),
        ({"micro_batch": "1", "dp": "8", "grad_accum": "3"}, "grad_accum x micro_batch x replicas = 24"),
    ],
)
def test_columns_that_say_the_same_agree(tmp_path: Path, changes: dict[str, str], told: str) -> None:
    """A step in milliseconds, or a batch that is not that of its parts, is no run to be scored."""
    sizes = {"n_gpus": "8", "tp": "1", "pp": "1", "cp": "1", "dp": "8", "global_batch": "16", "micro_batch": "2"}
    with pytest.raises(SkippedError, match=re.escape(told)):
        row_plan(typed(tmp_path, **{**sizes, "grad_accum": "1", **changes}), LIBRARY)


@pytest.mark.parametrize("number", ["1_7.2", "\uff11\uff17", "\u0661\u0662\u0668", "0x10", "1e", "nan", "+-1", "1 000"])
def test_a_number_is_one_that_programs_print(tmp_path: Path, number: str) -> None:
    """Digits of other scripts, and what Python alone writes, are none."""
    with pytest.raises(UnreadableError, match="is not a number"):
        typed(tmp_path, measured_step_s=number)


def test_a_dtype_has_one_meaning_however_it_is_spelt(tmp_path: Path) -> None:
    """The plan of a row is the same, the way its sequences are gathered too."""
    spelt = [row_plan(typed(tmp_path, tp="8", dp="", dtype=word), LIBRARY) for word in ("bf16", "BF16", "bfloat16")]
    assert spelt[0].plan["parallelism"] == spelt[1].plan["parallelism"] == spelt[2].plan["parallelism"]


def test_a_column_that_is_nearly_one_is_named(tmp_path: Path) -> None:
    """What is measured in it would otherwise be left out without a word."""
    path = written(tmp_path, {**TORCHTITAN, "measured_step_ms": "900"})
    assert "column `measured_step_ms` is not read; did you mean `measured_step_s`?" in score(str(path)).stderr
    assert score(str(path), "--over", "nan").exit_code == 2


def test_columns_that_are_not_read_are_named(tmp_path: Path) -> None:
    """Also those that resemble none; paths of a plan are read."""
    path = written(tmp_path, {**TORCHTITAN, "tensor_parallel": "8", "Remarks": "none", "train.lora": ""})
    assert "warning: columns that are not read: `tensor_parallel`, `Remarks`\n" in score(str(path)).stderr


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (
            {"grad_accum": "7", "micro_batch": "2", "global_batch": "128", "dp": ""},
            "grad_accum x micro_batch x replicas",
        ),
        ({"measured_peak_mem_gib": "80000", "mem_convention": "reserved"}, "and h100-sxm-500w has 95.6 GiB"),
    ],
)
def test_a_row_that_contradicts_itself_is_skipped(tmp_path: Path, cells: dict[str, str], said: str) -> None:
    """A batch is that of its parts, and no peak is larger than its device."""
    found = score(str(written(tmp_path, {**TORCHTITAN, **cells})), "--rows").stdout
    assert "contradicts itself" in found
    assert said in " ".join(found.split())


# --- reading ------------------------------------------------------------------------------------


def test_spreadsheets_write_marks_and_other_line_ends(tmp_path: Path) -> None:
    """A byte order mark, CRLF and empty lines change nothing."""
    plain = read_table(written(tmp_path, TORCHTITAN, NANOTRON), NEEDED_COLUMNS)
    path = written(tmp_path, TORCHTITAN, {"id": ""}, NANOTRON, ending="\r\n", mark="\ufeff")
    windows = read_table(path, NEEDED_COLUMNS)
    assert [r.text("source") for r in windows] == [r.text("source") for r in plain]
    assert windows[1].place().line == 4  # the header, a row, a row of empty cells


def test_quoted_cells_hold_commas_quotes_and_breaks(tmp_path: Path) -> None:
    """A quoted cell is read as RFC 4180 says, a break as a space, and what follows it keeps its place."""
    path = tmp_path / "runs.csv"
    path.write_text('id,notes,hardware\n1,"a, ""b""\nc",H100\n2,,A100\n', encoding="utf-8")
    first, second = read_table(path, ("id",))
    assert first.text("notes") == 'a, "b" c'
    assert (first.place("hardware").line, first.place("hardware").column) == (3, 4)
    assert second.place("id").line == 4


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"", "runs.csv:1:1", "the table is empty"),
        (b"\n\n", "runs.csv:1:1", "the table is empty"),
        (b"id,hardware\n1,H100\n", "runs.csv:1:1", "the table has no column `n_gpus`"),
        (b"id,id\n", "runs.csv:1:4", "two columns are named `id`"),
        (b"id\n1,2\n", "runs.csv:2:3", "2 cells in a row of 1 columns"),
        (b"id,hardware\n1\n", "runs.csv:2:1", "1 cells in a row of 2 columns"),
        (b"id\n1\n2\n1\n", "runs.csv:4:1", "two rows have the id `1`"),
        (b"id;hardware\n1;H100\n", "runs.csv:1:3", "the columns are separated by semicolons"),
        (b"\r\nid\thardware\r\n1\tH100\r\n", "runs.csv:2:3", "the columns are separated by tabs"),
        (b'id\n"1\n', "runs.csv:2:1", "a quote inside a cell, or one that is never closed"),
        (b'id\na"b\n', "runs.csv:2:1", "a quote inside a cell"),
        (b"id\n\xff\n", "runs.csv:2:1", "not UTF-8 text"),
    ],
)
def test_what_is_no_table_is_told_with_its_place(tmp_path: Path, content: bytes, place: str, message: str) -> None:
    """Every fault of a file has a line and a column; all missing columns are told at once."""
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(SpecError) as raised:
        read_table(path, NEEDED_COLUMNS)
    told = [f"{problem.where}: {problem.message}" for problem in raised.value.problems]
    assert any(line.startswith(f"{tmp_path}/{place}: {message}") for line in told), told


def test_a_missing_column_offers_the_one_that_is_meant(tmp_path: Path) -> None:
    """A column under another spelling is a near miss."""
    path = tmp_path / "runs.csv"
    path.write_text("id,hardware,gpus_n,seq_len,layers,hidden,heads,vocab\n", encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        read_table(path, NEEDED_COLUMNS)
    assert [problem.help for problem in raised.value.problems] == ["did you mean `gpus_n`?"]


def test_the_documents_example_is_a_table(tmp_path: Path) -> None:
    """The table in docs/scoring.md is predicted as it stands there, and every column it explains is read."""
    text = (Path(__file__).parents[2] / "docs" / "scoring.md").read_text(encoding="utf-8")
    path = tmp_path / "runs.csv"
    path.write_text(text.partition("```csv\n")[2].partition("```")[0], encoding="utf-8")
    (found,) = predict_rows(read_table(path, NEEDED_COLUMNS), LIBRARY)
    assert not found.skipped
    assert not found.assumed
    columns = text.partition("| column |")[2].splitlines()
    explained = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in columns if line.startswith("| `")]
    assert {name for names in explained for name in names} == set(FACT_COLUMNS)


def test_a_missing_file_leaves_with_two() -> None:
    """No traceback for a path that leads nowhere."""
    result = score("nowhere.csv")
    assert result.exit_code == 2
    assert "there is no such file" in result.output


# --- rows to plans ------------------------------------------------------------------------------


def test_a_row_becomes_a_plan_that_any_verb_reads(tmp_path: Path) -> None:
    """What `--explain` prints is a spec, and says what the row says."""
    result = score(str(written(tmp_path, TORCHTITAN)), "--explain", "tt-1")
    assert result.exit_code == 0
    plan = load_plan(result.stdout)
    assert plan.accelerator.name == "h100-sxm-500w"
    assert (plan.parallelism.data, plan.parallelism.zero) == (8, 3)
    assert plan.model.groups[0].repeat == 32
    assert plan.recompute.keep == ("matmul", "attention", "reduce_scatter")
    assert plan.run.micro_batch == 2


def test_an_unknown_row_has_near_misses(tmp_path: Path) -> None:
    """`--explain` of an id that the table lacks leaves with 2."""
    result = score(str(written(tmp_path, TORCHTITAN)), "--explain", "tt-2")
    assert result.exit_code == 2
    assert "help: did you mean `tt-1`" in result.output


def test_an_id_like_no_other_is_told_one_of_each_source(tmp_path: Path) -> None:
    """A long table is not listed: how the ids of each of its sources look, and what prints all."""
    rows = [{**NANOTRON, "id": f"nt-{number}"} for number in range(30)]
    result = score(str(written(tmp_path, {**TORCHTITAN, "id": "titan"}, *rows)), "--explain", "zzzz")
    assert result.exit_code == 2
    assert "help: ids are such as `titan`, `nt-0`; --rows prints all 31" in result.output


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "dpo"}, "kind `dpo` is not compiled"),
        ({"layers": ""}, "not published: layers"),
        ({"micro_batch": "", "global_batch": ""}, "not published: micro_batch"),
        ({"ffn_hidden": ""}, "not published: ffn_hidden"),
        ({"hardware": "H1000-SXM"}, "did you mean `h100-sxm`"),
        ({"dp": "4"}, "dp x tp x pp x cp = 4, but n_gpus = 8"),
        ({"n_gpus": "9", "tp": "2"}, "9 devices are no multiple"),
        ({"dtype": "int3"}, "`dtype` = `int3` is not known"),
        ({"recompute": "minimal"}, "`recompute` = `minimal` is not known"),
        ({"data_parallel_kind": "zero9"}, "`data_parallel_kind` = `zero9` is not known; did you mean `zero"),
    ],
)
def test_a_row_without_a_plan_says_why(tmp_path: Path, changes: dict[str, str], reason: str) -> None:
    """A row that lacks something, or says something unknown, is skipped with a reason a reader can act on."""
    with pytest.raises(SkippedError, match=reason.replace("(", r"\(")):
        row_plan(typed(tmp_path, **changes), LIBRARY)


def test_rules_of_plans_hold_for_rows(tmp_path: Path) -> None:
    """A layout that cannot exist is skipped with what the rule says, in the first row of a kind and in a later one."""
    odd = {**TORCHTITAN, "id": "odd", "tp": "16", "dp": "1", "n_gpus": "16", "sequence_parallel": "true"}
    rows = read_table(written(tmp_path, odd, TORCHTITAN, {**odd, "id": "as odd"}), NEEDED_COLUMNS)
    found = list(predict_rows(rows, LIBRARY))
    assert found[0].skipped == found[2].skipped
    assert "kv_heads = 8" in str(found[0].skipped)
    assert found[1].skipped == ""


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "nan", "1e400"])
def test_a_cell_that_is_no_count_has_its_place(tmp_path: Path, text: str) -> None:
    """A count that is none is told with its column; the other rows are predicted all the same."""
    path = written(tmp_path, {**TORCHTITAN, "micro_batch": text}, NANOTRON)
    first, second = predict_rows(read_table(path, NEEDED_COLUMNS), LIBRARY)
    column = path.read_text().splitlines()[1].index(f",{text},") + 2
    assert str(first.skipped).startswith(f"{path}:2:{column}: `micro_batch` = `{text}` is not a whole number")
    assert second.skipped == ""


def test_a_grade_is_one_of_three(tmp_path: Path) -> None:
    """A row with another grade would silently not count."""
    (found,) = predict_rows(read_table(written(tmp_path, {**TORCHTITAN, "score_time": "Z"}), NEEDED_COLUMNS), LIBRARY)
    assert "`score_time` = `Z` is none of A, B, C" in str(found.skipped)


def test_a_run_of_ones_own_names_its_software(tmp_path: Path) -> None:
    """The column `stack` says what ran where no publication does; without either nothing is guessed."""
    own = {"source_id": "", "source": "our cluster", "recompute": "selective"}
    stated = row_plan(typed(tmp_path, **own, stack="megatron-te-2024"), LIBRARY)
    assert stated.plan["stack"] == "megatron-te-2024"
    assert stated.plan["precision"] == "bf16-fp32-gradients"
    words = {"stack": "pytorch-fsdp2-2025", "mem_convention": "max_memory_allocated", "optimizer": "lion"}
    named = row_plan(typed(tmp_path, **own, **words), LIBRARY)
    assert (named.software.memory, named.plan["optimizer"]) == ("allocated", "lion")
    with pytest.raises(SkippedError, match="no `stack`, and no publication `our cluster` on file"):
        row_plan(typed(tmp_path, **own), LIBRARY)
    with pytest.raises(SkippedError, match="did you mean `megatron-te-2024`"):
        row_plan(typed(tmp_path, **own, stack="megatron-te-2023"), LIBRARY)


def test_what_a_row_leaves_open_is_said(tmp_path: Path) -> None:
    """Ambiguous hardware and unstated choices are assumptions of the row."""
    open_cells = {
        "hardware": "H100",
        "recompute": "",
        "dtype": "",
        "data_parallel_kind": "",
        "optimizer": "adamw (ours)",
    }
    assumed = row_plan(typed(tmp_path, **open_cells), LIBRARY).assumed
    assert assumed == (
        "data_parallel_kind not stated: ZeRO 0",
        "optimizer: `ours` is read over",
        "hardware `H100` is taken for h100-sxm",
        "dtype not stated: bf16",
        "recompute not stated: none",
    )


def test_what_else_might_have_been_assumed_is_weighed(tmp_path: Path) -> None:
    """Each other value of what a row leaves open, by what it does to the step: that of its own plan is compiled."""
    text = row_plan_text(row(tmp_path, recompute="", data_parallel_kind=""), LIBRARY)
    told = re.findall(r"# `(\S+)=(\S+)` instead of .* changes the step by ([-+][\d.]+)%", text)
    assert {path for path, _, _ in told} >= {"recompute"}
    changes = [abs(float(change)) for _, _, change in told]
    assert changes == sorted(changes, reverse=True)
    steps = {value: compiled_step(load_plan(text, [f"recompute={value}"])) for value in ("none", "full")}
    (full,) = (float(change) for path, value, change in told if (path, value) == ("recompute", "full"))
    assert full == pytest.approx(100 * (steps["full"] / steps["none"] - 1), abs=0.05)


def compiled_step(plan: Plan) -> float:
    """Seconds of a step, by the whole compiler."""
    return float(compile_plan(plan).totals["time.step"])


@pytest.mark.parametrize(
    ("text", "convention", "rank"),
    [
        ("torch max_memory_allocated GiB, max over ranks", "allocated", "worst"),
        ("max_memory_reserved of the PyTorch caching allocator", "reserved", "worst"),
        ("peak GiB by nvidia-smi", "driver", "worst"),
        ("torch peak GiB, rank 0; allocated or reserved not stated", "unstated", "first"),
        ("", "unstated", "worst"),
    ],
)
def test_words_for_memory_have_meanings(tmp_path: Path, text: str, convention: str, rank: str) -> None:
    """A spelling on file, else a word that gives it away: a caching allocator is no word for what is allocated."""
    made = row_plan(typed(tmp_path, source_id="us", stack="pytorch-fsdp2-2025", mem_convention=text), LIBRARY)
    assert (made.software.memory, made.software.rank, made.software.unread) == (convention, rank, "")


def test_an_unknown_word_for_memory_takes_that_figure_alone(tmp_path: Path) -> None:
    """Its time counts all the same; the row says which spelling is nearest."""
    (found,) = predict_rows([row(tmp_path, mem_convention="peak of the profiler, allocated and reserved")], LIBRARY)
    assert found.counts_time
    assert not found.counts_memory
    assert any("`mem_convention` = `peak of the profiler" in line for line in found.assumed)


def test_columns_that_are_paths_are_set(tmp_path: Path) -> None:
    """A dotted header, or one that is a part of a plan; an empty cell sets nothing."""
    paths = {
        "stack.overlap.tensor": "none",
        "kernels.loss": "eager",
        "cluster.devices_per_node": "4",
        "precision": "bf16-mixed",
        "train.lora.rank": "",
    }
    own = {"source_id": "us", "stack": "megatron-te-2024", "recompute": "none"}
    explained = row_plan_text(row(tmp_path, **own, **paths), LIBRARY)
    plan = load_plan(explained)
    assert (plan.stack.overlap.tensor, plan.kernels.loss, plan.cluster.devices_per_node) == ("none", "eager", 4)
    assert plan.precision.name == "bf16-mixed"


def test_a_model_of_the_library_stands_for_its_columns(tmp_path: Path) -> None:
    """Latent attention and dense first layers have no columns; layers of a group can be cut to those that ran."""
    none = dict.fromkeys(("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab"), "")
    own = {"source_id": "us", "stack": "megatron-te-2024", "recompute": "none", "data_parallel_kind": "zero1"}
    cut = {"model": "deepseek-v2", "model.layers.0.repeat": "1", "model.layers.1.repeat": "3"}
    plan = load_plan(row_plan_text(row(tmp_path, **own, **none, **cut), LIBRARY))
    assert [group.repeat for group in plan.model.groups] == [1, 3]
    assert plan.model.groups[0].attention.kind == "latent"


def test_a_row_may_start_from_a_plan(tmp_path: Path) -> None:
    """What the row says is set on top of the plan of that name."""
    own = dict.fromkeys(TORCHTITAN, "") | {"id": "ours", "kind": "pretrain", "plan": "7b-8xh100", "micro_batch": "2"}
    plan = load_plan(row_plan_text(row(tmp_path, **own), LIBRARY))
    assert (plan.model.name, plan.run.micro_batch) == (load_plan("7b-8xh100").model.name, 2)


@pytest.mark.parametrize(("published", "skipped"), [("8030261248", False), ("7e9", True)])
def test_a_published_count_of_parameters_is_that_of_the_model(tmp_path: Path, published: str, skipped: bool) -> None:
    """A row whose columns give another model than ran is told with both counts."""
    (found,) = predict_rows([row(tmp_path, n_params=published)], LIBRARY)
    assert bool(found.skipped) is skipped
    assert (
        not skipped or "7,000,000,000 parameters (`n_params`), the model of its columns 8,030,261,248" in found.skipped
    )


@pytest.mark.parametrize(
    ("cells", "kind", "activation", "norm"),
    [
        ({"gated_mlp": "false"}, "plain", "gelu_tanh", "layer"),
        ({"gated_mlp": "false", "family": "nemotron"}, "plain", "relu2", "layer"),
        ({"gated_mlp": "false", "activation": "relu", "norm": "rms"}, "plain", "relu", "rms"),
        ({"gated_mlp": "true"}, "gated", "silu", "rms"),
    ],
)
def test_columns_of_the_architecture_bind(
    tmp_path: Path, cells: dict[str, str], kind: str, activation: str, norm: str
) -> None:
    """The row's own columns before its family, that before what its stack does where a model has no gate."""
    own = {"source_id": "us", "stack": "megatron-te-2024", "recompute": "none"}
    model = load_plan(row_plan_text(row(tmp_path, **own, **cells), LIBRARY)).model
    mlp = model.groups[0].mlp
    assert (mlp.kind, mlp.activation, model.norm.kind) == (kind, activation, norm)


def test_a_vocabulary_is_padded_as_frameworks_pad_it(tmp_path: Path) -> None:
    """50257 rows over two devices become the next multiple of 256 (Megatron-LM's 128 x tensor)."""
    made = row_plan(typed(tmp_path, vocab="50257", tp="2", dp="4"), LIBRARY)
    assert made.plan["model"]["vocab"] == 50432
    assert "vocabulary padded from 50257 to 50432" in made.assumed


def test_the_first_stages_of_nanotron_hold_what_its_logs_say(tmp_path: Path) -> None:
    """Of 2, 4 and 8 stages of the 1B model the first has 940M, 604M and 470M parameters (`Local Params` of its log).

    An embedding is 268 435 456 of them, a layer 67 112 960.
    """
    one = facts(read_table(written(tmp_path, NANOTRON), NEEDED_COLUMNS)[0])
    for stages, published in ((2, 940e6), (4, 604e6), (8, 470e6)):
        layers = list(stages_by_compute(one, stages))
        assert sum(layers) == 16
        assert 268_435_456 + layers[0] * 67_112_960 == pytest.approx(published, rel=2e-3)


# --- measurements -------------------------------------------------------------------------------


def test_a_step_is_measured_before_it_is_derived(tmp_path: Path) -> None:
    """Seconds as published, else 16 x 8192 tokens over 8 x 5762 tokens a second, else as derived."""
    assert measured_step(typed(tmp_path, measured_step_s="3", derived_step_s="9")) == 3
    assert measured_step(typed(tmp_path, derived_step_s="9")) == pytest.approx(16 * 8192 / (8 * 5762))
    assert measured_step(typed(tmp_path, measured_tokens_per_s_per_gpu="", derived_step_s="9")) == 9


def test_a_summary_is_the_median_of_sizes_and_the_mean_of_signs() -> None:
    """Of +10 %, -20 % and +60 %: median 20 %, mean absolute 30 %, mean signed 16.7 %, worst +60 %."""
    found = summarise([0.1, -0.2, 0.6])
    assert found.median == 0.2
    assert found.absolute == pytest.approx(0.3)
    assert found.signed == pytest.approx(0.5 / 3)
    assert found.worst == 0.6
    assert (summarise([]).rows, summarise([]).absolute) == (0, None)


# --- predictions --------------------------------------------------------------------------------

# The table of torchtitan's benchmark of December 2024 (reserved GiB of 8 and 128 H100), of torchao's training.md of
# April 2025 and August 2025, and of The Ultra-Scale Playbook (reserved GiB of the first rank).
RESERVED = [
    (TORCHTITAN, {}, 82.4),
    (TORCHTITAN, {"n_gpus": "128", "dp": "128", "global_batch": "256"}, 67.0),
    (TORCHTITAN, {"torch_compile": "true"}, 77.0),
    (TORCHTITAN, {"torch_compile": "true", "n_gpus": "128", "dp": "128", "global_batch": "256"}, 62.0),
    (TORCHTITAN, {"torch_compile": "true", "dtype": "fp8"}, 76.8),
    (NANOTRON, {}, 36.7),
    (NANOTRON, {"data_parallel_kind": "zero1", "n_gpus": "16", "dp": "16"}, 24.0),
    (NANOTRON, {"dp": "4", "pp": "2"}, 26.8),
    (NANOTRON_8B, {"dp": "4", "tp": "4", "n_gpus": "16"}, 51.5),
    (NANOTRON_8B, {"dp": "16", "tp": "8", "n_gpus": "128", "micro_batch": "4"}, 44.3),
    (NANOTRON_8B, {"dp": "8", "pp": "16", "n_gpus": "128"}, 62.6),
]


@pytest.mark.parametrize(("base", "changes", "published"), RESERVED)
def test_reserved_memory_follows_from_the_allocator(
    tmp_path: Path, base: dict[str, str], changes: dict[str, str], published: float
) -> None:
    """Reserved bytes of published runs, from the program and the allocator's rules alone, within 12 %."""
    changed = {**base, **changes, "measured_peak_mem_gib": str(published)}
    (found,) = predict_rows(read_table(written(tmp_path, changed), NEEDED_COLUMNS), LIBRARY)
    assert not found.skipped
    assert found.memory_error == pytest.approx(0, abs=0.12)


def test_books_are_shared_without_a_trace(tmp_path: Path) -> None:
    """A row is predicted the same alone and after another of its kind."""
    wide = {**NANOTRON, "id": "nt-2", "n_gpus": "32", "dp": "32", "micro_batch": "2"}
    (alone,) = predict_rows(read_table(written(tmp_path, wide), NEEDED_COLUMNS), LIBRARY)
    _, after = predict_rows(read_table(written(tmp_path, NANOTRON, wide), NEEDED_COLUMNS), LIBRARY)
    assert after == alone


def test_shared_books_send_what_a_plan_of_its_own_sends(tmp_path: Path) -> None:
    """Gradients that are cut over twice the devices fill half the buckets."""
    cut = {**NANOTRON, "n_gpus": "32", "dp": "16", "tp": "2"}
    cache = PlanCache(LIBRARY)
    for row in read_table(written(tmp_path, cut, {**cut, "id": "nt-2", "dp": "8", "tp": "4"}), NEEDED_COLUMNS):
        plan, kind = cache.plan(row_plan(facts(row), LIBRARY))
        shared, _ = cache.books_of(plan, kind)
        own = compile_roles(plan, roles(plan))
        assert [sent(book) for book in shared] == [sent(book) for book in own]


def sent(book: CompiledRole) -> list[tuple[str, Number]]:
    """How often each transfer of a step runs."""
    return [(entry.account, book.value(entry.times)) for entry in book.ledger.select("comm")]


# --- the verb -----------------------------------------------------------------------------------


def test_json_is_the_contract(tmp_path: Path) -> None:
    """Rows, sources and overall figures, each source weighing the same; a skipped row has its reason."""
    path = written(tmp_path, TORCHTITAN, NANOTRON, {**NANOTRON, "id": "nt-2"}, {**TORCHTITAN, "id": "x", "kind": "dpo"})
    found = json.loads(score(str(path), "--json").stdout)
    assert found["schema"] == "ledger-score/2"
    rows = {one["id"]: one for one in found["rows"]}
    assert rows["tt-1"]["mem_error"] == pytest.approx(rows["tt-1"]["predicted_peak_mem_gib"] / 82.4 - 1)
    assert rows["x"]["skipped"].startswith("kind `dpo`")
    assert rows["x"]["predicted_step_s"] is None
    both = [abs(rows["tt-1"]["mem_error"]), abs(rows["nt-1"]["mem_error"])]
    assert found["overall"]["mem_mape"] == pytest.approx(sum(both) / 2)
    assert found["overall"]["mem_rows"] == 3
    assert found["overall"]["skipped"] == 1
    assert found["sources"]["nanotron"]["mem"]["rows"] == 2


def test_grades_below_the_first_are_shown_and_not_counted(tmp_path: Path) -> None:
    """A row graded C has its error, and no part in a summary."""
    path = written(tmp_path, {**TORCHTITAN, "score_mem": "C", "score_time": "B"})
    found = json.loads(score(str(path), "--json").stdout)
    assert found["rows"][0]["mem_error"] is not None
    assert found["overall"]["mem_rows"] == found["overall"]["time_rows"] == 0
    assert found["overall"]["mem_mape"] is None


def test_a_table_without_grades_counts_every_row(tmp_path: Path) -> None:
    """No column of grades: every measurement counts. An empty grade among others: that row does not."""
    ungraded = {name: text for name, text in TORCHTITAN.items() if not name.startswith("score_")}
    assert json.loads(score(str(written(tmp_path, ungraded)), "--json").stdout)["overall"]["mem_rows"] == 1
    some = written(tmp_path, TORCHTITAN, {**TORCHTITAN, "id": "tt-2", "score_mem": "", "score_time": ""})
    found = json.loads(score(str(some), "--json").stdout)["overall"]
    assert (found["mem_rows"], found["time_rows"]) == (1, 1)


def test_the_table_has_a_line_for_each_source(tmp_path: Path) -> None:
    """Plain text has sources, a sentence for time and one for memory, and rows where they are asked for."""
    path = str(written(tmp_path, TORCHTITAN, NANOTRON))
    plain, detailed = score(path), score(path, "--rows")
    assert [line.split()[0] for line in plain.stdout.splitlines()[:3]] == ["source", "torchtitan-202412", "nanotron"]
    assert plain.stdout.splitlines()[-1] == "0 of 2 rows skipped"
    assert plain.stderr == ""
    assert any(line.startswith("tt-1 ") for line in detailed.stdout.splitlines())


def test_large_errors_come_with_what_the_row_leaves_open(tmp_path: Path) -> None:
    """A run with tensor parallelism that does not say how: each other way has its error beside it."""
    half = {**TORCHTITAN, "tp": "8", "dp": "1", "sequence_parallel": "", "measured_peak_mem_gib": "1"}
    result = score(str(written(tmp_path, half)), "--over", "15")
    line = next(line for line in result.stdout.splitlines() if line.startswith("tt-1 "))
    assert "sequence parallelism not stated: on" in line
    assert "with sequence: regather +" in line


def test_what_a_publication_says_elsewhere_is_not_assumed(tmp_path: Path) -> None:
    """nanotron's benchmark ran REDUCE_SCATTER without keeping what it gathers (its own results name the mode)."""
    cut = {**NANOTRON, "tp": "8", "dp": "1", "sequence_parallel": ""}
    made = row_plan(facts(read_table(written(tmp_path, cut), NEEDED_COLUMNS)[0]), LIBRARY)
    assert made.plan["parallelism"]["sequence"] == "regather"
    assert not any("sequence parallelism" in line for line in made.assumed)


def test_settings_change_every_row(tmp_path: Path) -> None:
    """--set acts on the plan of each row: two steps of one micro-batch hold less than one of two."""
    path = str(written(tmp_path, TORCHTITAN))
    plain = json.loads(score(path, "--json").stdout)["rows"][0]
    halved = json.loads(score(path, "--json", "--set", "run.micro_batch=1").stdout)["rows"][0]
    assert halved["predicted_peak_mem_gib"] < plain["predicted_peak_mem_gib"]


@pytest.mark.parametrize(
    ("change", "said"), [("foo=1", "`foo` is no field"), ("stack=nope", "no stack is named `nope`")]
)
def test_a_change_that_no_row_survives_is_a_problem(tmp_path: Path, change: str, said: str) -> None:
    """A typo behind --set is told as for a plan, not as a reason to skip every row."""
    result = score(str(written(tmp_path, TORCHTITAN, NANOTRON)), "--set", change)
    assert result.exit_code == 2
    assert said in result.output


def test_a_table_without_rows_is_a_problem(tmp_path: Path) -> None:
    """A header alone says nothing, which is worth a word."""
    path = written(tmp_path, TORCHTITAN)
    path.write_text(path.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    result = score(str(path))
    assert result.exit_code == 2
    assert "a header and no rows" in result.output


def test_a_page_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    """Minutes of predictions are not lost to a folder that takes no files."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = score(str(written(tmp_path, TORCHTITAN)), "--out", str(tmp_path / "file" / "inside"))
    assert result.exit_code == 2
    assert result.stdout == ""


def test_rows_with_large_errors_come_worst_first(tmp_path: Path) -> None:
    """What is off most is what a reader wants first."""
    worse = {**TORCHTITAN, "id": "worse", "measured_peak_mem_gib": "20"}
    result = score(str(written(tmp_path, TORCHTITAN, worse)), "--over", "0.1")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["worse", "tt-1"]


# --- fine-tuning --------------------------------------------------------------------------------

TUNED = {"source_id": "us", "stack": "fsdp-qlora-2024", "recompute": "full", "torch_compile": "", "dtype": "bf16"}


def test_rows_of_qlora_store_matrices_in_four_bits(tmp_path: Path) -> None:
    """The kind says that weights are nf4, the stack what that is for it and which adapters it has."""
    plan = load_plan(row_plan_text(row(tmp_path, **TUNED, kind="qlora"), LIBRARY))
    assert plan.precision.name == "qlora-bf16"
    assert plan.precision.weights.base == "nf4_double"
    assert plan.train.lora is not None
    assert (plan.train.lora.rank, plan.train.lora.dropout) == (64, 0.1)
    assert plan.train.lora.targets == ("q", "k", "v", "gate", "up", "down")
    wide = load_plan(row_plan_text(row(tmp_path, **TUNED, kind="lora"), LIBRARY))
    assert (wide.precision.name, wide.train) == ("bf16-true", plan.train)


def test_a_row_may_say_its_formats_itself(tmp_path: Path) -> None:
    """Its own column wins over its stack; a part of the formats is a path like any other."""
    own = {"precision": "qlora-peft", "precision.weights.norms": "bf16", "train.lora.rank": "8"}
    made = row_plan(typed(tmp_path, **TUNED, kind="qlora", **own), LIBRARY)
    plan = load_plan(made.text, made.settings)
    assert plan.train.lora is not None
    assert (plan.precision.weights.base, plan.precision.weights.norms, plan.train.lora.rank) == ("nf4", "bf16", 8)


def test_a_stack_without_four_bits_has_no_rows_of_qlora(tmp_path: Path) -> None:
    """Nothing is guessed: a stack that says no format for nf4 skips the row, and says which it has."""
    with pytest.raises(SkippedError, match="dtype `bf16` of `megatron-te-2024` is not compiled"):
        row_plan(typed(tmp_path, **{**TUNED, "stack": "megatron-te-2024"}, kind="qlora"), LIBRARY)


def test_a_published_count_is_of_the_model_without_adapters(tmp_path: Path) -> None:
    """Rank 64 on six matrices of every layer adds 2 %, which is no other model."""
    (found,) = predict_rows([row(tmp_path, **TUNED, kind="qlora", n_params="8030261248")], LIBRARY)
    assert not found.skipped


def test_weights_on_the_host_are_no_size_of_a_layout(tmp_path: Path) -> None:
    """Rows that differ in nothing but offloading are two plans, and the device of one holds less."""
    changes = {**TUNED, "kind": "qlora", "data_parallel_kind": "zero3", "measured_peak_mem_gib": "20"}
    rows = [row(tmp_path, **changes), row(tmp_path, **changes, **{"parallelism.offload": "[weights]"})]
    here, there = predict_rows(rows, LIBRARY)
    assert here.memory is not None
    assert there.memory is not None
    assert there.memory < here.memory
