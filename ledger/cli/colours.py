"""Colours on a terminal; none in pipes, and none where NO_COLOR is set (https://no-color.org)."""

from __future__ import annotations

import os
import sys

import click

GOOD, CAREFUL, BAD = "green", "yellow", "red"


def coloured(text: str, colour: str) -> str:
    """The text in a colour where standard output shows colours, else as it is."""
    return click.style(text, fg=colour) if shows_colours() else text


def shows_colours() -> bool:
    """Whether standard output is a terminal whose user did not ask for none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
