"""Layers that their author writes out whole: a stem, and blocks whose input and result have dims of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ledger.spec.components import CUSTOM_ROWS, LOWER_NAME, Custom, custom
from ledger.spec.parts import PartHeader
from ledger.spec.structures import NEEDED, KeyStated, Needed, Row, Values
from ledger.spec.values import String

MEANINGS = {
    "dims": "Its own dims with their sizes, `{wide: 64, rows: 56}`; of one like another, those that differ.",
    "weights": "Its weights by the names of their dims, `{w_into: narrow wide tall broad}`.",
    "steps": "What it does, in order, from `x` to its result.",
}
WRITTEN = Needed(unless=KeyStated("like"))
TERM = String(pattern="^[a-z][a-z0-9_]*( [a-z][a-z0-9_]*)*$")
INPUT = Row("input", TERM, "Dims of what it starts from, `batch` first: `batch wide rows columns`.", "input", WRITTEN)
LIKE = Row("like", String(pattern=LOWER_NAME), "The group whose input, weights and steps it has, by its name.", "like")


@dataclass(frozen=True)
class Block:
    """How a spec states a layer that is written out whole; what it makes is a `Custom`."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="A whole layer as its author writes it, in place of `attention` and `mlp`: dims, weights, and steps "
        "from `x`, norms and additions among them. `{like: stage_2, dims: {...}}` has the steps of another group.",
        extra=(
            INPUT,
            LIKE,
            *(
                replace(row, needed=WRITTEN if row.key != "dims" else NEEDED, meaning=MEANINGS[row.key])
                for row in CUSTOM_ROWS
                if row.key in MEANINGS
            ),
        ),
    )

    @classmethod
    def from_spec(cls, given: Values) -> Custom:
        """The steps with their dims; those of a block like another one are not known yet."""
        steps = custom(given["dims"], given.get("weights", {}), given.get("steps", ()), {})
        return replace(steps, takes=tuple(given.get("input", "").split()), like=given.get("like", ""))


def alike(groups: Iterable[Any]) -> tuple[Any, ...]:
    """The groups with the steps of those that they are like, with their own sizes; what names none stays as it is."""
    groups = tuple(groups)
    written: Mapping[str, Custom] = {
        group.name: group.block for group in groups if group.block and not group.block.like
    }
    return tuple(_alike(group, written) for group in groups)


def _alike(group: Any, written: Mapping[str, Custom]) -> Any:
    other = written.get(group.block.like) if group.block else None
    if other is None:
        return group
    sizes = {**dict(other.dims), **dict(group.block.dims)}
    return replace(group, block=replace(other, dims=tuple(sizes.items()), like=group.block.like))
