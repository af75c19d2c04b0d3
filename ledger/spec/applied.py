"""A plan's text with values as `--set` would put them, written into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ledger.spec.edit import edited
from ledger.spec.expand import expand
from ledger.spec.inputs import changes
from ledger.spec.library import Library, default_library, library_of
from ledger.spec.load import plan_of, plan_source
from ledger.spec.overrides import Override, apply, assignments, read_overrides
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import Node, read_again
from ledger.spec.sources import Source


def applied_text(spec: str, values: Mapping[str, Any]) -> str:
    """The text of a spec whose plan is the one that `--set` makes of it with these values; None: the key is left out.

    Comments and everything that is not changed stay. Raises SpecError where the values make no plan, or where no text
    of this form says the same.
    """
    shelf = default_library()
    source = plan_source(spec, None, shelf)
    return text_with(source, values, library_of(source, shelf))


def text_with(source: Source, values: Mapping[str, Any], library: Library) -> str:
    """The text of a source with these values, as `applied_text` has it of a spec."""
    wanted = plan_of(source, assignments(values), library)
    text = edited(source.text, dict(_whole_lists(source, values, library)))
    made = plan_of(replace(source, text=text), (), library)
    if different := changes(wanted, made):
        paths = ", ".join(change.path for change in different)
        raise SpecError(
            [Problem(Location(source.file), f"the text cannot be changed so: {paths} would differ", "use --set")]
        )
    return text


def _whole_lists(source: Source, values: Mapping[str, Any], library: Library) -> Iterator[tuple[str, Any]]:
    """The values, those within a list as the whole list: that of the text, or of the part that it names."""
    overrides = read_overrides(assignments(values))
    document = read_again(source.text, source.file)
    for one in overrides:
        document = apply(document, one) if len(one.steps) == 1 else document
    whole = expand(document, source, library).node
    lists: dict[str, None] = {}
    for one in overrides:
        depth = _depth_of_list(whole, one)
        whole = apply(whole, one) if len(one.steps) > 1 else whole
        if depth:
            lists[".".join(one.steps[:depth])] = None
        else:
            yield ".".join(one.steps), one.value.plain()
    for key in lists:
        found = whole
        for step in key.split("."):
            found = found.fields[step]
        yield key, found.plain()


def _depth_of_list(node: Node, override: Override) -> int:
    """How many steps lead to a list that a key goes through; 0 where it goes through none."""
    for depth, step in enumerate(override.steps[:-1], 1):
        node = node.fields.get(step, Node(None, node.where))
        if isinstance(node.value, tuple):
            return depth
    return 0
