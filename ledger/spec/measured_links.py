"""At which speed of a link an accelerator's transfers were measured, where a spec states another one over it."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.kernel_classes import HOST_LINK, kernel_class
from ledger.spec.price_lists import TRANSFER_FORMS
from ledger.spec.reader import Node

# The speeds of links by their paths in an accelerator's spec; measured transfers go over the first, or to the host.
SCALEUP: tuple[str, ...] = ("scaleup", "bandwidth")
TO_HOST: tuple[str, ...] = ("host_link",)


def with_measured_links(below: Node, above: Node) -> Node:
    """The accelerator `above`, made by changing `below`: its measured transfers say at which speed they were."""
    known = {path: _at(below, path) for path in (SCALEUP, TO_HOST)}
    moved = {path: old for path, old in known.items() if old is not None and _differs(old, _at(above, path))}
    if not moved or "calibration" not in above.fields:
        return above
    curves = above.fields["calibration"]
    items = tuple(_measured_at(curve, moved) for curve in curves.items)
    return above.within({"calibration": Node(items, curves.where)}, {})


def _measured_at(curve: Node, moved: Mapping[tuple[str, ...], Node]) -> Node:
    """A fitted price with the old speed of the link that it is of; one that says its own keeps it."""
    what, form = (str(curve.fields[key].value) if key in curve.fields else "" for key in ("what", "form"))
    if form not in TRANSFER_FORMS or "link" in curve.fields:
        return curve
    path = TO_HOST if kernel_class(what).family == HOST_LINK else SCALEUP
    return curve.within({"link": moved[path]}, {"link": moved[path].where}) if path in moved else curve


def _at(node: Node, path: tuple[str, ...]) -> Node | None:
    """The value at a path, without its source."""
    for key in path:
        if key not in node.fields:
            return None
        node = node.fields[key]
    return node.fields.get("value", node)


def _differs(old: Node, new: Node | None) -> bool:
    return new is not None and old.plain() != new.plain()
