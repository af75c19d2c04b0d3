"""Plans, their pages, and what the script of a page says in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from math import isclose
from pathlib import Path
from typing import Any

from ledger.books.compiled import Compiled
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.traced import at_inputs
from ledger.report import live, live_script
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from tests.layouts import TENSOR_PARALLEL
from tests.library_plans import TRAINING

SPECS = Path(__file__).resolve().parents[2] / "specs"
LIBRARY = [path.stem for path in TRAINING]
BYTES = ("memory.peak", "memory.reserved", "memory.capacity", *(f"memory.{name}" for name in CATEGORIES))
FLOATS = (
    *("time.step", "time.step.low", "time.step.high", "tokens_per_second", "time.run", "goodput"),
    *(f"{key}{end}" for key in ("time.calendar", "cost.run") for end in ("", ".low", ".high")),
)
EXACT = 1e-12
# Kinds of plans beside those of the library: adapters, what lives on the host, windows.
FURTHER: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "adapters": (
        "8b",
        ('train={"lora": {"rank": 16, "targets": ["q", "v"]}}', "precision=bf16-true", "recompute=none"),
    ),
    "optimizer on the host": ("70b", (*TENSOR_PARALLEL, 'parallelism.offload=["optimizer"]', "parallelism.zero=2")),
    "activations on the host": ("70b", ('parallelism.offload=["activations"]', "recompute=none")),
    "tensor parallel": ("70b", TENSOR_PARALLEL),
    "windows": ("8b", ("model=mistral-7b",)),
    "gpipe": ("405b", ("parallelism.interleave=1", "parallelism.schedule=gpipe")),
    "muon": ("7b-8xh100", ("optimizer=muon",)),
    "loss in parts": ("8b", ("kernels.loss=fused_linear",)),
    "one device": ("gpt2", ("cluster.devices=1", "parallelism.data=1")),
    "operated": (
        "8b",
        (
            "operations={failure_rate: 0.0005 /d, checkpoint_interval: 3 h, storage_bandwidth: 20 GB/s}",
            "operations.restart_time=20 min",
            "assumptions={mfu: 0.4, price: {per_device_hour: 2.2 USD, date: 2026-01, source: an offer}}",
            "assumptions.headroom=cloud",
        ),
    ),
}


def node(script: str) -> Any:
    """What a script prints, as JSON. Node is part of the tools that tests need: without it they fail."""
    program = shutil.which("node")
    assert program, "these tests run the page's script: install Node.js 18 or newer (`apt-get install nodejs`)"
    done = subprocess.run([program, "-"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@cache
def plan(name: str) -> Plan:
    """A plan of the library, or one of FURTHER."""
    stem, overrides = FURTHER.get(name, (name, ()))
    return load_plan(str(SPECS / f"{stem}.yaml"), overrides)


@cache
def page(name: str) -> live.LivePage:
    """What the page of a plan knows."""
    found = live.page_of(plan(name))
    assert found is not None
    return found


def moved(name: str, chosen: Mapping[str, Any]) -> Plan:
    """The plan with another setting."""
    whole = {**page(name).plan_setting, **chosen}
    return at_inputs(page(name).choices.at(whole), whole)


@cache
def calculator(name: str) -> str:
    """What the page of a plan computes with."""
    return live_script.calculator(page(name))


def asked(name: str, call: str, choices: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What the page computes for each choice over the plan's own setting."""
    text = f'"use strict";\n{calculator(name)}\nconst choices = {json.dumps(choices)};\n'
    found: list[Any] = node(f"{text}console.log(JSON.stringify(choices.map((c) => {call}({{...PLAN.own, ...c}}))));")
    return found


def differences(found: Mapping[str, Any], compiled: Compiled) -> dict[str, object]:
    """Where the page and the compiler do not agree: bytes to the byte, seconds, rates and dollars to 1e-12."""
    totals, mine = compiled.totals, found["totals"]
    wrong: dict[str, object] = {key: (mine[key], totals[key]) for key in BYTES if mine[key] != totals[key]}
    for key in FLOATS:
        if key in totals and not isclose(mine[key], float(totals[key]), rel_tol=EXACT):
            wrong[key] = mine[key], totals[key]
    worst = max(compiled.roles, key=lambda role: role.peak.total)
    own = (worst.peak.title, compiled.verdict.bottleneck, compiled.verdict.fits, compiled.plan.cluster.devices)
    page_says = (found["moment"], found["bottleneck"], found["fits"], mine["devices"])
    return wrong | ({"words": (page_says, own)} if page_says != own else {})
