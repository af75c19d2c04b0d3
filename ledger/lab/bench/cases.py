"""The records of a measurement: a device, its limits, cases and their results. Knows no torch."""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

Result = Mapping[str, Any]


@dataclass(frozen=True)
class DeviceLimits:
    """What decides which cases there are: the type of device, its memory and last cache in bytes, how many there are.

    `dtypes` are those it multiplies in, `quick` a suite for a first look.
    """

    type: str  # cpu | cuda
    memory: int
    cache: int
    devices: int
    dtypes: tuple[str, ...]
    quick: bool = False


@dataclass(frozen=True)
class MeasuredDevice:
    """A device: its name as a spec, its title, what the head of an evidence file says of it, and its limits."""

    name: str
    title: str
    place: str  # as torch names it
    origin: Mapping[str, Any]  # versions, and how it is measured
    hardware: Mapping[str, Any]
    limits: DeviceLimits
    uuid: str = ""  # as the driver names a GPU


@dataclass(frozen=True)
class BenchCase:
    """One measurement: the kind that makes it, the kernel class, and sizes and choices that tell it from its like."""

    kind: str
    what: str
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def record(self) -> dict[str, Any]:
        """The record of this case before anything is measured."""
        return {"what": self.what, **self.keys}

    def sizes(self, *names: str) -> tuple[int, ...]:
        """The whole numbers under these keys."""
        return tuple(int(self.keys[name]) for name in names)


@dataclass(frozen=True)
class BenchResult:
    """A case with what was measured, or with the `error` that it could not run."""

    case: BenchCase
    result: Result

    @property
    def failed(self) -> bool:
        """Whether it could not run."""
        return "error" in self.result


# --- answers of a process, each a line of JSON ---


def read_answer(stream: IO[bytes], seconds: float) -> dict[str, Any] | None:
    """The next answer, whatever else is printed between; None where none comes in time, or no more."""
    until, line = time.monotonic() + seconds, b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while (seconds_left := until - time.monotonic()) > 0 and selector.select(seconds_left):
            read = os.read(stream.fileno(), 1)  # what comes after the answer is the next reader's
            if not read:
                return None
            line += read
            if read == b"\n":
                if line.startswith(b"{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
                line = b""
    return None
