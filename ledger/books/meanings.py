"""The meaning of a total of a plan, and what the inputs that it names are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ledger.books.catalogue import MEANINGS, Meaning
from ledger.books.results import Compiled
from ledger.books.serving.catalogue import SERVED
from ledger.model import dtypes
from ledger.spec.paths import plan_path
from ledger.spec.plan import Plan

IMPLIED = {"parallelism.expert_data": "parallelism.expert"}  # an axis whose degree follows from another's
# Where none is stated, what follows.
FOLLOWING = {
    "parallelism.schedule": "parallelism.scheduled",
    "cluster.host.bandwidth": "host.bandwidth",
    "cluster.host.memory": "host.memory",
    "cluster.host.nvme": "host.nvme",
    "cluster.host.nvme.capacity": "host.nvme.capacity",
}


def meanings(plan: Plan, key: str) -> list[Meaning]:
    """The rows of a key, its parts filled in."""
    return [
        _filled(row, found.groupdict(), plan)
        for row in (SERVED if plan.serve else MEANINGS)
        if row.bare in {None, plan.model.bare} and (found := _pattern(row.key).fullmatch(key))
    ]


def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<(\w+)>", r"(?P<\1>[^.]+)", key.replace(".", r"\.")))


def _filled(row: Meaning, parts: Mapping[str, str], plan: Plan) -> Meaning:
    names = {**parts, "rate": dtypes.rate(plan.precision.multiplies)}

    def filled(text: str) -> str:
        return re.sub(r"<(\w+)>", lambda match: names[match[1]], text)

    inputs = tuple(IMPLIED.get(name, name) for name in map(filled, row.inputs))
    return Meaning(filled(row.key), filled(row.formula), row.basis, inputs, row.exact, row.bare)


def known(compiled: Compiled, name: str) -> Any:
    """The total or the plan's value that an input names, None of a part that is not stated; KeyError for no input."""
    if name in compiled.totals:
        return compiled.totals[name]
    found: Any = compiled.plan
    for part in FOLLOWING.get(name, plan_path(name)).split("."):
        if found is None:
            return None
        found = found[part] if isinstance(found, Mapping) else _field(found, part)
    return found


def _field(found: Any, name: str) -> Any:
    """A field, or what follows from some; KeyError where there is none."""
    if not hasattr(found, name):
        raise KeyError(name)
    return getattr(found, name)
