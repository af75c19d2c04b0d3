"""Files of measurements: what is wrong with one is told with its place, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.evidence.microbenchmarks.measured import read_evidence
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
    ],
)
def test_a_faulty_record_is_told_with_its_line(tmp_path: Path, record: str, said: str) -> None:
    """The record in line 8, after a good one."""
    assert _problems(tmp_path, f"{HEAD}{COPY}  - {record}\n") == [f"8: {said}"]


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
    assert len(read_evidence(path).records) == 2


def test_another_version_of_the_schema_is_refused(tmp_path: Path) -> None:
    """A file of a later language may mean other things by the same words."""
    (problem,) = _problems(tmp_path, HEAD.replace("ledger/1", "ledger/2") + COPY)
    assert problem.startswith("1: ")
    assert "ledger/1" in problem


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    """An editor on another system may add both."""
    path = tmp_path / "evidence.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + (HEAD + COPY + MATMUL).replace("\n", "\r\n").encode())
    assert len(read_evidence(path).records) == 2


def test_what_could_not_be_measured_is_kept_apart(tmp_path: Path) -> None:
    """A case that ran out of memory has no value, and no fit sees it."""
    path = tmp_path / "evidence.yaml"
    path.write_text(HEAD + COPY + "  - {what: copy, bytes: 2048, error: out of memory}\n", encoding="utf-8")
    found = read_evidence(path)
    assert [record["bytes"] for record in found.records] == [1048576]
    assert [record["error"] for record in found.failed] == ["out of memory"]
