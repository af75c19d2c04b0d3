"""Evidence files: records of every kind are read once, and what is wrong with any is told with its place, at once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ledger.evidence.documents import read_evidence
from ledger.spec.library import default_library
from ledger.spec.problems import SpecError

HEAD = """spec: ledger/1
evidence: a device
device: h100-sxm
source: a test of the reader
origin: {method: none}
records:
"""
MATMUL = "  - {what: matmul.bf16, m: 512, n: 512, k: 512, value: 100, unit: TFLOP/s}\n"
COPY = "  - {what: copy, bytes: 1048576, value: 1.5, unit: us}\n"


def _problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "evidence.yaml"
    path.write_bytes(text.encode())
    with pytest.raises(SpecError) as caught:
        read_evidence(path)
    return [f"{problem.where.line}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize("name", default_library().names("evidence"))
def test_the_evidence_of_the_library_is_sound(name: str) -> None:
    """Every file that is carried says of each measurement what a fit needs."""
    found = read_evidence(default_library().folder("evidence") / f"{name}.yaml")
    assert found.title
    assert found.source


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("{what: copy, bytes: 1024, value: -3, unit: us}", "copy: `value` is -3"),
        ("{what: copy, bytes: 0, value: 3, unit: us}", "copy: `bytes` is 0"),
        ("{what: copy, bytes: 1024, unit: us}", "copy has no `value`"),
        ("{what: copy, value: 3, unit: us}", "copy has no `bytes`"),
        ("{what: copy, bytes: 1024, value: 3}", "copy has no unit"),
        ("{what: copy, bytes: 1024, value: 3, unit: furlongs}", "copy: the unit `furlongs` is unknown"),
        ("{what: copy, bytes: 1 KiB, value: 3, unit: us}", "copy: `bytes` is no number: '1 KiB'"),
        ("{what: copy, bytes: 1024, value: true, unit: us}", "copy: `value` is no number: True"),
        ("{what: matmul.bf16, m: 512, n: 512, value: 3, unit: us}", "matmul.bf16 has no `k`"),
        ("{what: all_reduce, bytes: 512, value: 3, unit: us}", "all_reduce has no `ranks`"),
        ("{bytes: 512, value: 3, unit: us}", "a record says no kernel class"),
        ("{what: norm.forwards, bytes: 512, value: 3, unit: us}", "no kernel class is named `norm.forwards`"),
        (
            "{what: grouped.bf16, tokens: 64, TOP_K: 2, experts: 8, width: 4, d_ff: 8, value: 3, unit: us}",
            "grouped.bf16 has no `top_k`",
        ),
        (
            "{what: matmul.bf16, m: 8, n: 8, k: 8, result: bf61, value: 3, unit: us}",
            "matmul.bf16: no number format is named `bf61`",
        ),
        (
            "{what: matmul.bf16, m: 8, n: 8, k: 8, batch: two, value: 3, unit: us}",
            "matmul.bf16: `batch` of a record must be a number, not 'two'",
        ),
        (
            "{what: attention.flash, batch: 2, heads: 2, seq: 8, head_dim: 8, value: 3, unit: us}",
            "attention.flash: no `causal` says whether a mask leaves out half",
        ),
        (
            "{what: all_reduce, ranks: 8, bytes: 512, value: 3, unit: TFLOP/s}",
            "all_reduce: its form counts no flops, so it has no rate in TFLOP/s",
        ),
    ],
)
def test_a_faulty_record_is_told_with_its_line(tmp_path: Path, record: str, said: str) -> None:
    """The record in line 8, after a good one."""
    assert _problems(tmp_path, f"{HEAD}{COPY}  - {record}\n") == [f"8: {said}"]


TABLES = """spec: ledger/1
evidence: a device
device: h100-sxm
source: a test of the reader
origin: {method: none}
series:
  - what: matmul.bf61
    unit: us
    columns: [m, n, k, value]
    rows: |
      512 512 512 100
      512 512 1024 100
  - what: attention.flash
    unit: us
    causal: true
    head_dim: {a: 1}
    columns: [batch, seq, value]
    rows: |
      1 512 100
      2 512 100
"""


def test_what_all_rows_of_a_table_lack_is_told_once(tmp_path: Path) -> None:
    """At what they share, or at the names of their columns: a hundred rows are no hundred problems."""
    assert _problems(tmp_path, TABLES) == [
        "7: no kernel class is named `matmul.bf61`",
        "16: attention.flash: `head_dim` is no number: {'a': 1}",
        "17: attention.flash has no `heads`",
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("512 512 1024.5 100", "matmul.bf16: `k` is 1024.5"),
        ("512 512 0 100", "matmul.bf16: `k` is 0"),
        ("512 512 2000000000 100", "matmul.bf16: `k` is 2e+09, beyond reason"),
        ("512 512 1024 1e-9", "matmul.bf16: `value` is 1e-09 us, beyond reason"),
    ],
)
def test_a_faulty_row_among_sound_ones_is_told_with_its_line(tmp_path: Path, row: str, said: str) -> None:
    """A table is held to the schema by its bounds, and each of its rows where these are not sound."""
    table = TABLES.partition("  - what: attention")[0].replace("bf61", "bf16")
    assert _problems(tmp_path, f"{table}      {row}\n      512 1024 512 100\n") == [f"13: {said}"]


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    """Not one at each reading."""
    faulty = "  - {what: copy, bytes: 1024, value: -3, unit: us}\n  - {what: copy, value: 3, unit: us}\n"
    assert len(_problems(tmp_path, HEAD + faulty)) == 2


def test_a_record_that_stands_there_twice_is_refused(tmp_path: Path) -> None:
    """Copied by mistake it would weigh double; the same case measured again has another value and stays."""
    assert _problems(tmp_path, HEAD + MATMUL + COPY + MATMUL) == [
        "9: matmul.bf16 (k 512, m 512, n 512) stands here twice"
    ]
    path = tmp_path / "again.yaml"
    path.write_text(HEAD + MATMUL + MATMUL.replace("100", "101"), encoding="utf-8")
    assert len(read_evidence(path).microbenchmarks) == 2


def test_another_version_of_the_schema_is_refused(tmp_path: Path) -> None:
    """A file of a later language may mean other things by the same words."""
    (problem,) = _problems(tmp_path, HEAD.replace("ledger/1", "ledger/2") + COPY)
    assert problem.startswith("1: ")
    assert "ledger/1" in problem


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    """An editor on another system may add both."""
    path = tmp_path / "evidence.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + (HEAD + COPY + MATMUL).replace("\n", "\r\n").encode())
    assert len(read_evidence(path).microbenchmarks) == 2


def test_what_could_not_be_measured_is_kept_apart(tmp_path: Path) -> None:
    """A case that ran out of memory has no value, and no fit sees it."""
    path = tmp_path / "evidence.yaml"
    path.write_text(HEAD + COPY + "  - {what: copy, bytes: 2048, error: out of memory}\n", encoding="utf-8")
    found = read_evidence(path)
    assert [record["bytes"] for record in found.microbenchmarks] == [1048576]
    assert [record["error"] for record in found.failed] == ["out of memory"]


# --- records of every kind ----------------------------------------------------------------------

ALL_KINDS = (
    COPY
    + "  - {what: step, id: on, set: {run.micro_batch: 2, recompute: {every: 2}}, measured: {time.step: 2 s}}\n"
    + "  - {what: step, id: large, error: out of memory}\n"
    + "  - {what: fit, id: 010, measured: {fits: false}}\n"
    + "  - {what: derivation, account: parameters, predicted: 3, found: 4, causes: {a tied weight: 1}}\n"
    + "  - {what: derivation, account: saved.total, reason: not asked}\n"
)


def test_one_file_may_hold_records_of_every_kind(tmp_path: Path) -> None:
    """Each kind is found where it belongs, by the rules of YAML 1.2: `on` is a word, a date is one, 010 is ten."""
    path = tmp_path / "evidence.yaml"
    path.write_text(HEAD.replace("records:", "plan: 8b\nrecords:").replace("none}", "2026-01-02}") + ALL_KINDS)
    found = read_evidence(path)
    assert found.origin["method"] == "2026-01-02"
    assert len(found.microbenchmarks) == 1
    (run,) = found.runs
    assert (run.id, run.measured, run.settings) == (
        "on",
        {"time.step": 2.0},
        ("run.micro_batch=2", 'recompute={"every": 2}'),
    )
    assert [(fit.id, fit.ran, dict(fit.measured)) for fit in found.fits] == [("10", False, {})]
    assert [(one.account, one.status, one.skipped) for one in found.verdicts] == [
        ("parameters", "explained", ""),
        ("saved.total", "not checked", "not asked"),
    ]


def test_faults_of_every_kind_are_told_at_once(tmp_path: Path) -> None:
    """A microbenchmark, a row of a table, a run, a fit and a verdict, each with its line."""
    table = "series:\n  - what: copy\n    unit: us\n    columns: [bytes, value]\n    rows: |\n      1024 x\n"
    faulty = (
        "  - {what: copy, bytes: 1024, unit: us}\n"
        "  - {what: step, id: a}\n"
        "  - {what: fit, id: b, measured: {fits: perhaps}}\n"
        "  - {what: derivation, account: c, predicted: 1.5, tolerance: loose, causes: {d: much}}\n"
    )
    assert _problems(tmp_path, HEAD + faulty + table) == [
        "7: copy has no `value`",
        "8: `record` lacks `measured`",
        "8: a whole run needs a `plan`",
        "9: `record.measured.fits` must be true or false, not `perhaps`",
        "10: `record` lacks `found`",
        "10: `record.predicted` must be a whole number, not `1.5`",
        "10: `record.tolerance` cannot be `loose`",
        "10: `record.causes.d` must be a whole number, not `much`",
        "16: `x` is no number",
    ]


def test_nothing_is_read_by_the_rules_of_yaml_1_1() -> None:
    """PyYAML's own loaders read `on` as true and 010 as 8; what is read goes through the reader of specs."""
    package = Path(__file__).parents[2] / "ledger"
    loaders = {"load", "safe_load", "full_load", "load_all", "safe_load_all", "unsafe_load"}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml":
                assert node.attr not in loaders, f"{path}:{node.lineno}"
