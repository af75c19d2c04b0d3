"""At which speed of a link an accelerator's transfers were measured, where a spec states another one over it."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.quantities import QuantityError, parse
from ledger.spec.reader import Node

TO_HOST = ("host_link",)
# The speed of a link by its path in an accelerator's spec, and where the speed stands at which it was measured.
MEASURED: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("scaleup", "bandwidth"): ("scaleup", "measured"),
    TO_HOST: ("host_link_measured",),
}


def with_measured_links(below: Node, above: Node) -> Node:
    """The accelerator `above`, made by changing `below`: it says at which speed of a changed link transfers were timed.

    Devices that share only the host's link were timed over that one.
    """
    for path, measured in MEASURED.items():
        old, new = _at(below, path), _at(above, path)
        if old is None or new is None or _is_same(old, new) or _at(above, measured) is not None:
            continue
        timed_over = _at(below, TO_HOST) if _is_zero(old) else old
        above = _put(above, measured, timed_over) if timed_over else above
    return above


def _at(node: Node, path: tuple[str, ...]) -> Node | None:
    """The value at a path, without its source."""
    for key in path:
        if key not in node.fields:
            return None
        node = node.fields[key]
    return node.fields.get("value", node)


def _is_same(old: Node, new: Node) -> bool:
    """Whether two speeds are written alike, or neither is a link."""
    return old.plain() == new.plain() or (_is_zero(old) and _is_zero(new))


def _is_zero(speed: Node) -> bool:
    """Whether there is no such link; what is no speed is told elsewhere."""
    try:
        return parse(str(speed.value), "B/s") == 0
    except QuantityError:
        return False


def _put(node: Node, path: tuple[str, ...], value: Node) -> Node:
    """The mapping with a value at a path of mappings that are there."""
    first, *rest = path
    inner = _put(node.fields[first], tuple(rest), value) if rest else value
    return node.within({first: inner}, {first: value.where} if first not in node.keys else {})
