"""A mutant is a command with its files, made of a seed and a number alone; it can be kept as JSON and run again."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from tests.fuzz import commands, hostile, seeds
from tests.fuzz.mutations import document, mutate_bytes, mutate_table, mutate_text, mutate_tree, mutate_words, written
from tests.fuzz.seeds import Seed

# How often each kind is mutated; the later ones are words of a command line.
SHARE: dict[str, float] = {
    "plan": 26,
    "part": 10,
    "file": 8,
    "serve": 6,
    "lecture": 12,
    "evidence": 8,
    "record": 2,
    "runs": 5,
    "serving": 3,
    "config": 8,
    "megatron": 5,
    "torchtitan": 4,
    "set": 12,
    "words": 3,
    "sealed": 1,
    "repository": 0.5,
    "suite": 0.1,  # these two run PyTorch
    "bench": 0.05,
}


@dataclass(frozen=True)
class Mutant:
    """A command line (without the program) and the files beside it; `other` files are sound."""

    kind: str
    verb: str
    words: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def line(self) -> tuple[str, ...]:
        """What is typed behind the program's name."""
        return (self.verb, *self.words)

    def as_json(self) -> str:
        """The mutant as it is kept."""
        return (
            json.dumps({**asdict(self), "files": {name: _kept(data) for name, data in self.files.items()}}, indent=1)
            + "\n"
        )


def of_json(text: str) -> Mutant:
    """A mutant that was kept."""
    kept: dict[str, Any] = json.loads(text)
    files = {name: _given(data) for name, data in kept["files"].items()}
    return Mutant(kept["kind"], kept["verb"], tuple(kept["words"]), files)


def _kept(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _given(kept: str | dict[str, str]) -> bytes:
    return kept.encode("utf-8") if isinstance(kept, str) else base64.b64decode(kept["base64"])


def mutant(seed: int, number: int) -> Mutant:
    """The mutant of that number; the same on every machine."""
    random = _dice(seed, number)
    kind = _kind(random)
    other = {"other.yaml": seeds.seeds()["plan"][0].text.encode("utf-8")}
    if kind == "words":
        verb, words = commands.words_alone(random)
        return Mutant(kind, verb, words, other)
    if kind == "set":
        return _overridden(random, other)
    if kind == "sealed":
        return Mutant(kind, "reproduce", ("sealed.json",), {"sealed.json": mutate_bytes(seeds.sealed(), random)})
    if kind == "repository":  # of two commits: a sound plan, and the mutant in its place
        given = random.choice(seeds.seeds()["plan"][:5])
        files = {"base/plan.yaml": given.text.encode("utf-8"), "plan.yaml": changed(given, random)}
        return Mutant(kind, "ci", commands.of_change(random), files)
    if kind == "bench":
        files = {"bench.yaml": changed(seeds.measured(), random)}
        return Mutant(kind, "bench", (*seeds.MEASURED, "--out", "bench.yaml"), files)
    given = random.choice(seeds.seeds()[kind])
    rows = commands.VERBS[kind]
    verb, _, typed = random.choices(rows, weights=[weight for _, weight, _ in rows])[0]
    words = typed(random, given.name)
    beside = other if "other.yaml" in words or kind == "suite" else {}
    return Mutant(kind, verb, words, {given.name: changed(given, random), **beside})


def kind_of(seed: int, number: int) -> str:
    """Its kind alone, without making it."""
    return _kind(_dice(seed, number))


def _dice(seed: int, number: int) -> Random:
    return Random(f"{seed}/{number}")  # noqa: S311 - not for secrets


def _kind(random: Random) -> str:
    return random.choices(list(SHARE), weights=list(SHARE.values()))[0]


def _overridden(random: Random, other: dict[str, bytes]) -> Mutant:
    """A sound plan with one to three overrides."""
    settings = [commands.setting(random) for _ in range(random.choice((1, 1, 2, 3)))]
    rows = [row for row in commands.VERBS["plan"] if row[0] in {"check", "show", "explain", "solve"}]
    verb, _, typed = random.choices(rows, weights=[weight for _, weight, _ in rows])[0]
    file = {"plan.yaml": random.choice(seeds.seeds()["plan"][:5]).text.encode("utf-8")}
    overrides = [word for setting in settings for word in ("--set", setting)]
    return Mutant("set", verb, (*typed(random, "plan.yaml"), *overrides), file | other)


def changed(seed: Seed, random: Random) -> bytes:
    """A sound input after one to three changes, of its structure most of the time."""
    times = random.choice((1, 1, 2, 3))
    roll = random.random()
    if roll < 0.05:
        return mutate_bytes(seed.text.encode("utf-8"), random)
    if roll < 0.15:
        return _encoded(_repeated(mutate_text, seed.text, times, random))
    if seed.form in {"words", "toml"} or (roll < 0.25 and seed.kind == "evidence"):
        return _encoded(_repeated(mutate_words, seed.text, times, random))
    if seed.form == "table":
        return _encoded(_repeated(mutate_table, seed.text, times, random))
    tree, pool = seed.tree, seeds.pool(seed.kind)
    for _ in range(times):
        tree = mutate_tree(tree, random, pool) if isinstance(tree, dict | list) else hostile.value(random)
    return _encoded(document(tree) if seed.form == "tree" else written(tree))


def _repeated(change: Any, text: str, times: int, random: Random) -> str:
    for _ in range(times):
        text = change(text, random)
    return text


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")
