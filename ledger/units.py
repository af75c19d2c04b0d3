"""The unit of each key of `totals`: SI base units, but for days and shares."""

from __future__ import annotations

KEY_UNITS = (  # first match wins: how a key of `totals` begins or ends, and its unit
    ("napkin.days", "day"),
    ("napkin.flops", "FLOP"),
    ("napkin.time", "s"),
    ("flops.", "FLOP"),
    ("serve.cache.", "B"),
    ("serve.weights_read", "B"),
    ("serve.ttft", "s"),
    ("serve.time_per_token", "s"),
    ("serve.residence", "s"),
    ("serve.waiting", "s"),
    ("serve.queue", "s"),
    ("serve.tokens_per_second", "token/s"),
    ("serve.requests_per_second", "requests/s"),
    ("serve.unanswered", "%"),
    ("memory.", "B"),
    ("saved.", "B"),
    ("traffic.", "B"),
    ("kv_cache", "B"),
    ("host_link.", "B"),
    ("time.", "s"),
    ("prefill.time", "s"),
    ("decode.time", "s"),
    ("tokens_per_second", "token/s"),
    ("images_per_second", "images/s"),
    ("mfu", "%"),
    ("hfu", "%"),
    ("goodput", "%"),
    ("pace.", "%"),
    ("checkpoint.bytes", "B"),
    ("checkpoint.host", "B"),
    ("checkpoint.", "s"),
    ("cost.", "USD"),
    ("energy.", "J"),
    ("carbon.", "kg"),
)

# Totals of which more is better: rates and shares of work that is done, and what a plan could still take.
MORE_IN = ("token/s", "images/s", "requests/s", "%")
LESS = ("serve.unanswered",)  # a share of what is not done
MORE = ("napkin.max_parameters", "memory.capacity", "serve.concurrency.max")


def unit_of(key: str) -> str:
    """The unit of a key of `totals`; a plain count where no rule names another."""
    if key.startswith("comm."):
        return "B" if key.endswith(".bytes") else "1"
    return next((unit for start, unit in KEY_UNITS if key.startswith(start)), "1")


def spelt(key: str) -> str:
    """The unit of a key of `totals` as specs write it: what counts parameters says so."""
    if key.startswith(("parameters", "napkin.max_parameters")):
        return "parameters"
    unit = unit_of(key)
    return "tokens/s" if unit == "token/s" else unit


def is_more_better(key: str) -> bool:
    """Whether more of a total is better than less: of rates and of shares, by its unit."""
    return key in MORE or (unit_of(key) in MORE_IN and key not in LESS)
