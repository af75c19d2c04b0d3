"""The settings of a torchtitan job file by dotted key, each with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import LONGEST_INTEGER

# Sections in which torchtitan has had the degrees of its mesh, the latest first.
MESH = ("parallelism", "experimental", "training")
LARGEST = 10**15
DEEPEST = 100  # dots of a key
NO_KEY = re.compile(r"[^\w.\-\s\"']+")
DIGITS = re.compile(rf"[0-9_]{{{LONGEST_INTEGER + 1},}}")


@dataclass(frozen=True)
class TorchtitanJob:
    """What a file sets, by dotted key (`training.seq_len`)."""

    settings: Mapping[str, Any]
    text: str
    file: str

    def place(self, key: str) -> Location:
        """The line that sets a key; the file where none does."""
        section, last = "", key.rpartition(".")[2]
        for number, line in enumerate(self.text.splitlines(), 1):
            stripped = line.strip()
            if stripped.startswith("["):
                section = stripped.partition("]")[0].strip("[ ")
            name = stripped.partition("=")[0].strip().strip("\"'")
            if "=" in stripped and key in (f"{section}.{name}", name):
                return Location(self.file, number, line.index(last) + 1 if last in line else 1)
        return Location(self.file)

    def whole(self, key: str, default: int, least: int = 1) -> int:
        """A whole number; raises SpecError for anything else."""
        value = self.settings.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            message = f"`{key}` is {value!r}"
            raise SpecError([Problem(self.place(key), message, f"a whole number of at least {least} is due")])
        return value

    def word(self, key: str, default: str = "") -> str:
        """A text; a number is its digits."""
        return str(self.settings.get(key, default))

    def flag(self, key: str) -> bool:
        """Whether something is switched on."""
        return bool(self.settings.get(key, False))

    def mesh(self, name: str) -> str:
        """The dotted key under which this job states something of its mesh; that of today where it does not."""
        return next(
            (f"{section}.{name}" for section in MESH if f"{section}.{name}" in self.settings), f"{MESH[0]}.{name}"
        )

    def choice(self, key: str, known: Mapping[str, str], default: str, given: str = "") -> str:
        """What a word of torchtitan's is in a plan; raises SpecError for one that is not understood."""
        word = given or self.word(key, default)
        if word in known:
            return known[word]
        raise SpecError([Problem(self.place(key), f"`{key}` is `{word}`", f"understood is {', '.join(known)}")])


def read_job(text: str, file: str) -> TorchtitanJob:
    """The job that a text describes; raises SpecError."""
    if digits := DIGITS.search(text):
        before = text[: digits.start()]
        where = Location(file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise SpecError([Problem(where, "a number beyond reason", "no size of a training run is that large")])
    for number, line in enumerate(text.splitlines(), 1):
        if any(part.count(".") > DEEPEST for part in NO_KEY.split(line)):
            raise SpecError([Problem(Location(file, number), "a key of more parts than any setting", "name a section")])
    try:
        job = TorchtitanJob(dict(_flat(tomllib.loads(text), "")), text, file)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError([Problem(Location(file), f"not valid TOML: {error}", "a torchtitan job file")]) from error
    for key, value in job.settings.items():
        if isinstance(value, float) and not isfinite(value):
            raise SpecError([Problem(job.place(key), f"`{key}` is {value}, no number", "a number, or text in quotes")])
    return job


def _flat(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        inner = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from _flat(value, inner)
        else:
            yield inner, value
