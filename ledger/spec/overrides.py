"""`--set key=value`: values put into a document before it is validated, each with a place of its own; `null` unsets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ledger.spec.faults import shortened
from ledger.spec.paths import is_known
from ledger.spec.problems import FLAG, Location, Problem, SpecError
from ledger.spec.reader import BREAKS, CONTROLS, DEEPEST_NESTING, Node, read_value

MOST_SETTINGS = 1000  # overrides of one plan


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

    @property
    def unsets(self) -> bool:
        """Whether it is `null`, which takes away what is stated."""
        return self.value.value is None


def read_overrides(settings: Iterable[str]) -> tuple[Override, ...]:
    """Every `key=value`; raises SpecError for all that are none."""
    read: list[Override] = []
    problems: list[Problem] = []
    for setting in settings:
        if len(read) == MOST_SETTINGS:
            message = f"more than {MOST_SETTINGS} overrides"
            raise SpecError([Problem(Location(FLAG.strip()), message, "a plan of its own says so much")])
        try:
            read.append(_read_override(setting))
        except SpecError as error:
            problems.extend(error.problems)
    if problems:
        raise SpecError(problems, {problem.where.file: problem.where.file for problem in problems})
    return tuple(read)


def settings(stated: Node) -> tuple[str, ...]:
    """The entries of a mapping such as `set: {run.micro_batch: 2}` as `key=value`."""
    return assignments({key: node.plain() for key, node in stated.fields.items()})


def assignments(values: Mapping[str, object]) -> tuple[str, ...]:
    """Values by dotted key as `key=value`; lists and mappings as JSON."""
    return tuple(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())


def apply(root: Node, override: Override) -> Node:
    """The document with the override's value at its key; mappings on the way are made where there are none.

    After `null`, it is as if the key had never been written; a key that no spec has is left to be refused as unknown.
    """
    if override.unsets and not _has_value(root, override.steps, override) and is_known(".".join(override.steps)):
        return root
    return _put_value(root, override.steps, override)


def _read_override(setting: str) -> Override:
    file = FLAG + setting
    key, equals, value = setting.partition("=")
    steps = tuple(step.strip() for step in key.split("."))
    where = Location(file, 1, len(FLAG) + 1)
    if CONTROLS.search(setting) or BREAKS.search(key):
        message = "a control character, or bytes that are not UTF-8"
        raise SpecError([Problem(where, message, "an override is plain text")])
    if len(steps) > DEEPEST_NESTING:
        raise SpecError([Problem(where, f"a key of {len(steps)} steps", "the deepest of a plan has about eight")])
    if not equals or not all(steps):
        message = f"`{shortened(setting)}` is no `key=value`"
        raise SpecError([Problem(where, message, "for example `--set run.micro_batch=2`")])
    start = Location(file, 1, len(FLAG) + len(key) + 2)
    if len(steps) > 1 and steps[-1] == "base":
        part = ".".join(steps[:-1])
        help_text = f"`--set {part}={value}`, or `--set '{part}={{base: {value}, ...}}'` with what is to differ"
        raise SpecError([Problem(where, f"`{key}`: what a part starts from is set with the part", help_text)])
    if not value.strip():
        raise SpecError([Problem(start, f"`{key}` is given no value", "for example `--set run.micro_batch=2`")])
    return Override(steps, read_value(value, start), where)


def _has_value(node: Node, steps: tuple[str, ...], override: Override) -> bool:
    """Whether a document has a value at a dotted key; raises SpecError for an entry that a list does not have."""
    if not steps:
        return True
    step, remaining = steps[0], steps[1:]
    if isinstance(node.value, tuple):
        return _has_value(node.items[_index(node, step, override)], remaining, override)
    return step in node.fields and _has_value(node.fields[step], remaining, override)


def _put_value(node: Node, steps: tuple[str, ...], override: Override) -> Node:
    if not steps:
        return override.value
    step, remaining = steps[0], steps[1:]
    if isinstance(node.value, tuple):
        index = _index(node, step, override)
        replacement = () if override.unsets and not remaining else (_put_value(node.items[index], remaining, override),)
        return Node((*node.items[:index], *replacement, *node.items[index + 1 :]), node.where)
    fields: Mapping[str, Node] = node.fields
    if override.unsets and not remaining and step in fields:
        return node.without_key(step)
    inner = _put_value(fields.get(step, Node(None, override.where)), remaining, override)
    holder = node if isinstance(node.value, Mapping) else Node({}, override.where)
    return holder.within({step: inner}, {step: override.where})


def _index(node: Node, step: str, override: Override) -> int:
    """The place in a list that a number or a group's name means."""
    for index, item in enumerate(node.items):
        group = item.fields.get("group")
        if step == str(index) or (group is not None and group.value == step):
            return index
    names = [str(item.fields["group"].value) for item in node.items if "group" in item.fields]
    entries = ", ".join(names or [str(index) for index in range(len(node.items))])
    raise SpecError([Problem(override.where, f"the list has no entry `{step}`", f"it has {entries or 'none'}")])
