"""A compiled plan made by hand, small enough to check with a pencil, and a runner of the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import sympy
from click.testing import CliRunner, Result

import ledger
from ledger.books.compiled import Compiled
from ledger.books.resources import flops, stock
from ledger.books.results import Account, Check, KernelTime, Moment, RoleResult, Symbol, Verdict, WaterfallPart
from ledger.cli import main
from ledger.model.causes import Cause, Transfer
from ledger.spec.kernel_classes import kernel_class
from ledger.spec.plan import (
    MLP,
    Accelerator,
    Attention,
    Cluster,
    Group,
    Kernels,
    Model,
    Optimizer,
    Origin,
    Overlap,
    Parallelism,
    Plan,
    Precision,
    Recompute,
    Run,
    Stack,
)
from ledger.spec.precision import WeightFormats
from ledger.spec.problems import Location

Ledger = Callable[..., Result]
HUGE = 2**53 + 1  # no float holds it
BATCH, SEQUENCE, WIDTH = 2, 3, 5


def plan() -> Plan:
    """Two devices, one layer, sizes that are distinct primes."""
    fp32 = "fp32"
    return Plan(
        name="tiny",
        title="A tiny plan",
        accelerator=Accelerator(
            "toy", "Toy", {"bf16": 1e12}, 1e11, 1e11, 10**9, 10**9, 10**6, 1, 1e10, 2, 1e10, power=100.0
        ),
        cluster=Cluster(2, 2, 1e9),
        model=Model("toy", "Toy", None, WIDTH, 7, (Group("decoder", 1, Attention(1, 1, WIDTH), MLP(11)),)),
        precision=Precision("fp32", WeightFormats.alike(fp32), fp32, None, fp32, fp32, fp32, fp32),
        optimizer=Optimizer(),
        parallelism=Parallelism(data=2),
        recompute=Recompute(),
        stack=Stack("toy", "Toy", "2026-01-01", Kernels(), Overlap()),
        kernels=Kernels(),
        run=Run(SEQUENCE, BATCH, 2 * BATCH, 1000),
        origins={
            "run.micro_batch": Origin(Location("tiny.yaml", 3, 7)),
            "model": Origin(Location("toy.yaml"), "a paper"),
        },
        digest="sha256:" + "ab" * 32,
    )


def cause(name: str) -> Cause:
    """The cause that is printed so."""
    unit, _, rest = name.partition("/")
    return Cause(unit, rest)


def account(name: str, when: str, amount: int, formula: sympy.Expr, unit: str = "FLOP") -> Account:
    """A leaf of the one role, once a step."""
    resource = flops("matmul", "bf16") if unit == "FLOP" else stock("activations")
    return Account(cause(name), "only", resource, when, amount, 1, str(formula), "two per multiply-add", formula)


@pytest.fixture
def compiled() -> Compiled:
    """The tiny plan with its books closed: 2*B*S*D FLOPs forward in one account, a second larger than 2**53."""
    batch, sequence, width = sympy.symbols("B S D", positive=True, integer=True)
    forward = 2 * BATCH * SEQUENCE * WIDTH
    peak = Moment(
        "loss", "backward, loss", {"weights": 600, "logits": 400}, (("head/output", 400), ("decoder/mlp/up", 300))
    )
    up, reduced = cause("decoder/mlp/up"), cause("decoder/mlp/reduce")
    work = (4, 60, 100, 0, 0.5, 0.4, "compute", 0.05)
    matmul = KernelTime(up, "forward", kernel_class("matmul.bf16"), *work, calibrated=True)
    sent = Transfer("all_reduce", "data", content="data")
    reduce = replace(matmul, cause=reduced, kind=sent, times=2, payload=80, seconds=0.25)
    reduce = replace(reduce, when="step", flops=0, bytes=0, bound="network", exposed=0.1)
    return Compiled(
        plan=plan(),
        totals={
            "parameters": HUGE,
            "flops.forward": 2 * (forward + 2 * HUGE),
            "memory.peak": 1000,
            "memory.weights": 600,
            "memory.logits": 400,
            "time.step": 2.5,
        },
        accounts=(
            account("decoder/mlp/up", "forward", forward, 2 * batch * sequence * width),
            account("decoder/mlp/up", "first..loss", 300, 4 * batch * width, "B"),
            account("head/output", "forward", 2 * HUGE, 2 * batch),
        ),
        roles=(RoleResult("only", (0,), 2, (peak,), peak, 1200, (matmul, reduce)),),
        waterfall=(WaterfallPart("compute", "compute", 2.0), WaterfallPart("data", "gradient reduction", 0.5)),
        verdict=Verdict(True, "compute", "calibrated", "It fits.", (Check("fit", "Fits", "pass", "1 kB of 1 GB"),)),
        symbols=MappingProxyType(
            {
                "B": Symbol("B", "sequences per micro-batch", BATCH, "run.micro_batch"),
                "S": Symbol("S", "tokens per sequence", SEQUENCE, "run.seq_len"),
                "D": Symbol("D", "width of the residual stream", WIDTH, "model.d_model"),
            }
        ),
    )


@pytest.fixture
def run(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Runs the command line on the hand-made plan, whatever SPEC names; `with_` replaces parts of it."""

    def invoke(*args: str, with_: dict[str, object] | None = None) -> Result:
        monkeypatch.setattr(ledger, "compile", lambda *_: replace(compiled, **(with_ or {})))
        return CliRunner().invoke(main, list(args), prog_name="ledger")

    return invoke


@pytest.fixture
def command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Runs the command line as it is, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *args, **kwargs: CliRunner().invoke(main, list(args), prog_name="ledger", **kwargs)
