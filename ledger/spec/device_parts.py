"""Parts that hold for one device: the price that a plan goes by, and a cluster that describes nodes of a device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from ledger.spec.expand import PRICE, Expanded, ResolvedPart, merge, resolve
from ledger.spec.library import Library, read_once
from ledger.spec.plan import PRICE_EXAMPLE
from ledger.spec.problems import FLAG, Location, Problem, SpecError
from ledger.spec.reader import Node
from ledger.spec.sources import Source

FIGURE, DEVICE = "per_device_hour", "accelerator"
LIST_PRICES = "`ledger list price` names those on file"
CLUSTER_RULE = "cluster_is_of_the_device"
STATE_ONE = f"`assumptions: {{price: {PRICE_EXAMPLE}}}`"


def for_its_device(whole: Expanded, file: Node, source: Source, library: Library) -> Expanded:
    """The plan with the price of its accelerator, and with warnings of what is described for another one.

    `file` is the plan before overrides: its price is for the accelerator that the file names, unless it says for which.
    """
    if DEVICE not in whole.names or PRICE[0] in whole.failed:
        return whole
    stated = whole.node.fields.get(PRICE[0], Node({}, whole.named[DEVICE])).fields.get(PRICE[1])
    if stated is not None and not isinstance(stated.value, Mapping):
        return whole
    try:
        on_file = price_on_file(whole, source, library)
    except SpecError as error:
        return whole.failing(PRICE[0], error)
    other = _other_device(whole, stated, file, source, library) if stated else ""
    whole = replace(
        whole, warnings=(*_price_warnings(whole, stated, other, on_file), *_cluster_warnings(whole, library))
    )
    return _priced(whole, None if other else stated, on_file)


def price_on_file(whole: Expanded, source: Source, library: Library) -> ResolvedPart | None:
    """The library's price of the plan's accelerator, or of what that is based on; raises SpecError."""
    known = library.names(PRICE[1])
    named = next((name for name in device_names(whole) if name in known), None)
    return resolve(Node(named, whole.named[DEVICE]), PRICE[1], source, library) if named else None


def device_names(whole: Expanded) -> tuple[str, ...]:
    """What the plan's accelerator goes by: its name, and the names of what it is based on."""
    return whole.bases[DEVICE] or (whole.names[DEVICE],)


def _priced(whole: Expanded, stated: Node | None, on_file: ResolvedPart | None) -> Expanded:
    """The plan with the price that is stated for its device, typed values over the library's; else the library's."""
    kind, key = PRICE
    if stated is None and on_file is not None:
        return whole.stating(PRICE, on_file)
    if stated is not None and on_file is not None and not stated.fields.keys() >= {FIGURE, "date"}:
        return whole.stating(PRICE, replace(on_file, node=merge(on_file.node, stated))) if _has_typed(stated) else whole
    if stated is not None or kind not in whole.node.fields:
        return whole
    return replace(whole, node=whole.node.within({kind: whole.node.fields[kind].without(key)}, {}))


def _other_device(whole: Expanded, price: Node, file: Node, source: Source, library: Library) -> str:
    """The device that a stated price is for, where that is not the plan's; a typed figure is for the plan's."""
    named, figure = price.fields.get(DEVICE), price.fields.get(FIGURE)
    typed = figure is None or _is_typed(figure)
    if named is not None and (_is_typed(named) or not typed):
        return "" if is_device(str(named.value), whole, library) else str(named.value)
    given = file.fields.get(DEVICE)
    if typed or given is None:
        return ""
    with suppress(SpecError):
        part = resolve(given, DEVICE, source, library)
        names = part.bases or (part.name,)
        return "" if set(names) & set(device_names(whole)) else names[0]
    return ""


def is_device(name: str, whole: Expanded, library: Library) -> bool:
    """Whether the plan's accelerator goes by a name, or by one that it is another spelling of."""
    names = device_names(whole)
    return name in names or any(one in names for one in library.spelt(DEVICE, name))


def _is_typed(node: Node) -> bool:
    return node.where.file.startswith(FLAG)


def _has_typed(mapping: Node) -> bool:
    return any(_is_typed(node) for node in mapping.fields.values())


def _price_warnings(
    whole: Expanded, stated: Node | None, other: str, on_file: ResolvedPart | None
) -> Iterator[Problem]:
    """That a run is priced otherwise than the plan says, or not at all; of no plan whose run has no end."""
    device, run = device_names(whole)[0], whole.node.fields.get("run")
    if run is None or "tokens" not in run.fields:
        return
    if stated is not None and other:
        figure = on_file.node.fields[FIGURE] if on_file else None
        instead = f"priced at the {_text(figure)} on file for it" if figure else "not priced"
        message = f"the price is for {other}, and the plan runs on {device}: the run is {instead}"
        help_text = f"state one for {device}: {STATE_ONE}"
        yield Problem(_price_place(whole, stated), message, help_text, "price_is_of_the_device")
    elif stated is None and on_file is None:
        help_text = f"state one: {STATE_ONE}; {LIST_PRICES}"
        yield Problem(whole.named[DEVICE], no_price(device), help_text, "devices_have_a_price")


def no_price(device: str) -> str:
    """That the library has no price of a device, and the plan states none."""
    return f"no price of {device} is on file, so the run is not priced"


def cluster_warnings(warnings: Iterable[Problem]) -> Iterator[Problem]:
    """Of a plan's warnings that of a cluster described with another device."""
    return (one for one in warnings if one.rule == CLUSTER_RULE)


def _price_place(whole: Expanded, price: Node) -> Location:
    return whole.node.fields[PRICE[0]].keys.get(PRICE[1], price.where)


def _text(figure: Node) -> object:
    """A figure as it is written."""
    return figure.fields.get("value", figure).value


def _cluster_warnings(whole: Expanded, library: Library) -> Iterator[Problem]:
    """That a cluster was described with another device than the plan runs on."""
    cluster, device = whole.node.fields.get("cluster"), device_names(whole)[0]
    described = cluster.fields.get(DEVICE) if cluster else None
    if described is None or not isinstance(described.value, str) or is_device(described.value, whole, library):
        return
    message = f"the cluster describes nodes of {described.value}, and the plan runs on {device}"
    fitting = [f"`{name}`" for name in library.names("cluster") if _describes(name, whole, library)]
    help_text = f"{' or '.join(fitting)} describes nodes of {device}; " if fitting else ""
    help_text += f"`accelerator: {device}` in the cluster says that its network and failures are those of {device} too"
    yield Problem(whole.named["cluster"], message, help_text, CLUSTER_RULE)


def _describes(name: str, whole: Expanded, library: Library) -> bool:
    """Whether a cluster of the library is one of nodes of the plan's accelerator."""
    described = read_once(library.path("cluster", name)).plain_field(DEVICE)
    return isinstance(described, str) and is_device(described, whole, library)
