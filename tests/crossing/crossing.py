"""Every plan of the library on every stack that may run it, under every verb: what is typed, what must come of it."""

from __future__ import annotations

import json
import math
import re
import shutil
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import product
from pathlib import Path
from typing import Any

import click
import yaml
from click.testing import CliRunner, Result

import ledger
from ledger.books.closed_forms import PlanForms
from ledger.cli import main
from ledger.cli.explain import print_total
from ledger.report.explained import explanation
from ledger.search.choices import policy_value
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
from tests.laws.random_plans import names
from tests.library_plans import PLANS, SERVING


def _stated(stack: str) -> Mapping[str, Any]:
    """The keys of a stack, with those of what it starts from."""
    document = yaml.safe_load(default_library().path("stack", stack).read_text("utf-8"))
    return {**(_stated(document["base"]) if "base" in document else {}), **document}


STACKS = names("stack")
ENGINES = frozenset(name for name in STACKS if "engine" in _stated(name))
DONE, MISSED, REFUSED = 0, 1, 2  # the exit codes that docs/commands.md has for these verbs
INTERNAL = re.compile(r"Traceback \(most recent call last\)|a mistake of ledger|internal error", re.IGNORECASE)
STATED = re.compile(r"^stack: .*$", re.MULTILINE)  # in the text of a plan
PLACE = re.compile(r"^[^`\n]*?:\d+:\d+: ")  # before what is wrong
LONGEST_HEAD = 100  # characters of a message
Words = tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One plan on one stack under one verb."""

    plan: Path
    stack: str
    verb: str

    @property
    def plan_words(self) -> Words:
        """The plan on the stack, as it is typed."""
        return str(self.plan), "--set", f"stack={self.stack}"


@dataclass(frozen=True)
class Verb:
    """What is typed, in turn, in a folder of its own; the exit codes that a legal plan may have of it."""

    lines: Callable[[Cell, Path], Iterator[Words]]
    codes: tuple[int, ...] = (DONE,)


@dataclass(frozen=True)
class Outcome:
    """What came of a cell: its last line with the exit code, seconds of the processor, the first message, faults."""

    cell: Cell
    line: Words
    code: int
    seconds: float
    message: str
    faults: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """Whether the rules have something against the plan, or the verb against its words."""
        return self.code == REFUSED

    @property
    def command(self) -> str:
        """The line that came last, to be typed again."""
        return " ".join(("ledger", *(f"'{word}'" if re.search(r"[^\w./=,-]", word) else word for word in self.line)))


# --- what each verb is typed with ---


def _report(formats: str) -> Callable[[Cell, Path], Iterator[Words]]:
    return lambda cell, folder: iter([("report", *cell.plan_words, "--format", formats, "--out", str(folder))])


def _reproduce(cell: Cell, folder: Path) -> Iterator[Words]:
    yield from _report("json")(cell, folder)
    yield "reproduce", str(folder / f"{cell.plan.stem}.json")


def _compare(cell: Cell, folder: Path) -> Iterator[Words]:
    """The plan beside a copy of it."""
    copy = folder / f"{cell.plan.stem}-copy.yaml"
    shutil.copyfile(cell.plan, copy)
    plan, *setting = cell.plan_words
    yield "compare", plan, str(copy), *setting, "--format", "md", "--out", str(folder)


def _diff(cell: Cell, folder: Path) -> Iterator[Words]:
    """The plan on its own stack and on this one; then the second against itself."""
    yield "diff", str(cell.plan), *cell.plan_words
    copy = folder / f"{cell.plan.stem}-on-stack.yaml"
    copy.write_text(STATED.sub(f"stack: {cell.stack}", cell.plan.read_text("utf-8")), "utf-8")
    yield "diff", str(copy), str(copy), "--json"


def _solve(cell: Cell, folder: Path) -> Iterator[Words]:
    plan = _plan(cell)
    if plan is None:
        yield "check", *cell.plan_words
        return
    keys: Words = ("run.micro_batch", "run.seq_len", "parallelism.zero")
    if plan.serve is not None:
        keys = ("serve.concurrency", "serve.output", "parallelism.tensor")
    elif plan.model.image is not None:
        keys = ("run.micro_batch", "run.global_batch", "parallelism.zero")
    for key in keys:
        yield "solve", *cell.plan_words, "--for", key


def _sweep(cell: Cell, folder: Path) -> Iterator[Words]:
    """The plan's own degrees under ZeRO as it is and one stage more, and with everything rebuilt."""
    plan = _plan(cell)
    if plan is None:
        yield "check", *cell.plan_words
        return
    mesh = plan.parallelism
    serving = ("tensor", "expert", "pipeline")
    axes = serving if plan.serve else (*serving, "context", "interleave", "replicate")
    over: dict[str, list[Any]] = {f"parallelism.{axis}": [getattr(mesh, axis)] for axis in axes}
    if plan.serve is None:
        over["parallelism.zero"] = sorted({mesh.zero, min(3, mesh.zero + 1)})
        over["parallelism.offload"] = [None]
        over["recompute"] = [policy_value(plan.recompute), *(["full"] if plan.recompute.policy != "full" else [])]
        over["run.micro_batch"] = [plan.run.micro_batch]
    words = (f"{key}={','.join(map(json.dumps, listed))}" for key, listed in over.items())
    yield "sweep", *cell.plan_words, *(word for text in words for word in ("--over", text))


def _plan(cell: Cell) -> Plan | None:
    """The plan on its stack; None where the rules refuse it, as `check` then says."""
    try:
        return load_plan(str(cell.plan), (f"stack={cell.stack}",))
    except SpecError:
        return None


@click.command(name="explain-every-total")
@click.argument("spec")
@click.option("--set", "overrides", multiple=True)
def explain_every_total(spec: str, overrides: tuple[str, ...]) -> None:
    """What `ledger explain` prints of every total of a plan that is compiled once."""
    compiled = ledger.compile(spec, overrides)
    forms = PlanForms(compiled)
    for total in compiled.totals:
        print_total(explanation(compiled, total, forms))


def _lines(*words: str) -> Callable[[Cell, Path], Iterator[Words]]:
    """One line: the verb, the plan on its stack, and these words."""
    return lambda cell, folder: iter([(words[0], *cell.plan_words, *words[1:])])


EVERY_TOTAL = "explain-every-total"
# The first is what says whether a stack runs a plan at all.
VERBS: Mapping[str, Verb] = {
    "check": Verb(_lines("check"), (DONE, MISSED)),
    "show": Verb(_lines("show", "--json")),
    "explain": Verb(_lines(EVERY_TOTAL)),
    "diff": Verb(_diff),
    "json": Verb(_report("json")),
    "md": Verb(_report("md")),
    "reproduce": Verb(_reproduce),
    "compare": Verb(_compare),
    "sweep": Verb(_sweep, (DONE, MISSED)),
    "solve": Verb(_solve, (DONE, MISSED)),
    "html": Verb(_report("html")),
    "html,pdf": Verb(_report("html,pdf")),
}
FIRST, *LATER = VERBS


# --- what comes of them ---


def run(cell: Cell, folder: Path) -> Outcome:
    """Types the lines of a cell in turn, up to the first that is at fault or refused."""
    started = time.process_time()
    verb = VERBS[cell.verb]
    line: Words = ()
    result: Result | None = None
    faults: list[str] = []
    for line in verb.lines(cell, folder):
        result = invoke(line)
        faults += broken(result, line, folder)
        if faults or result.exit_code == REFUSED:
            break
    assert result is not None
    seconds = time.process_time() - started
    return Outcome(cell, line, result.exit_code, seconds, _message(result), tuple(faults))


def _message(result: Result) -> str:
    """The first line with a place, which `check` prints as its result; else the first line of standard error."""
    printed = [text for text in f"{result.stderr}\n{result.stdout}".splitlines() if text.strip()]
    return next((text for text in printed if PLACE.match(text)), next(iter(printed), ""))


def invoke(line: Words) -> Result:
    """What a line prints, and its exit code, in this process."""
    if line[0] == EVERY_TOTAL:
        return CliRunner().invoke(explain_every_total, list(line[1:]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="HarfBuzz-Subset")  # of WeasyPrint, where the machine lacks it
        return CliRunner().invoke(main, list(line), prog_name="ledger")


def broken(result: Result, line: Words, folder: Path) -> Iterator[str]:
    """What a line must not come to, whatever the plan is."""
    last = next((text for text in reversed(result.stderr.splitlines()) if text.strip()), "")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        yield f"{type(result.exception).__name__}: {result.exception}"
    elif result.exit_code not in (DONE, MISSED, REFUSED):
        yield f"exit code {result.exit_code}: {last}"
    elif INTERNAL.search(result.output):
        yield f"an error of the program itself is printed: {last}"
    if result.exit_code != DONE:
        return
    if line[0] == "show":
        yield from _not_finite(json.loads(result.stdout))
    if line[0] == "report":
        formats = line[line.index("--format") + 1].split(",")
        files = [folder / f"{Path(line[1]).stem}.{name}" for name in formats]
        yield from (f"{file.name} is not written" for file in files if not file.is_file() or not file.stat().st_size)
        yield from (fault for file in files if file.suffix == ".json" for fault in _not_finite(_read(file)))


def _read(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))


def _not_finite(value: Any, path: str = "") -> Iterator[str]:
    """Numbers of a document of JSON that are infinite or none at all, with their keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_finite(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _not_finite(inner, f"{path}.{place}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path} is {value}"


def faults_of_a_legal_plan(outcome: Outcome) -> tuple[str, ...]:
    """What is wrong with the outcome of a plan that its stack runs: an exit code that the verb may not have, too."""
    allowed = VERBS[outcome.cell.verb].codes
    is_search = outcome.line[0] in ("solve", "sweep")  # which may say that a key cannot vary in a plan
    if outcome.faults or outcome.code in allowed or (is_search and outcome.is_refused):
        return outcome.faults
    return (f"exit code {outcome.code} of a plan that the stack runs: {outcome.message}",)


def head(message: str, stack: str) -> str:
    """What a message says, without its place, its stack and its details."""
    text = PLACE.sub("", message).replace(stack, "STACK")
    text = re.sub(r"`[^`]*`", "`...`", text)
    return re.split(r" \(|[;:] ", text)[0][:LONGEST_HEAD]


# --- which cells ---


def every_pair() -> Iterator[tuple[Path, str]]:
    """Each plan with each stack, whether the stack may run it or not."""
    yield from product(PLANS, STACKS)


# Seconds of the processor, about: of a plan, those of a compilation; of a verb, its compilations and the rest.
PLAN_SECONDS: Mapping[str, float] = {
    "405b": 0.4,
    "llama-3.1-405b-meta": 0.4,
    "deepseek-v3": 0.6,
    "resnet-50": 0.5,
    "t5-11b": 0.5,
    "serve-70b": 0.2,
    "serve-qwen3-30b": 0.2,
}
VERB_SECONDS: Mapping[str, tuple[float, float]] = {
    "check": (1, 0.0),
    "show": (1, 0.0),
    "explain": (40, 1.0),
    "diff": (4, 0.1),
    "json": (2, 0.1),
    "md": (2, 0.2),
    "reproduce": (3, 0.2),
    "compare": (2, 0.1),
    "sweep": (4, 0.1),
    "solve": (20, 0.0),
    "html": (5, 0.9),
    "html,pdf": (5, 3.0),
}
SMALL = 0.1  # seconds of a plan that PLAN_SECONDS does not name
SAMPLED_SECONDS = 40.0
# What a pair counts in the choice of a sample, by its places of plan, stack and verb in a cell; and a verb alone, and a
# stack, so that each is there. A verb that dies of a plan does so on most stacks.
WORTH: Mapping[tuple[int, ...], float] = {(0, 1): 1, (0, 2): 8, (1, 2): 1, (0,): 60, (1,): 10, (2,): 100}


def seconds_of(cell: Cell) -> float:
    """What a cell takes, about."""
    turns, rest = VERB_SECONDS[cell.verb]
    return turns * PLAN_SECONDS.get(cell.plan.stem, SMALL) + rest


def may_run(plan: Path, stack: str) -> bool:
    """Whether a stack is not of the other kind than the plan: engines serve alone. Other rules refuse single pairs."""
    return plan in SERVING or stack not in ENGINES


@cache
def sample(seconds: float = SAMPLED_SECONDS) -> tuple[Cell, ...]:
    """Cells that have the most pairs of plan and stack, plan and verb, stack and verb for the time that they take.

    Each in turn is the one with the most new pairs, by their worth, for its seconds.
    """
    cells = [Cell(*chosen) for chosen in product(PLANS, STACKS, VERBS) if may_run(*chosen[:2])]
    seen: set[tuple[Hashable, ...]] = set()
    heap = [(-sum(WORTH.values()) / seconds_of(cell), place) for place, cell in enumerate(cells)]
    heapify(heap)
    chosen: list[int] = []
    while heap:
        _, place = heappop(heap)
        value = sum(WORTH[kind] for kind in WORTH if _pair(cells[place], kind) not in seen) / seconds_of(cells[place])
        if heap and value < -heap[0][0]:
            if value:
                heappush(heap, (-value, place))
            continue
        if not value or seconds_of(cells[place]) > seconds:
            continue
        seconds -= seconds_of(cells[place])
        chosen.append(place)
        seen |= {_pair(cells[place], kind) for kind in WORTH}
    return tuple(cells[place] for place in sorted(chosen))


def _pair(cell: Cell, kind: tuple[int, ...]) -> tuple[Hashable, ...]:
    values = (cell.plan, cell.stack, cell.verb)
    return kind, *(values[place] for place in kind)


def covered(cells: Iterable[Cell]) -> dict[str, tuple[int, int]]:
    """Of each kind of pair, how many some cells have, and how many there are."""
    every = [Cell(*chosen) for chosen in product(PLANS, STACKS, VERBS) if may_run(*chosen[:2])]
    listed = list(cells)
    return {
        " x ".join(("plan", "stack", "verb")[place] for place in kind): (
            len({_pair(cell, kind) for cell in listed}),
            len({_pair(cell, kind) for cell in every}),
        )
        for kind in WORTH
    }
