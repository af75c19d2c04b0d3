"""`ledger bench` as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ledger.cli import main
from ledger.cli.bench import KINDS
from ledger.evidence.documents import read_evidence
from ledger.lab.bench import runner
from ledger.lab.bench.table import BY_NAME

OPERATIONS = ("host", "autograd", "module", "training")
TINY = ("bench", "--device", "cpu", "--threads", "1", "--quick", "--seconds", "0.002", "--only", "launch")


def test_the_kinds_that_can_be_asked_for_are_those_of_the_table() -> None:
    """The verb names them without loading what measures."""
    assert set(KINDS) == set(BY_NAME)


def test_what_keeps_records_knows_no_torch() -> None:
    """PyTorch and the device it may lose are the worker's; the process that writes the file imports neither."""
    program = "import sys, ledger.lab.bench.gpu, ledger.lab.bench.runner; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.long)], ids=["pretended", "real"])
def test_a_device_is_measured_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, real: bool) -> None:
    """Records and path on standard output, progress on standard error; a second call has nothing left to do.

    By the worker that measures, and by one that answers as it does without PyTorch.
    """
    if not real:
        pretend(monkeypatch, "dict(unit='us', value=5.0, low=4.0, high=6.0, count=9)")
    path = tmp_path / "cpu.yaml"
    first = CliRunner().invoke(main, [*TINY, "--out", str(path)])
    assert first.exit_code == 0, first.output
    assert first.stdout.splitlines()[-1] == str(path)
    assert "4 measurements into" in first.stderr
    evidence = read_evidence(path)
    assert [record["operation"] for record in evidence.microbenchmarks] == list(OPERATIONS)
    assert evidence.hardware["kind"] == "cpu"
    assert {"torch", "date", *(("threads", "method") if real else ())} <= set(evidence.origin)
    again = CliRunner().invoke(main, [*TINY, "--out", str(path), "--json"])
    assert json.loads(again.stdout) == {
        "schema": "ledger-bench/1",
        "path": str(path),
        "before": 4,
        "made": {},
        "failed": [],
    }


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.long)], ids=["pretended", "real"])
@pytest.mark.parametrize(
    ("device", "said"),
    [("tpu", "there is no device `tpu`: give `cpu`, `cuda` or `cuda:1`"), ("cuda:9", "CUDA device")],
)
def test_a_device_that_is_not_there_is_bad_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, said: str, *, real: bool
) -> None:
    """Exit code 2, a sentence of the worker's, and no file."""
    if not real:
        words = f"import json, sys; sys.stdin.readline(); print(json.dumps(dict(no_device={said!r})), flush=True)"
        monkeypatch.setattr(runner, "COMMAND", (sys.executable, "-c", words))
    result = CliRunner().invoke(main, ["bench", "--device", device, "--out", str(tmp_path / "x.yaml")])
    assert result.exit_code == 2
    assert said in result.output
    assert not list(tmp_path.iterdir())


def pretend(monkeypatch: pytest.MonkeyPatch, result: str) -> None:
    """Every case has this result, of a worker that measures nothing."""
    lines = [
        "import json, sys",
        "sys.stdin.readline()",
        "limits = dict(type='cpu', memory=2**32, cache=2**20, devices=2, dtypes=['fp32'], quick=True)",
        "known = dict(name='d', title='D', place='cpu', origin=dict(torch='2'), hardware=dict(kind='cpu'))",
        f"cases = [dict(kind='launch', what='launch', keys=dict(operation=name)) for name in {OPERATIONS}]",
        "print(json.dumps(dict(device=dict(known, limits=limits), cases=cases)), flush=True)",
        "count = len(json.loads(sys.stdin.readline()))",
        f"result = {result}",
        "[print(json.dumps(dict(done=i, result=result)), flush=True) for i in range(count)]",
    ]
    monkeypatch.setattr(runner, "COMMAND", (sys.executable, "-c", "\n".join(lines)))


def test_what_could_not_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure is in the file, in the table and on standard error with what tries it again; the verb succeeds."""
    pretend(monkeypatch, "dict(error='out of memory: 9 GiB')")
    result = CliRunner().invoke(main, [*TINY, "--out", str(tmp_path / "d.yaml")])
    assert result.exit_code == 0, result.output
    assert "launch host: out of memory: 9 GiB" in result.stderr
    assert "4 could not be measured; --retry tries them again" in result.stderr
    assert result.stdout.splitlines()[1].split() == ["launch", "4", "4"]
    assert len(read_evidence(tmp_path / "d.yaml").failed) == 4


@pytest.mark.parametrize(("others", "told"), [(0.5, True), (0.1, False)])
def test_a_busy_machine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: float, told: bool) -> None:
    """Who measured beside other work reads so at the end, not in a fit that scatters."""
    pretend(monkeypatch, f"dict(unit='us', value=5.0, low=4.0, high=6.0, count=9, others={others})")
    result = CliRunner().invoke(main, [*TINY, "--out", str(tmp_path / "d.yaml")])
    assert result.exit_code == 0, result.output
    assert ("others used 50% of this machine" in result.stderr) is told
