"""Fields that have moved to another part: read where they stood before, and a problem where they stand twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ledger.spec.expand import Expanded
from ledger.spec.operations import NAME, STOOD
from ledger.spec.problems import FLAG, Problem
from ledger.spec.reader import Node

LIBRARY, PLAN, TYPED = range(3)  # who says a value: the stronger last


def in_new_places(whole: Expanded, file: str) -> Expanded:
    """The plan with each field where it stands now.

    Of two spellings one that is typed on the command line holds over the plan's (`file`), and the plan's over that of
    a part on file; two that the same hand wrote are a problem.
    """
    for (part, key), new_key in STOOD.items():
        old_node = whole.node.fields.get(part, whole.node)
        value = old_node.fields.get(key)
        if value is None or old_node is whole.node:
            continue
        holder = whole.node.fields.get(NAME)
        if holder is not None and not isinstance(holder.value, Mapping):
            continue  # what it is instead is told by its type
        whole = replace(whole, node=whole.node.within({part: old_node.without(key)}, {}))
        stated = holder.fields.get(new_key) if holder else None
        if stated is not None and _hand(stated, file) >= _hand(value, file):
            if _hand(stated, file) == _hand(value, file):
                where = old_node.keys.get(key, value.where)
                message = f"`{part}.{key}` and `{NAME}.{new_key}` say the same thing twice"
                problem = Problem(where, message, f"leave out `{part}.{key}`: it is the old place")
                whole = replace(whole, problems=(*whole.problems, problem))
            continue
        place = old_node.keys.get(key, value.where)
        inner = (holder or Node({}, value.where)).within({new_key: value}, {new_key: place})
        whole = replace(whole, node=whole.node.within({NAME: inner}, {} if holder else {NAME: place}))
    return whole


def _hand(value: Node, file: str) -> int:
    """Who wrote a value."""
    place = value.fields.get("value", value).where.file
    return TYPED if place.startswith(FLAG) else PLAN if place == file else LIBRARY
