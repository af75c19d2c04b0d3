"""`--set key=value`: values put into a document before it is validated, each with a place of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import Node, read_value

FLAG = "--set "


@dataclass(frozen=True)
class Override:
    """One `key=value`, read: the steps of the dotted key, the value, and the text that places point into."""

    steps: tuple[str, ...]
    value: Node
    where: Location

    @property
    def text(self) -> str:
        """The text as typed, which is also the `file` of its places."""
        return self.where.file


def read_overrides(settings: Iterable[str]) -> tuple[Override, ...]:
    """Every `key=value`; raises SpecError for all that are none."""
    read: list[Override] = []
    problems: list[Problem] = []
    for setting in settings:
        try:
            read.append(_read(setting))
        except SpecError as error:
            problems.extend(error.problems)
    if problems:
        raise SpecError(problems)
    return tuple(read)


def settings(stated: Node) -> tuple[str, ...]:
    """The entries of a mapping such as `set: {run.micro_batch: 2}` as `key=value`."""
    return assignments({key: node.plain() for key, node in stated.fields.items()})


def assignments(values: Mapping[str, object]) -> tuple[str, ...]:
    """Values by dotted key as `key=value`; lists and mappings as JSON."""
    return tuple(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())


def apply(root: Node, override: Override) -> Node:
    """The document with the override's value at its key, or without the key where the value is null.

    Mappings on the way are made where there are none.
    """
    return _put(root, override.steps, override)


def _read(setting: str) -> Override:
    file = FLAG + setting
    key, equals, value = setting.partition("=")
    steps = tuple(step.strip() for step in key.split("."))
    where = Location(file, 1, len(FLAG) + 1)
    if not equals or not all(steps):
        raise SpecError([Problem(where, f"`{setting}` is no `key=value`", "for example `--set run.micro_batch=2`")])
    start = Location(file, 1, len(FLAG) + len(key) + 2)
    if not value.strip():
        raise SpecError([Problem(start, f"`{key}` is given no value", "for example `--set run.micro_batch=2`")])
    return Override(steps, read_value(value, start), where)


def _put(node: Node, steps: tuple[str, ...], override: Override) -> Node:
    if not steps:
        return override.value
    step, rest = steps[0], steps[1:]
    if isinstance(node.value, tuple):
        index = _index(node, step, override)
        items = (*node.items[:index], _put(node.items[index], rest, override), *node.items[index + 1 :])
        return Node(items, node.where)
    fields: Mapping[str, Node] = node.fields
    if override.value.value is None and (not rest or step not in node.fields):
        return _without(node, step)
    inner = _put(fields.get(step, Node(None, override.where)), rest, override)
    holder = node if isinstance(node.value, Mapping) else Node({}, override.where)
    return holder.within({step: inner}, {step: override.where})


def _without(node: Node, step: str) -> Node:
    """The mapping without an entry, as if it had never been written; any other value as it is."""
    if step not in node.fields:
        return node
    return Node({key: inner for key, inner in node.fields.items() if key != step}, node.where, node.keys)


def _index(node: Node, step: str, override: Override) -> int:
    """The place in a list that a number or a group's name means."""
    for index, item in enumerate(node.items):
        group = item.fields.get("group")
        if step == str(index) or (group is not None and group.value == step):
            return index
    names = [str(item.fields["group"].value) for item in node.items if "group" in item.fields]
    known = ", ".join(names or [str(index) for index in range(len(node.items))])
    raise SpecError([Problem(override.where, f"the list has no entry `{step}`", f"it has {known or 'none'}")])
