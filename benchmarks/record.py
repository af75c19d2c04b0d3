"""All that the compiler says of many plans, in one file, and whether another tree says the same.

A line of the file is a plan: those of the library, the lecture, and plans that nobody wrote (generated.py). It holds
totals, accounts with their formulas, kernels, moments, roles, waterfall, verdict, warnings; of plans that the rules
refuse, the problems. `--score` adds published runs as `ledger score` predicts them, and fits as `ledger calibrate`
makes them. The file is gzipped JSON lines.

    python benchmarks/record.py write OUT.jsonl.gz            # what this tree says (10 minutes on one core)
    python benchmarks/record.py check BEFORE.jsonl.gz         # this tree at the same plans; differences, exit code 1
    python benchmarks/record.py check BEFORE.jsonl.gz --every 20      # a sample, in half a minute
    python benchmarks/record.py check BEFORE.jsonl.gz --only specs/   # plans whose names hold a text
    python benchmarks/record.py check BEFORE.jsonl.gz --but digest    # but differences that are meant, by their keys
    python benchmarks/record.py compare BEFORE.jsonl.gz AFTER.jsonl.gz

It asks the `ledger` that is imported, so that one script serves several trees. The record of another revision:

    git worktree add --detach ../before REVISION
    PYTHONPATH=../before python benchmarks/record.py write /tmp/record-before.jsonl.gz --score
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from choices import FIRSTS, ROOT
from differences import differences, exact
from generated import grow, texts

import ledger

LEGAL = 300  # generated plans that a record has at least
MOST = 40  # differences that are printed of one plan
KERNEL = (
    *("times", "per", "flops", "bytes", "payload", "seconds", "roofline"),
    *("bound", "error", "calibrated", "compute", "exposed"),
)
Figures = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One plan of a record: how to ask for it again, and what was said."""

    name: str
    ask: str  # plan | lecture | score | calibration
    spec: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)


# --- what the compiler says of a plan ----------------------------------------------------------------


def figures(spec: str, settings: Mapping[str, Any]) -> Figures:
    """Everything about a plan, or the problems with it."""
    try:
        compiled = ledger.compile(spec, texts(settings))
    except ledger.SpecError as error:
        return {"problems": [f"{problem}; {problem.help}" for problem in error.problems]}
    except Exception as error:  # noqa: BLE001 - a fault of the compiler is a result like any other, and is compared
        return {"fault": f"{type(error).__name__}: {error}"}
    found = {
        "digest": compiled.plan.digest,
        "warnings": [f"{problem}; {problem.help}" for problem in compiled.plan.warnings],
        "totals": dict(compiled.totals),
        "verdict": asdict(compiled.verdict),
        "waterfall": {span.name: {"title": span.title, "seconds": span.seconds} for span in compiled.waterfall},
        "symbols": {
            name: {"meaning": symbol.meaning, "value": symbol.value, "path": symbol.path}
            for name, symbol in compiled.symbols.items()
        },
        "accounts": accounts(compiled.accounts),
        "roles": {role.name: role_figures(role) for role in compiled.roles},
    }
    return {key: exact(value) for key, value in found.items()}


def accounts(leaves: Iterable[Any]) -> Figures:
    """Leaves of the ledger by name, role, resource and time."""
    keys = _unique(f"{leaf.account} | {leaf.role} | {leaf.resource} | {leaf.when}" for leaf in leaves)
    parts = ("amount", "times", "unit", "formula", "basis")
    return {key: {part: getattr(leaf, part) for part in parts} for key, leaf in zip(keys, leaves, strict=True)}


def role_figures(role: Any) -> Figures:
    """One kind of device: what it holds at each moment, and what its kernels take."""
    names = _unique(f"{kernel.account} | {kernel.when}" for kernel in role.kernels)
    kernels = zip(names, role.kernels, strict=True)
    return {
        "stages": role.stages,
        "devices": role.devices,
        "peak": role.peak.name,
        "reserved": role.reserved,
        "outside": {part.name: {"bytes": part.bytes, "basis": part.basis} for part in role.outside},
        "moments": {
            moment.name: {"title": moment.title, "parts": moment.parts, "details": moment.details}
            for moment in role.moments
        },
        "kernels": {
            name: {"kind": str(kernel.kind), **{part: getattr(kernel, part) for part in KERNEL}}
            for name, kernel in kernels
        },
    }


def _unique(names: Iterable[str]) -> Iterator[str]:
    """Names, of which those that came before get a number."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}"


# --- what its other verbs say --------------------------------------------------------------------


def output(*words: str) -> Any:
    """The JSON that the command line prints."""
    run = subprocess.run([sys.executable, "-m", "ledger", *words], check=True, stdout=subprocess.PIPE, cwd=ROOT)
    return json.loads(run.stdout)


def lecture_figures(spec: str, _: Mapping[str, Any]) -> Figures:
    """Every figure of a lecture's answers."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("report", spec, "--format", "json", "--out", folder)
        subprocess.run([sys.executable, "-m", "ledger", *words], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        (path,) = Path(folder).glob("*.json")
        return {entry.pop("id"): entry for entry in json.loads(path.read_text(encoding="utf-8"))["questions"]}


def score_figures(spec: str, _: Mapping[str, Any]) -> Figures:
    """Every tenth published run as it is predicted."""
    header, *rows = (ROOT / spec).read_text(encoding="utf-8").splitlines()
    with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8") as table:
        table.write("\n".join([header, *rows[::10], ""]))
        table.flush()
        return {row.pop("id"): row for row in output("score", table.name, "--json")["rows"]}


def calibration_figures(spec: str, _: Mapping[str, Any]) -> Figures:
    """What `ledger calibrate` fits to the measurements of the library."""
    paths = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(spec))
    return dict(exact(output("calibrate", "--json", *paths)))


ASK: Mapping[str, Callable[[str, Mapping[str, Any]], Figures]] = {
    "plan": figures,
    "lecture": lecture_figures,
    "score": score_figures,
    "calibration": calibration_figures,
}


def asked(line: Line) -> Line:
    """The same plan with what this tree says of it."""
    return Line(line.name, line.ask, line.spec, line.settings, ASK[line.ask](line.spec, line.settings))


# --- which plans ---------------------------------------------------------------------------------


def library_lines(*, score: bool) -> Iterator[Line]:
    """The plans of the library and the lecture; with `score`, its measurements."""
    for path in (*sorted((ROOT / "specs").glob("*.yaml")), *sorted((ROOT / "specs/lecture/plans").glob("*.yaml"))):
        name = str(path.relative_to(ROOT))
        yield Line(name, "plan", name)
    yield Line("lecture", "lecture", "specs/lecture/lecture.yaml")
    if score:
        yield Line("score", "score", "specs/evidence/published-runs.csv")
        yield Line("calibration", "calibration", "specs/evidence/*.yaml")


def generated_lines(number: int) -> list[Line]:
    """A generated plan, and what was refused of it."""
    grown = grow(number)
    lines = [Line(grown.name, "plan", grown.text, grown.settings)] if grown.settings else []
    lines += [Line(f"{grown.name}, refused {n}", "plan", grown.text, one) for n, one in enumerate(grown.refused)]
    return [asked(line) for line in lines]


# --- the verbs -----------------------------------------------------------------------------------


def write(out: Path, plans: int, jobs: int, *, score: bool) -> int:
    """Writes a record; 1 where too few of the generated plans are legal."""
    legal, count = 0, 0
    with gzip.open(out, "wt", encoding="utf-8") as file, Pool(jobs) as pool:
        library = pool.imap(
            asked, library_lines(score=score)
        )  # before the generated ones: workers take what came first
        for some in ([line] for line in library), pool.imap(generated_lines, range(plans)):
            for line in (line for lines in some for line in lines):
                file.write(json.dumps(asdict(line), ensure_ascii=False) + "\n")
                legal += line.name.startswith("generated") and "totals" in line.figures
                count += 1
                if not count % 100:
                    print(f"{count} lines, {legal} generated plans", file=sys.stderr, flush=True)
    print(f"{out}: {count} lines, {legal} generated plans that are legal")
    return int(legal < LEGAL)


def read(path: Path) -> Iterator[Line]:
    """Of a record, what was asked of each plan and what was said."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for text in file:
            yield Line(**json.loads(text))


def check(before: Path, jobs: int, wanted: Callable[[int, Line], bool], but: tuple[str, ...]) -> int:
    """Asks this tree for the plans of a record, prints what differs; 1 where something does."""
    lines = [line for number, line in enumerate(read(before)) if wanted(number, line)]
    with Pool(jobs) as pool:
        return tell(zip(lines, pool.imap(asked, lines), strict=True), but)


def compare(before: Path, after: Path, but: tuple[str, ...]) -> int:
    """Prints what differs between two records; 1 where something does."""
    new = {line.name: line for line in read(after)}
    old = {line.name: line for line in read(before)}
    missing = [f"{name}: only in {path}" for name, path in _alone(old, new, before, after)]
    print("\n".join(missing), end="\n" if missing else "")
    return max(int(bool(missing)), tell(((line, new[name]) for name, line in old.items() if name in new), but))


def _alone(old: Iterable[str], new: Iterable[str], before: Path, after: Path) -> Iterator[tuple[str, Path]]:
    first, second = set(old), set(new)
    yield from ((name, before) for name in sorted(first - second))
    yield from ((name, after) for name in sorted(second - first))


def tell(pairs: Iterable[tuple[Line, Line]], but: tuple[str, ...] = ()) -> int:
    """Prints every difference with its plan and key, but those that are meant, then a summary; 1 where there is one."""
    plans, values, changed, total = 0, 0, 0, 0
    for before, after in pairs:
        plans += 1
        values += sum(len(part) if isinstance(part, dict) else 1 for part in before.figures.values())
        every = differences(before.figures, json.loads(json.dumps(after.figures)))
        found = [text for text in every if not text.startswith(but)]
        for text in found[:MOST]:
            print(f"{before.name}: {text}", flush=True)
        if len(found) > MOST:
            print(f"{before.name}: and {len(found) - MOST} more", flush=True)
        changed, total = changed + bool(found), total + len(found)
    print(f"{plans} plans, {values} records: {total} differences in {changed} plans")
    return int(total > 0)


def wanted(args: argparse.Namespace, number: int, line: Line) -> bool:
    """Whether a line is in the sample that was asked for."""
    kinds = ("plan", "lecture", "score", "calibration") if args.score else ("plan", "lecture")
    return line.ask in kinds and number % args.every == 0 and args.only in line.name


def main() -> int:
    """Writes a record, or compares two or one with this tree; the exit status is 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    writer = verbs.add_parser("write", help="record what this tree says")
    writer.add_argument("out", type=Path)
    writer.add_argument("--plans", type=int, default=len(FIRSTS), help="generated plans that are tried")
    checker = verbs.add_parser("check", help="hold this tree against a record")
    checker.add_argument("before", type=Path)
    checker.add_argument("--every", type=int, default=1, help="every n-th line alone")
    checker.add_argument("--only", default="", help="plans whose names hold this text")
    for verb in (writer, checker):
        verb.add_argument("--score", action="store_true", help="also published runs and fits")
        verb.add_argument("--jobs", type=int, default=1, help="processes")
    comparer = verbs.add_parser("compare", help="hold two records against each other")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    for verb in (checker, comparer):
        verb.add_argument("--but", action="append", default=[], help="differences that are meant: how keys begin")
    args = parser.parse_args()
    if args.verb == "compare":
        return compare(args.before, args.after, tuple(args.but))
    place = args.out.resolve() if args.verb == "write" else args.before.resolve()
    os.chdir(ROOT)  # plans of the library are named from here
    if args.verb == "write":
        return write(place, args.plans, args.jobs, score=args.score)
    return check(place, args.jobs, partial(wanted, args), tuple(args.but))


if __name__ == "__main__":
    sys.exit(main())
