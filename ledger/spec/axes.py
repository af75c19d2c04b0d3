"""The axes of the mesh: a row for each degree of a plan's parallelism, which all that goes by axis reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """An axis over which devices share work: the `letter` of its degree, which a field of `Parallelism` states.

    `exposed` names what it sends and nothing hides. `cuts`: the dims that it splits where they are computed with.
    `alike`: all its devices see the same tokens. `within`: it subdivides data x context, and multiplies to no further
    devices.
    """

    letter: str
    meaning: str
    exposed: str
    cuts: tuple[str, ...] = ()
    alike: bool = False
    within: bool = False


AXES: Mapping[str, Axis] = {
    "data": Axis("dp", "data-parallel degree", "weight and gradient transfers not hidden"),
    "tensor": Axis(
        "tp",
        "tensor-parallel degree",
        "tensor-parallel transfers not hidden",
        cuts=("heads", "kv_heads", "qkv_heads", "d_ff", "shared_d_ff", "vocab"),
        alike=True,
    ),
    "pipeline": Axis("pp", "pipeline stages", "sends between stages"),
    "context": Axis("cp", "context-parallel degree", "context-parallel transfers not hidden"),
    "expert": Axis(
        "ep",
        "expert-parallel degree, within data x context",
        "tokens to and from experts not hidden",
        cuts=("experts",),
        within=True,
    ),
}
# From the innermost, whose devices are neighbours, to the outermost.
INNERMOST_FIRST = ("tensor", "context", "expert", "data", "pipeline")
MULTIPLIED = tuple(name for name, axis in AXES.items() if not axis.within)  # to the number of devices
