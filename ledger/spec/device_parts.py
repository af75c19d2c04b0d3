"""Parts that hold for one device: the price that a plan goes by, and a cluster that describes nodes of a device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from ledger.spec.expand import PRICE, ExpandedDocument, ResolvedPart, merge, resolve
from ledger.spec.library import Library, read_once
from ledger.spec.plan import PRICE_EXAMPLE
from ledger.spec.problems import FLAG, Problem, SpecError
from ledger.spec.reader import Node
from ledger.spec.sources import Source

FIGURE, DEVICE = "per_device_hour", "accelerator"
LIST_PRICES = "`ledger list price` names those on file"
CLUSTER_RULE = "cluster_is_of_the_device"
STATE_ONE = f"`assumptions: {{price: {PRICE_EXAMPLE}}}`"


def for_its_device(expanded: ExpandedDocument, file: Node, source: Source, library: Library) -> ExpandedDocument:
    """The plan with the price of its accelerator, and with warnings of what is described for another one.

    `file` is the plan before overrides: its price is for the accelerator that the file names, unless it says for which.
    """
    if DEVICE not in expanded.names or PRICE[0] in expanded.failed:
        return expanded
    stated = expanded.node.fields.get(PRICE[0], Node({}, expanded.named[DEVICE])).fields.get(PRICE[1])
    if stated is not None and not isinstance(stated.value, Mapping):
        return expanded
    try:
        on_file = price_on_file(expanded, source, library)
    except SpecError as error:
        return expanded.failing(PRICE[0], error)
    price_device = _price_device(expanded, stated, file, source, library) if stated else ""
    price_warnings = _price_warnings(expanded, stated, price_device, on_file)
    expanded = replace(expanded, warnings=(*price_warnings, *_cluster_warnings(expanded, library)))
    return _put_price_in_place(expanded, None if price_device else stated, on_file)


def price_on_file(expanded: ExpandedDocument, source: Source, library: Library) -> ResolvedPart | None:
    """The library's price of the plan's accelerator, or of what that is based on; raises SpecError."""
    prices = library.names(PRICE[1])
    device = next((name for name in device_names(expanded) if name in prices), None)
    return resolve(Node(device, expanded.named[DEVICE]), PRICE[1], source, library) if device else None


def device_names(expanded: ExpandedDocument) -> tuple[str, ...]:
    """The names of the plan's accelerator: its own, and those of the parts that it is based on."""
    return expanded.bases[DEVICE] or (expanded.names[DEVICE],)


def _put_price_in_place(
    expanded: ExpandedDocument, stated: Node | None, on_file: ResolvedPart | None
) -> ExpandedDocument:
    """The plan with the price that is stated for its device, typed values over the library's; else the library's."""
    kind, key = PRICE
    if stated is None and on_file is not None:
        return expanded.stating(PRICE, on_file)
    if stated is not None and on_file is not None and not stated.fields.keys() >= {FIGURE, "date"}:
        if not any(map(_is_typed, stated.fields.values())):
            return expanded
        return expanded.stating(PRICE, replace(on_file, node=merge(on_file.node, stated)))
    if stated is not None or kind not in expanded.node.fields:
        return expanded
    return replace(expanded, node=expanded.node.within({kind: expanded.node.fields[kind].without_key(key)}, {}))


def _price_device(expanded: ExpandedDocument, price: Node, file: Node, source: Source, library: Library) -> str:
    """The device that a stated price is for, where that is not the plan's; a typed figure is for the plan's."""
    device_node, figure = price.fields.get(DEVICE), price.fields.get(FIGURE)
    is_typed = figure is None or _is_typed(figure)
    if device_node is not None and (_is_typed(device_node) or not is_typed):
        return "" if is_device(str(device_node.value), expanded, library) else str(device_node.value)
    accelerator = file.fields.get(DEVICE)
    if is_typed or accelerator is None:
        return ""
    with suppress(SpecError):
        part = resolve(accelerator, DEVICE, source, library)
        names = part.bases or (part.name,)
        return "" if set(names) & set(device_names(expanded)) else names[0]
    return ""


def is_device(name: str, expanded: ExpandedDocument, library: Library) -> bool:
    """Whether a name is one of the plan's accelerator, or another spelling of one."""
    names = device_names(expanded)
    return name in names or any(candidate in names for candidate in library.matching_names(DEVICE, name))


def _is_typed(node: Node) -> bool:
    return node.where.file.startswith(FLAG)


def _price_warnings(
    expanded: ExpandedDocument, stated: Node | None, price_device: str, on_file: ResolvedPart | None
) -> Iterator[Problem]:
    """Warnings of a run that is priced otherwise than the plan says, or not at all; none of a run without end."""
    device, run = device_names(expanded)[0], expanded.node.fields.get("run")
    if run is None or "tokens" not in run.fields:
        return
    if stated is not None and price_device:
        figure = on_file.node.fields[FIGURE] if on_file else None
        instead = f"priced at the {_text(figure)} on file for it" if figure else "not priced"
        message = f"the price is for {price_device}, and the plan runs on {device}: the run is {instead}"
        help_text = f"state one for {device}: {STATE_ONE}"
        where = expanded.node.fields[PRICE[0]].keys.get(PRICE[1], stated.where)
        yield Problem(where, message, help_text, "price_is_of_the_device")
    elif stated is None and on_file is None:
        help_text = f"state one: {STATE_ONE}; {LIST_PRICES}"
        yield Problem(expanded.named[DEVICE], no_price(device), help_text, "devices_have_a_price")


def no_price(device: str) -> str:
    """The message where neither the library nor the plan has a price of a device."""
    return f"no price of {device} is on file, so the run is not priced"


def cluster_warnings(warnings: Iterable[Problem]) -> Iterator[Problem]:
    """The warnings, among a plan's, of a cluster described with another device."""
    return (warning for warning in warnings if warning.rule == CLUSTER_RULE)


def _text(figure: Node) -> object:
    """A figure as it is written."""
    return figure.fields.get("value", figure).value


def _cluster_warnings(expanded: ExpandedDocument, library: Library) -> Iterator[Problem]:
    """The warning of a cluster that was described with another device than the plan runs on."""
    cluster, device = expanded.node.fields.get("cluster"), device_names(expanded)[0]
    described = cluster.fields.get(DEVICE) if cluster else None
    if described is None or not isinstance(described.value, str) or is_device(described.value, expanded, library):
        return
    message = f"the cluster describes nodes of {described.value}, and the plan runs on {device}"
    fitting = [f"`{name}`" for name in library.names("cluster") if _describes(name, expanded, library)]
    help_text = f"{' or '.join(fitting)} describes nodes of {device}; " if fitting else ""
    help_text += f"`accelerator: {device}` in the cluster says that its network and failures are those of {device} too"
    yield Problem(expanded.named["cluster"], message, help_text, CLUSTER_RULE)


def _describes(name: str, expanded: ExpandedDocument, library: Library) -> bool:
    """Whether a cluster of the library is one of nodes of the plan's accelerator."""
    described = read_once(library.path("cluster", name)).plain_field(DEVICE)
    return isinstance(described, str) and is_device(described, expanded, library)
