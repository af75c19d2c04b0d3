"""Answers of a process, each a line of JSON."""

from __future__ import annotations

import json
import selectors
import time
from typing import IO, Any


def read_answer(stream: IO[bytes], seconds: float) -> dict[str, Any] | None:
    """The next answer, whatever else is printed between; None where none comes in time, or no more."""
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0 and selector.select(left):
            line = stream.readline()
            if not line.endswith(b"\n"):
                return None
            if line.startswith(b"{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
    return None
