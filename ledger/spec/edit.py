"""The text of a spec with values put in and taken out: everything else, comments too, stays as it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from ledger.spec.expand import NAMED_PARTS, expand
from ledger.spec.inputs import changes
from ledger.spec.library import Library, default_library, library_of
from ledger.spec.load import plan_of, plan_source
from ledger.spec.overrides import Override, apply, assignments, read_overrides
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import Node, read_again, read_value
from ledger.spec.sources import Source

PLAIN = re.compile(r"[A-Za-z0-9_.][\w./ %+-]*[\w%]|\w")  # text that YAML needs no quotes for, if it is read as text
BASE = "base"  # the key under which a part is named that is changed beside


class NoPlaceError(Exception):
    """A value for which the text has no place, with the reason."""


def edit_text(text: str, changes: Mapping[str, Any]) -> str:
    """The text in which each dotted key has its value; keys whose value is None are left out.

    Raises NoPlaceError where a key lies within a list of the text.
    """
    for key, value in changes.items():
        text = _change_key(text, key.split("."), value)
    return text


def flow(value: Any) -> str:
    """A value as YAML in one line, as it stands within brackets."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{flow(key)}: {flow(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, str) and PLAIN.fullmatch(value) and _read_plain(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _read_plain(text: str) -> object:
    try:
        return read_value(text, Location("")).plain()
    except SpecError:
        return None


def _change_key(text: str, steps: Sequence[str], value: Any) -> str:
    """The text with one key changed."""
    holder = _compose_root(text)
    for depth, step in enumerate(steps):
        entry = next(((key, inner) for key, inner in holder.value if key.value == step), None)
        last = depth == len(steps) - 1
        if entry is None:
            return text if value is None else _add_entry(text, holder, step, _nest_value(steps[depth + 1 :], value))
        key, inner = entry
        if last and value is not None and _has_same_value(text, inner, value):
            return text
        if last:
            return _remove_entry(text, holder, key) if value is None else _replace_value(text, key, inner, flow(value))
        if isinstance(inner, yaml.ScalarNode):
            return text if value is None else _base_part(text, steps, depth, (key, inner), value)
        if not isinstance(inner, yaml.MappingNode):
            listed = ".".join(steps[: depth + 1])
            raise NoPlaceError(f"`{'.'.join(steps)}` lies within the list `{listed}`, which is written as a whole")
        holder = inner
    return text


def _has_same_value(text: str, node: yaml.Node, value: Any) -> bool:
    """Whether a value in one line is there already, in whatever spelling."""
    written = text[node.start_mark.index : _node_end(node)]
    stated = _read_plain(written)
    return bool(written) and "\n" not in written and stated == value and type(stated) is type(value)


def _compose_root(text: str) -> yaml.MappingNode:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise TypeError("a spec that could be read is a mapping")
    return root


def _nest_value(steps: Sequence[str], value: Any) -> Any:
    """A value within a mapping for each step."""
    for step in reversed(steps):
        value = {step: value}
    return value


def _base_part(text: str, steps: Sequence[str], depth: int, entry: tuple[yaml.Node, yaml.Node], value: Any) -> str:
    """A part that is named becomes one that is based on it; other text, and nothing, gives way to a mapping."""
    inner = _nest_value(steps[depth + 1 :], value)
    if depth == 0 and steps[0] in NAMED_PARTS and entry[1].value:
        inner = {BASE: entry[1].value, **inner}
    return _replace_value(text, *entry, flow(inner))


def _node_end(node: yaml.Node) -> int:
    """The end of a value; of a block, the end of its last entry, before comments that follow it."""
    if not _is_block(node) or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _node_end(last[1] if isinstance(node, yaml.MappingNode) else last)


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style


def _replace_value(text: str, key: yaml.Node, inner: yaml.Node, value: str) -> str:
    """The text with another value of a key."""
    colon = text.index(":", key.end_mark.index) + 1
    start, end = inner.start_mark.index, _node_end(inner)
    if start <= colon or end == start:  # nothing is written there
        return f"{text[:colon]} {value}{text[colon:]}"
    if "\n" in text[colon:start] or _is_block(inner):
        return f"{text[:colon]} {value}{text[_trim_line_breaks(text, end) :]}"
    return text[:start] + value + text[_trim_line_breaks(text, end) if isinstance(inner, yaml.ScalarNode) else end :]


def _trim_line_breaks(text: str, end: int) -> int:
    """The end before the line breaks that a block of text has after its last line."""
    while text[end - 1] in "\r\n":
        end -= 1
    return end


def _add_entry(text: str, holder: yaml.MappingNode, step: str, value: Any) -> str:
    """The text with one entry more at the end of a mapping."""
    entry = f"{flow(step)}: {flow(value)}"
    if holder.flow_style:
        close = holder.end_mark.index - 1
        if not holder.value:
            return f"{text[: holder.start_mark.index + 1]}{entry}{text[close:]}"
        end = _last_value_end(text, holder)
        return f"{text[:end]}, {entry}{text[end:]}"
    indent = " " * holder.value[0][0].start_mark.column
    end = _line_end(text, _last_value_end(text, holder))
    return f"{text[:end]}\n{indent}{entry}{text[end:]}"


def _last_value_end(text: str, holder: yaml.MappingNode) -> int:
    """The end of the last value of a mapping."""
    key, inner = holder.value[-1]
    end = _node_end(inner)
    return _trim_line_breaks(text, end) if end > key.end_mark.index else text.index(":", key.end_mark.index) + 1


def _line_end(text: str, start: int) -> int:
    position = text.find("\n", start)
    return len(text) if position < 0 else position


def _remove_entry(text: str, holder: yaml.MappingNode, key: yaml.Node) -> str:
    """The text without an entry: with its comma in brackets, with its lines in a block."""
    place = next(index for index, entry in enumerate(holder.value) if entry[0] is key)
    inner = holder.value[place][1]
    end = max(_node_end(inner), text.index(":", key.end_mark.index) + 1)
    if holder.flow_style:
        if len(holder.value) == 1:
            return text[: key.start_mark.index] + text[end:]
        if place:  # from the end of the entry before
            previous = holder.value[place - 1][1]
            return text[: _node_end(previous)] + text[end:]
        return text[: key.start_mark.index] + text[holder.value[1][0].start_mark.index :]
    if len(holder.value) == 1:
        return f"{text[: key.start_mark.index]}{{}}{text[_trim_line_breaks(text, end) :]}"
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    return text[:start] + text[_line_end(text, _trim_line_breaks(text, end)) + 1 :]


# --- plans rewritten with values as `--set` takes them ---


def text_with_settings(spec: str, values: Mapping[str, Any]) -> str:
    """The text of a spec whose plan is the one that `--set` makes of it with these values; None: the key is left out.

    Comments and everything that is not changed stay. Raises SpecError where the values make no plan, or where no text
    of this form says the same.
    """
    shelf = default_library()
    source = plan_source(spec, None, shelf)
    return source_text_with_settings(source, values, library_of(source, shelf))


def source_text_with_settings(source: Source, values: Mapping[str, Any], library: Library) -> str:
    """The text of a source with these values, as `applied_text` has it of a spec."""
    intended = plan_of(source, assignments(values), library)
    text = edit_text(source.text, dict(_with_whole_lists(source, values, library)))
    written = plan_of(replace(source, text=text), (), library)
    if different := changes(intended, written):
        paths = ", ".join(change.path for change in different)
        message = f"the text cannot be changed so: {paths} would differ"
        raise SpecError([Problem(Location(source.file), message, "use --set")])
    return text


def _with_whole_lists(source: Source, values: Mapping[str, Any], library: Library) -> Iterator[tuple[str, Any]]:
    """The values by key; one within a list as the whole list, from the text or from the part that it names."""
    overrides = read_overrides(assignments(values))
    document = read_again(source.text, source.file)
    for override in overrides:
        document = apply(document, override) if len(override.steps) == 1 else document
    expanded = expand(document, source, library).node
    lists: dict[str, None] = {}
    for override in overrides:
        depth = _depth_of_list(expanded, override)
        expanded = apply(expanded, override) if len(override.steps) > 1 else expanded
        if depth:
            lists[".".join(override.steps[:depth])] = None
        else:
            yield ".".join(override.steps), override.value.plain()
    for key in lists:
        node = expanded
        for step in key.split("."):
            node = node.fields[step]
        yield key, node.plain()


def _depth_of_list(node: Node, override: Override) -> int:
    """The number of steps to a list that a key goes through; 0 where it goes through none."""
    for depth, step in enumerate(override.steps[:-1], 1):
        node = node.fields.get(step, Node(None, node.where))
        if isinstance(node.value, tuple):
            return depth
    return 0
