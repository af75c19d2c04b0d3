"""How far a search of a plan's layouts goes: over which of them, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.search.choices import VALUES
from ledger.search.space import space_of

if TYPE_CHECKING:
    from ledger.spec.plan import Plan

QUICK = 30.0  # seconds of a search that goes by what it has
OF_A_REPORT = 12.0  # seconds of a report's search, after which it goes by what it has
WHOLE = 5e9  # combinations of values up to which a report searches all of them: a minute or two on two cores
# Keys that a quick search leaves as the plan has them: most layouts differ in these alone.
KEPT = (
    "parallelism.context",
    "parallelism.context_exchange",
    "parallelism.interleave",
    "parallelism.schedule",
    "parallelism.offload",
)


@dataclass(frozen=True)
class Extent:
    """How far a search goes: to all layouts (`whole`), or those that keep the keys of KEPT; `seconds` (0: to its end).

    `thorough`: the cheapest is looked for on fewer devices too, and layouts of the whole front are compiled.
    """

    whole: bool = True
    seconds: float = 0.0
    thorough: bool = False


EVERYTHING = Extent(thorough=True)


def extent_of_report(plan: Plan) -> Extent:
    """How far a report looks: at all layouts of a space that is not too large, for some seconds."""
    from ledger.search.structures import prices_in_bulk  # loads arrays, which a search of a second does without

    whole = plan.serve is not None or (prices_in_bulk(plan) and space_of(plan).combinations <= WHOLE)
    return Extent(whole, seconds=OF_A_REPORT, thorough=True)


def is_whole(plan: Plan, extent: Extent) -> bool:
    """Whether all layouts of a plan are looked at: those of a service are few."""
    return extent.whole or plan.serve is not None


def kept_values(plan: Plan) -> Mapping[str, tuple[Any, ...]]:
    """The values of the keys of KEPT: the plan's own, and those that a layout without them, or a pipeline, needs."""
    mesh = plan.parallelism
    several = mesh.interleave > 1
    own = [mesh.schedule] if mesh.schedule else []
    offloads = VALUES["parallelism.offload"](plan)
    return {
        "parallelism.context": (mesh.context,),
        "parallelism.context_exchange": (mesh.context_exchange if mesh.context > 1 else None,),
        "parallelism.interleave": tuple(sorted({1, mesh.interleave})),
        "parallelism.schedule": tuple(dict.fromkeys((None, "1f1b", *(["interleaved"] if several else []), *own))),
        "parallelism.offload": tuple(one for one in offloads if one != ["activations"] or mesh.offload),
    }
