"""Answers of a process, each a line of JSON."""

from __future__ import annotations

import json
import os
import selectors
import time
from typing import IO, Any


def read_answer(stream: IO[bytes], seconds: float) -> dict[str, Any] | None:
    """The next answer, whatever else is printed between; None where none comes in time, or no more."""
    until, line = time.monotonic() + seconds, b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0 and selector.select(left):
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
