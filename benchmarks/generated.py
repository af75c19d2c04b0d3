"""Plans that nobody wrote: legal combinations of what a plan may hold, grown choice by choice from a seed.

A plan starts with one choice, so that each is met where little else stands in its way; then choices of other themes are
tried in random order, layouts first, and each stays if the rules allow it beside those before it. Some of what they
refuse is kept too, with the text of the problems.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from choices import FIRSTS, LAYOUTS, THEMES, Choice, library

import ledger
from ledger.spec.load import load_plan

BASES = 12  # starts that are tried for a first choice
REFUSALS = 3  # kept of each plan


@dataclass(frozen=True)
class Grown:
    """A document, the settings on top of it, and settings that were refused there."""

    name: str
    document: Mapping[str, Any]
    settings: Choice
    refused: Sequence[Choice] = field(default=())

    @property
    def text(self) -> str:
        """The document as a spec of several lines, which JSON is too."""
        return json.dumps(self.document, indent=1)


def texts(settings: Choice) -> list[str]:
    """Settings as `--set` takes them."""
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]


def is_legal(text: str, settings: Choice) -> bool:
    """Whether the rules on specs allow the plan."""
    try:
        load_plan(text, texts(settings))
    except ledger.SpecError:
        return False
    return True


DEPTHS: Sequence[Choice] = (
    {"model.layers.0.repeat": 4, "model.layers.1.repeat": 12},
    {"model.layers.0.repeat": 8, "model.layers.1.repeat": 8},
    {"model.layers.0.repeat": 16},
    {},
)


def bases(rng: Random) -> Iterator[tuple[dict[str, Any], Choice]]:
    """Starts without end: a model of the library, some of them cut to 16 layers, on a few devices."""
    while True:
        devices = rng.choice((8, 16, 32, 64, 96))
        document = {
            "spec": "ledger/1",
            "plan": "A plan that nobody wrote",
            "accelerator": "h100-sxm",
            "cluster": {"base": "h100-400g", "devices": devices},
            "model": rng.choice(library("models")),
            "precision": rng.choice(("bf16-mixed", "bf16-mixed", "bf16-autocast", "bf16-pure")),
            "optimizer": "adamw",
            "parallelism": {},
            "stack": rng.choice(("pytorch-fsdp2-2025", "megatron-te-2024", "pytorch-fsdp2-compile-2025")),
            "run": {"tokens": "1B tokens", "seq_len": 2048, "micro_batch": 1, "global_batch": 768},
        }
        depths = DEPTHS if rng.random() < 0.8 else DEPTHS[-1:]
        text = json.dumps(document, indent=1)
        legal = [depth for depth in depths if is_legal(text, depth)]
        if legal:
            yield document, legal[0]


def grow(number: int) -> Grown:
    """The plan of this number: its first choice, and about a dozen of other themes that agree with it."""
    rng = Random(f"ledger {number}")  # noqa: S311 - a choice, no secret
    first = FIRSTS[number % len(FIRSTS)]
    refused: list[Choice] = []
    settings: dict[str, Any] = {}
    document: dict[str, Any] = {}
    for (document, depth), _ in zip(bases(rng), range(BASES), strict=False):
        settings = {**depth, **first}
        if is_legal(json.dumps(document, indent=1), settings):
            break
        refused = [settings]  # of the last base alone
    text = json.dumps(document, indent=1)
    if not is_legal(text, settings):
        return Grown(f"generated {number}", document, {}, refused)
    themes = [theme for theme, choices in THEMES.items() if first not in choices]
    layouts = [theme for theme in themes if theme in LAYOUTS]
    others = [theme for theme in themes if theme not in LAYOUTS]
    for theme in (*rng.sample(layouts, rng.randint(1, 4)), *rng.sample(others, rng.randint(4, 16))):
        tried = {**settings, **rng.choice(THEMES[theme])}
        if is_legal(text, tried):
            settings = tried
        else:
            refused.append(tried)
    return Grown(f"generated {number}", document, settings, refused[-REFUSALS:])
