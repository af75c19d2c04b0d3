"""The live page against the compiler at settings that nobody chose: bytes are equal, seconds are to 1e-12.

    python benchmarks/live.py [--settings 2000] [--plans TEXT] [--jobs N]

The page's own controls say which values there are; each setting moves some of them. Up to half of the settings move a
degree from one to more or back, where the page offers that. What the page refuses must be refused by the compiler in
the same words; settings of which it says that it does not hold them are counted. One Node process (18 or newer) answers
for every page. Differences, and plans without a panel, are printed; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isclose
from multiprocessing import Pool
from pathlib import Path
from random import Random
from typing import Any

import ledger
from ledger.report import live, live_script

SPECS = Path(ledger.__file__).resolve().parents[1] / "specs"
EXACT = 1e-12
RUN = ("micro_batch", "seq_len", "global_batch")
REFUSED = 0.1  # of the settings are those that the page refuses
BATCHES = (1, 2, 3, 4, 6, 8, 16, 48)  # micro-batches of a step
# Kinds of plans that the library's own do not have.
FURTHER: Mapping[str, tuple[str, Sequence[str]]] = {
    "8b, low-rank adapters": (
        "8b",
        ('train={"lora": {"rank": 16, "targets": ["q", "v"]}}', "precision=bf16-true", "recompute=none"),
    ),
    "405b, optimizer on the host": ("405b", ('parallelism.offload=["optimizer"]',)),
    "70b, activations on the host": ("70b", ('parallelism.offload=["activations"]', "recompute=none")),
    "8b, a window": ("8b", ("model=mistral-7b",)),
    "8b, every second a window": ("8b", ("model=gemma-2-9b", "kernels.attention=eager")),
}


@dataclass(frozen=True)
class Case:
    """A plan with a page, and the settings that are asked of it."""

    title: str
    spec: str
    overrides: Sequence[str]
    settings: Sequence[Mapping[str, Any]] = field(default=())


@dataclass(frozen=True)
class Drawn:
    """Settings of a page: those that it evaluates, `crossing` of them across structures, and those that it refuses.

    Of as many as `absent` among those that were tried it says that it does not hold them.
    """

    legal: Sequence[Mapping[str, Any]]
    refused: Sequence[Mapping[str, Any]]
    crossing: int
    absent: int


def cases(wanted: str) -> list[Case]:
    """Every plan of the library, and further kinds, whose titles hold a text."""
    named = [Case(path.stem, str(path), ()) for path in sorted(SPECS.glob("*.yaml"))]
    further = [Case(title, str(SPECS / f"{name}.yaml"), changes) for title, (name, changes) in FURTHER.items()]
    return [case for case in (*named, *further) if wanted in case.title]


def script(case: Case) -> str:
    """What the page computes with; empty where it has no panel."""
    page = live.page_of(ledger.compile(case.spec, case.overrides).plan)
    return live_script.calculator(page) if page else ""


def node(parts: Sequence[str]) -> list[Any]:
    """What Node answers to scripts that each end in a value, one process for all."""
    program = shutil.which("node")
    if not program:
        sys.exit("this runs the page's script: install Node.js 18 or newer (`apt-get install nodejs`)")
    wrapped = ",\n".join(f"(() => {{\n{part}\n}})()" for part in parts)
    text = f'"use strict";\nconsole.log(JSON.stringify([\n{wrapped}\n]));\n'
    done = subprocess.run([program, "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return list(json.loads(done.stdout))


def draw(
    rng: Random, own: Mapping[str, Any], stops: Mapping[str, Sequence[Any]], offers: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Some of the controls at another stop, and a batch that is mostly a whole number of micro-batches."""
    moved = [name for name in stops if rng.random() < 0.4]
    chosen = {**own, **{name: rng.choice(stops[name]) for name in moved if stops[name]}}
    if "price" in own and chosen["accelerator"]:
        chosen["price"] = offers[chosen["accelerator"]]["price"]
    if rng.random() < 0.9:
        chosen["global_batch"] = chosen["data"] * chosen["micro_batch"] * rng.choice(BATCHES) * chosen["pipeline"]
    return chosen


def crosses(own: Mapping[str, Any], chosen: Mapping[str, Any]) -> bool:
    """Whether an axis is split that was whole, or the other way round."""
    return any((own[key] == 1) != (value == 1) for key, value in chosen.items() if key in own and key not in RUN)


def drawn(pages: Mapping[str, str], number: int) -> dict[str, Drawn]:
    """Of each page as many legal settings as asked for, up to half of them across structures, and some refused ones."""
    asked = [f"{text}\nreturn [PLAN.own, PLAN.stops, PLAN.offers, MISSING];" for text in pages.values()]
    controls = dict(zip(pages, node(asked), strict=True))
    tried = {}
    for title, (own, stops, offers, _) in controls.items():
        rng = Random(title)  # noqa: S311 - a choice, no secret
        several = [draw(rng, own, stops, offers) for _ in range(30 * number)]
        tried[title] = list({json.dumps(chosen, sort_keys=True): chosen for chosen in several}.values())
    call = "return {}.map((chosen) => [...problems(chosen)].map(([message]) => message));"
    messages = node([f"{pages[title]}\n{call.format(json.dumps(tried[title]))}" for title in pages])
    chosen = {}
    for title, told in zip(pages, messages, strict=True):
        own, *_, missing = controls[title]
        pairs = list(zip(tried[title], told, strict=True))
        legal = [setting for setting, problems in pairs if not problems]
        refused = [setting for setting, problems in pairs if problems and missing not in problems]
        crossing = [setting for setting in legal if crosses(own, setting)][: number // 2]
        others = [setting for setting in legal if not crosses(own, setting)][: number - len(crossing)]
        absent = sum(missing in problems for _, problems in pairs)
        chosen[title] = Drawn((*crossing, *others), refused[: -int(-number * REFUSED // 1)], len(crossing), absent)
    return chosen


Answer = tuple[Mapping[str, Any], tuple[Sequence[str], Any]]  # a setting, its `--set`, and what the page has of it


def differing(case: Case, answer: Answer) -> list[str]:
    """What the page and the compiler say differently of one legal setting."""
    chosen, (changes, found) = answer
    try:
        compiled = ledger.compile(case.spec, [*case.overrides, *changes])
    except ledger.SpecError as error:
        return [f"{case.title}, {chosen}: the compiler refuses it: {error}"]
    totals = {key: (value, compiled.totals[key]) for key, value in found["totals"].items() if key in compiled.totals}
    totals["devices"] = found["totals"]["devices"], compiled.plan.cluster.devices
    wrong: dict[str, tuple[Any, Any]] = {key: pair for key, pair in totals.items() if not agrees(key, *pair)}
    worst = max(compiled.roles, key=lambda role: role.peak.total)
    said = {
        "moment": (found["moment"], worst.peak.title),
        "bottleneck": (found["bottleneck"], compiled.verdict.bottleneck),
        "fits": (found["fits"], compiled.verdict.fits),
    }
    wrong |= {key: pair for key, pair in said.items() if pair[0] != pair[1]}
    return [
        f"{case.title}, {chosen}: {key} is {page!r}, the compiler's {mine!r}" for key, (page, mine) in wrong.items()
    ]


def agrees(key: str, page: float, mine: Any) -> bool:
    """Whether a total of the page is the compiler's: bytes are equal, all else is to 1e-12."""
    return bool(page == mine) if key.startswith("memory.") else isclose(page, float(mine), rel_tol=EXACT)


def refusing(case: Case, answer: Answer) -> list[str]:
    """What the page and the compiler say differently of a setting that the page refuses."""
    chosen, (changes, found) = answer
    try:
        ledger.compile(case.spec, [*case.overrides, *changes])
    except ledger.SpecError as error:
        mine = {problem.message for problem in error.problems}
        page = {message for message, *_ in found}
        return [] if mine == page else [f"{case.title}, {chosen}: the page says {page}, the compiler {mine}"]
    return [f"{case.title}, {chosen}: the compiler allows what the page refuses: {found}"]


def compare(chosen: Sequence[Case], number: int, jobs: int) -> Iterator[str]:
    """Every difference, after a line for each page on the standard error."""
    pages = {case.title: text for case in chosen if (text := script(case))}
    for case in chosen:
        if case.title not in pages:
            yield f"{case.title}: no panel"
    settings = drawn(pages, -(-number // max(len(pages), 1)))
    calls = []
    for title, some in settings.items():
        sets = "settings(chosen).map(([path, text]) => `${path}=${text}`)"
        for several, call in ((some.legal, "evaluate"), (some.refused, "problems")):
            calls.append(f"{pages[title]}\nreturn {json.dumps(several)}.map((chosen) => [{sets}, {call}(chosen)]);")
    answers = iter(node(calls))
    with Pool(jobs) as pool:
        for case in (case for case in chosen if case.title in pages):
            own = settings[case.title]
            evaluated, refused = next(answers), next(answers)
            tasks = (
                pool.imap(partial(differing, case), zip(own.legal, evaluated, strict=True), 16),
                pool.imap(partial(refusing, case), zip(own.refused, refused, strict=True), 16),
            )
            for task in tasks:
                for texts in task:
                    yield from texts
            size = len(pages[case.title].encode()) / 1e6
            asked = f"{len(own.legal)} settings, {own.crossing} across structures, {len(own.refused)} refused"
            told = f"{own.absent} of those tried are not in the page"
            print(f"{case.title}: {asked}; {told}; {size:.2f} MB", file=sys.stderr, flush=True)


def main() -> int:
    """The command line; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=2000, help="legal ones, of all plans together")
    parser.add_argument("--plans", default="", help="plans whose titles hold this text")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile")
    args = parser.parse_args()
    count = 0
    for text in compare(cases(args.plans), args.settings, args.jobs):
        print(text, flush=True)
        count += 1
    print(f"{count} differences")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
