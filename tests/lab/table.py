"""Prints how the compiler's derivations compare with PyTorch, as Markdown: `python -m tests.lab.table`.

It runs what the tests run, and shows the size of each difference where those only bound it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from ledger.lab.observed.one_device import flop_counts, parameter_count
from ledger.lab.reference.workload import workload
from tests.books.measured_peaks import SHARDED_STEPS, STEPS
from tests.lab.saved_cases import FAMILIES, cases, packed, predicted
from tests.lab.test_compiler_against_pytorch import MODELS, compiled, cores, library

SEQUENCE = 997


def counts() -> Iterator[tuple[str, ...]]:
    """Whole models of the library: parameters and FLOPs with their differences."""
    for name in MODELS:
        model = library(name)
        plan = compiled(model, SEQUENCE, cores(model)[0])
        totals, found = plan.totals, flop_counts(workload(plan.plan))
        parameters = int(totals["parameters"])
        step = int(totals["flops.counter.step"])
        differences = (
            parameters - parameter_count(plan.plan.model),
            int(totals["flops.counter.forward"]) - found.forward,
            step - found.step,
        )
        yield name, f"{parameters:_}", f"{step:_}", *(str(difference) for difference in differences)


def saved() -> Iterator[tuple[str, ...]]:
    """Families: how many choices of kernels and precision, and the largest difference in bytes."""
    for family in FAMILIES:
        differences = []
        for case in cases():
            if case.family == family:
                plan = case.compiled()
                mine, theirs = predicted(plan), packed(plan)
                differences.append(max(abs(mine[key] - theirs[key]) for key in theirs))
        yield family, str(len(differences)), str(max(differences))


def peaks() -> Iterator[tuple[str, ...]]:
    """Measured steps: bytes of each phase and the ledger's relative error."""
    for step in (*STEPS, *SHARDED_STEPS):
        for phase, error in step.errors().items():
            yield step.name, phase, f"{step.peaks[phase]:_}", f"{error:+.1e}"


TABLES = (
    (("model", "parameters", "FLOPs of a step", "parameters off by", "forward off by", "step off by"), counts),
    (("family", "cases", "largest difference, bytes"), saved),
    (("plan", "phase", "measured, bytes", "ledger off by"), peaks),
)


def lines(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """One Markdown table."""
    head = tuple(head)
    yield from ("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows))
    yield ""


def main() -> None:
    """All tables on standard output."""
    for head, rows in TABLES:
        sys.stdout.writelines(f"{line}\n" for line in lines(head, rows()))


if __name__ == "__main__":
    main()
