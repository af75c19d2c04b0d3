"""A measurement that was made is on disk, once, whatever ends the process that made it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from ledger.evidence.documents import read_evidence
from ledger.evidence.microbenchmarks.records import identity
from ledger.evidence.verification import head_text, record_line
from ledger.lab.bench.cases import BenchCase, BenchResult, DeviceLimits, read_answer
from ledger.lab.bench.records import append_record, open_evidence
from ledger.lab.bench.table import suite
from ledger.spec.problems import SpecError

FIELDS = {
    "spec": "ledger/1",
    "evidence": "a device",
    "device": "a-device",
    "source": "a test",
    "origin": {"torch": "2.13.0"},
    "hardware": {"kind": "cpu"},
    "plan": {"plan": "steps"},
}
CASES = [BenchCase("stream", "copy", {"operation": "clone", "bytes": size, "dtype": "fp32"}) for size in (1, 2, 3)]
FOUND = {"value": 1.5, "unit": "us", "low": 1.4, "high": 1.6, "count": 5}
KILLED = 5  # records after which the process is killed
ONLY = ("launch", "attention")
BENCH = ("bench", "--device", "cpu", "--threads", "1", "--quick")
REAL = (sys.executable, "-m", "ledger", *BENCH)
# The same with a worker that measures nothing, and gives an answer every 20 ms.
MEASURED = [asdict(case) for case in suite(DeviceLimits("cpu", 2**32, 0, 2, ("fp32",), quick=True), ONLY)]
WORKER = f"""
import json, sys, time
sys.stdin.readline()
limits = dict(type="cpu", memory=2**32, cache=0, devices=2, dtypes=["fp32"], quick=True)
hardware = dict(kind="cpu", memory="4096 MiB")
known = dict(name="a-cpu", title="A CPU", place="cpu", origin=dict(torch="2"), hardware=hardware)
print(json.dumps(dict(device=dict(known, limits=limits), cases={MEASURED!r})), flush=True)
for index in range(len(json.loads(sys.stdin.readline()))):
    time.sleep(0.02)
    found = dict(unit="us", value=5.0, low=4.0, high=6.0, count=9, others=0.4)
    print(json.dumps(dict(done=index, result=found)), flush=True)
print(json.dumps(dict(finished=True)), flush=True)
"""
STARTED = f"""
import sys
from ledger.cli import main
from ledger.lab.bench import runner
runner.COMMAND = (sys.executable, "-c", {WORKER!r})
main()
"""
PRETENDED = (sys.executable, "-c", STARTED, *BENCH)
TINY = (*(word for kind in ONLY for word in ("--only", kind)), "--seconds", "0.01")


def _written(path: Path, count: int = 3) -> bytes:
    """A file with so many records."""
    file = open_evidence(path, FIELDS)
    for case in CASES[:count]:
        append_record(file, BenchResult(case, FOUND))
    return path.read_bytes()


def _identities(path: Path) -> Counter[str]:
    return Counter(identity(record) for record in yaml.safe_load(path.read_text(encoding="utf-8"))["records"])


def test_each_record_is_in_the_file_when_it_is_made(tmp_path: Path) -> None:
    """Nothing waits in a buffer, and what is read is what was written."""
    path = tmp_path / "device.yaml"
    file = open_evidence(path, FIELDS)
    append_record(file, BenchResult(CASES[0], FOUND))
    assert path.read_text(encoding="utf-8") == head_text(FIELDS) + record_line({**CASES[0].record, **FOUND})
    assert open_evidence(path, FIELDS).records == ({**CASES[0].record, **FOUND},)


@pytest.mark.parametrize("left", range(1, 40, 7))
def test_a_torn_last_line_is_cut_off(tmp_path: Path, left: int) -> None:
    """However much of the last line was written, the records before it stay and it is none."""
    path = tmp_path / "device.yaml"
    whole = _written(path, 2)
    more = record_line({**CASES[2].record, **FOUND}).encode()
    path.write_bytes(whole + more[:left])
    assert len(open_evidence(path, FIELDS).records) == 2
    assert path.read_bytes() == whole


def test_a_line_of_zeros_is_cut_off(tmp_path: Path) -> None:
    """A machine that loses power may leave a block of zeros where a record was to stand, with a line end after it."""
    path = tmp_path / "device.yaml"
    whole = _written(path, 2)
    path.write_bytes(whole + b"\0" * 100 + b"\n")
    assert len(open_evidence(path, FIELDS).records) == 2
    assert path.read_bytes() == whole


def test_a_file_of_another_device_is_not_added_to(tmp_path: Path) -> None:
    """Records of two devices, or of two versions of PyTorch, in one file would be fitted as one."""
    path = tmp_path / "device.yaml"
    before = _written(path)
    with pytest.raises(SpecError, match="device was a-device, is another"):
        open_evidence(path, {**FIELDS, "device": "another"})
    with pytest.raises(SpecError, match=r"torch was 2\.13\.0, is 2\.14\.0"):
        open_evidence(path, {**FIELDS, "origin": {"torch": "2.14.0"}})
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["spec: ledger/1\nplan: x\n", "[1, 2", "evidence: x\nrecords: []\n"])
def test_a_file_of_something_else_is_let_be(tmp_path: Path, text: str) -> None:
    """What --out names by mistake is neither overwritten nor added to."""
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError):
        open_evidence(path, FIELDS)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_of_other_hands_keeps_its_last_line(tmp_path: Path, end: str) -> None:
    """Its records take several lines each: the last of them is no torn one, and what is refused is not changed."""
    path = tmp_path / "published.yaml"
    text = "evidence: Another\ndevice: b\nrecords:\n  - what: matmul\n    time: 1 ms\n    note: not ours" + end
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match="something else"):
        open_evidence(path, FIELDS)
    assert path.read_text(encoding="utf-8") == text


def test_an_empty_file_is_begun(tmp_path: Path) -> None:
    """As `mktemp` makes one."""
    path = tmp_path / "device.yaml"
    path.touch()
    open_evidence(path, FIELDS)
    assert path.read_text(encoding="utf-8") == head_text(FIELDS)


def test_a_record_twice_is_refused(tmp_path: Path) -> None:
    """Two copies of one case would weigh double in every fit."""
    path = tmp_path / "device.yaml"
    path.write_bytes(_written(path) + record_line({**CASES[0].record, **FOUND}).encode())
    with pytest.raises(SpecError, match="has records twice"):
        open_evidence(path, FIELDS)


def test_what_failed_is_kept_and_tried_again_on_demand(tmp_path: Path) -> None:
    """A case that ran out of memory is not tried at every resumption; `retry` forgets it."""
    path = tmp_path / "device.yaml"
    file = open_evidence(path, FIELDS)
    append_record(file, BenchResult(CASES[0], FOUND))
    append_record(file, BenchResult(CASES[1], {"error": "out of memory"}))
    assert len(open_evidence(path, FIELDS).identities) == 2
    again = open_evidence(path, FIELDS, retry=True)
    assert again.identities == {identity(CASES[0].record)}
    assert len(open_evidence(path, FIELDS).records) == 1


@pytest.mark.parametrize("command", [PRETENDED, pytest.param(REAL, marks=pytest.mark.long)], ids=["pretended", "real"])
def test_a_killed_bench_loses_nothing_and_doubles_nothing(tmp_path: Path, command: tuple[str, ...]) -> None:
    """kill -9 in the middle of a suite; the same command then makes the rest, each case once.

    With the worker that measures, and with one that only answers: what is killed is the process that keeps records.
    """
    path = tmp_path / "cpu.yaml"
    process = subprocess.Popen(
        [*command, *TINY, "--out", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 120
        while not path.exists() or path.read_bytes().count(b"\n  - {") < KILLED:
            assert process.poll() is None, "the suite was over before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.002)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    kept = path.read_bytes()
    kept = kept[: kept.rindex(b"\n") + 1]
    subprocess.run(
        [*command, *TINY, "--out", str(path)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert path.read_bytes().startswith(kept)
    memory = next(iter(yaml.safe_load(path.read_text(encoding="utf-8"))["hardware"]["memory"].split()))
    cases = suite(DeviceLimits("cpu", int(memory) * 2**20, 0, 2, ("fp32",), quick=True), ONLY)
    assert _identities(path) == Counter(identity(case.record) for case in cases)
    assert len(read_evidence(path).microbenchmarks) == len(cases)


def test_half_an_answer_is_not_waited_for() -> None:
    """The time is over even where a line has begun; a whole line is read to its end, and what follows stays."""
    script = "import sys, time; print('note'); print('{\"a\": 1}'); print('{', end='', flush=True); time.sleep(30)"
    with subprocess.Popen([sys.executable, "-u", "-c", script], bufsize=0, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert read_answer(process.stdout, 30.0) == {"a": 1}
        assert read_answer(process.stdout, 0.2) is None
        process.kill()
