"""Standard output that takes every character, and loses none in silence."""

from __future__ import annotations

import os
import sys
from io import BufferedWriter, RawIOBase, TextIOWrapper
from typing import TextIO


def prepare_output() -> None:
    """What an encoding has no character for is printed as its number, and what cannot be written is an error.

    UTF-8 has none for bytes of file names and arguments that are not UTF-8 themselves.
    Without a buffer (PYTHONUNBUFFERED), Python drops what a full disk does not take, and says nothing.
    """
    stream = sys.stdout
    if not isinstance(stream, TextIOWrapper):
        return
    stream.reconfigure(errors="backslashreplace")
    if isinstance(stream.buffer, RawIOBase):
        encoding, errors = stream.encoding, stream.errors
        sys.stdout = TextIOWrapper(BufferedWriter(stream.detach()), encoding, errors, line_buffering=True)


def drop(stream: TextIO) -> None:
    """What is still buffered goes nowhere, where it would raise again when Python closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
