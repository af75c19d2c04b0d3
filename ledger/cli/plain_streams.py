"""Standard output and error on which a text can do nothing but be read: no terminal obeys it, and no service."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

# Sequences of ECMA-48 (control, and commands to the terminal with a text, as its title), whole.
SEQUENCE = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?)")
OURS = re.compile("\x1b\\[(?:0|1|3[123])m")  # bold and the three colours, and their end, as click writes them
# Control characters but line breaks and tabs, and characters that turn the direction of reading.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")
# What a runner of GitHub or Azure takes for a command to it: `::error::` where a line begins, `##[error]` anywhere.
LINE_COMMAND = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
COMMAND = re.compile(r"##(?=[a-z]*\[)")


class PlainStream:
    """A stream that removes control sequences from a text; on a terminal this program's own colours stay."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream
        self.begins = True  # whether nothing but blanks stands in the line that is being written

    def __getattr__(self, name: str) -> Any:
        """All else is the stream's."""
        return getattr(self.unguarded, name)

    def write(self, text: str) -> int:
        """Writes what can be read of a text."""
        self.unguarded.write(self._plain(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes what can be read of each."""
        for line in lines:
            self.write(line)

    def _plain(self, text: str) -> str:
        colours = self.unguarded.isatty()
        readable = SEQUENCE.sub(lambda match: match[0] if colours and OURS.fullmatch(match[0]) else "", text)
        controls_kept = {"\x1b", "\r"} if colours else set()
        readable = CONTROL.sub(lambda match: match[0] if match[0] in controls_kept else "", readable)
        readable = COMMAND.sub("## ", readable)
        end = 0 if self.begins else readable.find("\n") + 1 or len(readable)  # of the line that has begun
        readable = readable[:end] + LINE_COMMAND.sub(r"\1: ", readable[end:])
        if readable:
            _, ended, last = readable.rpartition("\n")
            self.begins = (bool(ended) or self.begins) and not last.strip()
        return readable


def guard_output() -> None:
    """From now on both streams are plain."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, PlainStream):
            setattr(sys, name, PlainStream(stream))


def unguarded(stream: TextIO) -> TextIO:
    """The stream itself, for what a terminal or a service is to obey: progress bars, and commands that are our own."""
    return stream.unguarded if isinstance(stream, PlainStream) else stream
