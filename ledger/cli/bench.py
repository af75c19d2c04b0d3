"""`ledger bench`: what this machine's device does in a second, kept as evidence."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from ledger.cli.options import Amount, installed, json_option
from ledger.cli.plain_streams import unguarded

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ledger.lab.bench.cases import BenchCase, BenchResult
    from ledger.lab.bench.records import EvidenceFile

KINDS = (
    "launch",
    "matmul",
    "attention",
    "step",
    "stream",
    "optimizer",
    "host_link",
    "convolution",
    "collective",
    "grouped",
)
SHORTER = {"seconds": 0.05, "hold": 0.2}  # of a quick suite
BUSY = 0.2  # of a machine in use by others: from here on short kernels wait for turns, not for memory
SCHEMA = "ledger-bench/1"
NEEDED = ("torch", "yaml", "sympy", "numpy", "rich")  # on a borrowed machine; whole steps need transformers too


@click.command(name="bench")
@click.option(
    "--device", default="auto", show_default=True, help="cpu, cuda or cuda:1; auto: a GPU where there is one."
)
@click.option("--quick", is_flag=True, help="Fewer and shorter measurements: a first look in under two minutes.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="The file, else specs/evidence/DEVICE-DATE.yaml."
)
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="Only this kind; may be given several times.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of a CPU; all processors where not given.")
@click.option("--seconds", type=Amount(min=0.001), help="Time for one measurement of the full suite: 0.2.")
@click.option("--minutes", type=Amount(min=0.1), help="Stop after so long; the same command goes on later.")
@click.option("--retry", is_flag=True, help="Measure again what could not be measured before.")
@json_option
def command(
    device: str,
    out: Path | None,
    only: tuple[str, ...],
    threads: int | None,
    seconds: float | None,
    minutes: float | None,
    *,
    quick: bool,
    retry: bool,
    as_json: bool,
) -> None:
    """Measure this machine's GPU or CPU: what a training step runs, case by case, and whole steps.

    Every record is on disk before the next is made: the same command goes on where a run was killed, and a case that
    fails is kept with its reason. `ledger calibrate` makes prices of the file.
    """
    installed("this runs PyTorch on the device, on plans of the library", NEEDED)
    from ledger.lab.bench.runner import BenchSettings, DeviceError, bench

    chosen = _default_device() if device == "auto" else device
    times: dict[str, float] = dict(SHORTER) if quick else {}
    if seconds is not None:
        times["seconds"] = seconds
    settings = BenchSettings(chosen, threads or 0, quick, only=only, **times)
    from ledger.spec.library import default_library

    folder = default_library().writable("evidence")
    log = Log()
    until = time.monotonic() + 60 * minutes if minutes else math.inf
    with log:
        try:
            for case, measured in bench(settings, lambda name: out or folder / name, retry=retry, begin=log.open_file):
                log.note(case, measured)
                if measured and time.monotonic() > until:
                    break
        except DeviceError as error:
            raise click.UsageError(str(error)) from error
        except OSError as error:
            raise click.UsageError(f"records cannot be kept: {error}; --out FILE says where else") from error
        except KeyboardInterrupt:
            log.stop()
            if log.path:
                click.echo(f"stopped; what was measured is in {log.path}, and the same command goes on", err=True)
            raise
    _print_log(log, as_json=as_json)


def _default_device() -> str:
    """The first GPU, or the CPU."""
    from ledger.lab.bench.gpu import has_gpu

    return "cuda" if has_gpu() else "cpu"


@dataclass
class Log:
    """Progress on standard error: a bar on a terminal, elsewhere a line for each kind of measurement."""

    path: Path | None = None
    made: Counter[str] = field(default_factory=Counter)
    failed: list[BenchResult] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    before: int = 0
    count: int = 0
    stack: ExitStack = field(default_factory=ExitStack)
    bar: tuple[Progress, TaskID] | None = None
    kind: str = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """The bar is left as it stands."""
        self.stack.close()

    def open_file(self, file: EvidenceFile, count: int) -> None:
        """The file is open, and so many cases are to come."""
        self.path, self.before, self.count = file.path, len(file.records), count
        earlier_records = f", which has {self.before} records" if self.before else ""
        click.echo(f"{file.head['evidence']}: {count} measurements into {file.path}{earlier_records}", err=True)
        if file.head["hardware"].get("devices") == 1:
            click.echo("no collectives: there is one GPU", err=True)
        if sys.stderr.isatty():
            self.bar = self._bar(count)

    def _bar(self, count: int) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        progress = self.stack.enter_context(Progress(*columns, console=Console(file=unguarded(sys.stderr))))
        return progress, progress.add_task("", total=count)

    def note(self, case: BenchCase, measured: BenchResult | None) -> None:
        """A case begins, or is kept."""
        if measured is None:
            if self.bar:
                self.bar[0].update(self.bar[1], description=described(case))
            elif case.kind != self.kind:
                click.echo(case.kind, err=True)
            self.kind = case.kind
            return
        self.made[case.kind] += 1
        if measured.failed:
            self.failed.append(measured)
        elif "others" in measured.result:
            self.others.append(float(measured.result["others"]))
        if self.bar:
            self.bar[0].advance(self.bar[1])


def described(case: BenchCase) -> str:
    """A case in a line."""
    named = [f"{value}" for key, value in case.keys.items() if key not in ("set", "dtype") and value is not None]
    return " ".join([case.what, *named])


def _print_log(log: Log, *, as_json: bool) -> None:
    from ledger.cli.tables import print_json, print_table

    failures = [{**failure.case.record, "error": failure.result["error"]} for failure in log.failed]
    if as_json:
        head: dict[str, Any] = {"schema": SCHEMA, "path": str(log.path), "before": log.before}
        print_json({**head, "made": dict(log.made), "failed": failures})
        return
    failed = Counter(failure.case.kind for failure in log.failed)
    rows = [(kind, str(count), str(failed[kind]) if failed[kind] else "") for kind, count in log.made.items()]
    if rows:
        print_table(("kind", "records", "failed"), rows, right=("records", "failed"))
    for failure in log.failed:
        click.echo(f"{described(failure.case)}: {failure.result['error']}", err=True)
    if log.failed:
        click.echo(f"{len(log.failed)} could not be measured; --retry tries them again", err=True)
    if busy := _busy_note(log.others):
        click.echo(busy, err=True)
    cases_left = log.count - sum(log.made.values())
    if cases_left:
        click.echo(f"{cases_left} measurements are left; the same command makes them", err=True)
    click.echo(str(log.path))


def _busy_note(others: list[float]) -> str:
    """A note that others used the machine during half of the measurements; empty where they did not."""
    from statistics import median

    if not others or (share := median(others)) <= BUSY:
        return ""
    return (
        f"others used {share:.0%} of this machine meanwhile, so times of short kernels scatter: "
        "measure again when it is idle, or with fewer --threads"
    )
