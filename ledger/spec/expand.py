"""Named parts -> their specs: every part of a plan in one document, each value still with its own place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ledger.spec.library import Library
from ledger.spec.near import KNOWN_NAMES_PREFIX
from ledger.spec.plan import PRICE_EXAMPLE
from ledger.spec.problems import FLAG, Location, Problem, SpecError
from ledger.spec.quantities import QuantityError, parse
from ledger.spec.reader import Node, read_again
from ledger.spec.sources import Source

NAMED_PARTS = ("accelerator", "cluster", "model", "precision", "optimizer", "stack")
DEFAULT_PARTS: Mapping[str, str] = {"stack": "pytorch-fsdp2-2025", "optimizer": "adamw"}  # of parts left out
SERVING_PARTS: Mapping[str, str] = {**DEFAULT_PARTS, "stack": "serving"}  # of parts that a serving plan leaves out
DEFAULT_FABRIC = "h100-400g"  # the cluster whose network is assumed where a plan states none
PRICE = ("assumptions", "price")  # where a plan states one
LONGEST_CHAIN = 8  # parts that are based on parts
COMMAND_LINE = Source("", "", "")  # what names on the command line are relative to: the folder in which they are typed


@dataclass(frozen=True)
class ExpandedDocument:
    """A document with its parts in place; `failed` are the parts that could not be read, with the problems.

    `warnings` are of parts that are legal, and described for another device.

    `names` are what the parts go by, `named` the places in the plan that say which part it is, `bases` the names of all
    that a part is based on.
    """

    node: Node
    texts: Mapping[str, str]
    names: Mapping[str, str]
    named: Mapping[str, Location]
    bases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    failed: frozenset[str] = frozenset()

    def having(self, kind: str, part: ResolvedPart, place: Location) -> ExpandedDocument:
        """The document with one part more in place."""
        return replace(
            self,
            node=self.node.within({kind: part.node}, {kind: self.node.keys.get(kind, place)}),
            texts={**self.texts, **part.texts},
            names={**self.names, kind: part.name},
            named={**self.named, kind: place},
            bases={**self.bases, kind: part.bases},
        )

    def stating(self, path: tuple[str, str], part: ResolvedPart) -> ExpandedDocument:
        """The document with a part in place within an outer one, which is made where there is none."""
        outer, key = path
        holder = self.node.fields.get(outer, Node({}, part.node.where)).within({key: part.node}, {})
        return replace(self, node=self.node.within({outer: holder}, {}), texts={**self.texts, **part.texts})

    def failing(self, part: str, error: SpecError) -> ExpandedDocument:
        """The document with one part more marked as unreadable, and its problems."""
        texts = {**self.texts, **error.sources}
        return replace(self, texts=texts, problems=(*self.problems, *error.problems), failed=self.failed | {part})


@dataclass(frozen=True)
class ResolvedPart:
    """One part in full: its node, the name it goes by, the texts its values stand in, the names it is based on."""

    node: Node
    name: str
    texts: Mapping[str, str]
    bases: tuple[str, ...] = ()


def expand(node: Node, source: Source, library: Library) -> ExpandedDocument:
    """The plan with each named or based part replaced by what it stands for."""
    expanded = ExpandedDocument(node, {source.file: source.text}, {}, {})
    left_out = SERVING_PARTS if "serve" in node.fields else DEFAULT_PARTS
    for kind in NAMED_PARTS:
        part_node = node.fields.get(kind)
        if part_node is None and kind in left_out:
            part_node = Node(left_out[kind], node.where)
        if part_node is None:
            continue
        try:
            part = resolve(part_node, kind, source, library)
        except SpecError as error:
            expanded = expanded.failing(kind, error)
            continue
        expanded = expanded.having(kind, part, part_node.where if kind in node.fields else part.node.where)
    return _resolve_price(expanded, source, library)


def _resolve_price(expanded: ExpandedDocument, source: Source, library: Library) -> ExpandedDocument:
    """The document with a price in place that is named or based on another: the one part within a part."""
    kind, key = PRICE
    assumptions = expanded.node.fields.get(kind)
    if assumptions is None or key not in assumptions.fields:
        return expanded
    try:
        price = resolve(assumptions.fields[key], key, source, library)
    except SpecError as error:
        return expanded.failing(kind, _add_price_example(error))
    return expanded.stating(PRICE, price)


def _add_price_example(error: SpecError) -> SpecError:
    """The error, with an example of a price where no name is near what is written: most prices have no name."""
    problems = list(error.problems)
    for index, problem in enumerate(problems):
        if problem.help.startswith(KNOWN_NAMES_PREFIX):
            problems[index] = replace(problem, help=f"write it out: `{PRICE_EXAMPLE}`; {problem.help}")
    return SpecError(problems, error.sources)


def resolve(node: Node, kind: str, source: Source, library: Library, depth: int = 0) -> ResolvedPart:
    """The part that a name, a mapping, or a mapping with `base` stands for; raises SpecError."""
    if depth > LONGEST_CHAIN:
        message = f"more than {LONGEST_CHAIN} parts are based on each other"
        raise SpecError([Problem(node.where, message, "is there a circle?")])
    reference = node if isinstance(node.value, str) else node.fields.get("base", _only_name(node))
    if reference is None or not isinstance(reference.value, str):
        return _resolve_inner_part(ResolvedPart(node, _slug(node, kind), {}), kind, source, library, depth)
    naming_file = COMMAND_LINE if reference.where.file.startswith(FLAG) else source
    file = library.find(kind, reference.value, reference.where, naming_file)
    texts = {file.file: file.text}
    try:
        base = (_committed_part if file.revision else _read_part)(file, kind, library, depth + 1)
    except SpecError as error:
        raise SpecError(error.problems, {**texts, **error.sources}) from error
    part = replace(base, name=file.name, texts={**texts, **base.texts}, bases=(file.name, *base.bases))
    if reference is node:
        return part
    overrides = {key: inner for key, inner in node.fields.items() if key != "base" and inner is not reference}
    merged = merge(part.node, Node(overrides, node.where, node.keys))
    part = _override_part(part, merged, kind)
    return _resolve_inner_part(part, kind, source, library, depth) if INNER_PARTS.get(kind) in overrides else part


def _override_part(part: ResolvedPart, merged: Node, kind: str) -> ResolvedPart:
    """A part with values over its own; measured rates of changed links go, and so does a changed model's name."""
    if kind == "accelerator":
        return replace(part, node=with_measured_links(part.node, merged))
    return of_changed_model(part, merged) if kind == "model" else replace(part, node=merged)


def of_changed_model(part: ResolvedPart, merged: Node) -> ResolvedPart:
    """A model that was `part`, under a name of its own where a value is another."""
    base = name_of_base(part.name)
    changed = changed_model(part.node, merged, base)
    return replace(part, node=changed, name=part.name if changed is merged else f"{base}{CHANGED}")


def _read_part(source: Source, kind: str, library: Library, depth: int) -> ResolvedPart:
    """The part that the text of a file describes."""
    return resolve(read_again(source.text, source.file), kind, source, library, depth)


# What a revision has does not change, and plans of a repository name the same files.
_committed_part = lru_cache(maxsize=256)(_read_part)

# The key of a part under which another of its kind is named.
INNER_PARTS: Mapping[str, str] = {"optimizer": "otherwise"}


def _only_name(node: Node) -> Node | None:
    """`{name: adamw}` is the name."""
    return node.fields["name"] if node.fields.keys() == {"name"} else None


def _resolve_inner_part(part: ResolvedPart, kind: str, source: Source, library: Library, depth: int) -> ResolvedPart:
    """The part with the inner part that it names in place, which keeps its name."""
    inner_node = part.node.fields.get(INNER_PARTS[kind]) if kind in INNER_PARTS else None
    if inner_node is None:
        return part
    inner = resolve(inner_node, kind, source, library, depth + 1)
    # A name alone would stand for a part.
    name = {"name": Node(inner.name, inner_node.where)} if inner.node.fields else {}
    node = part.node.within({INNER_PARTS[kind]: inner.node.within(name, {})}, {})
    return replace(part, node=node, texts={**part.texts, **inner.texts})


def with_inner_parts(expanded: ExpandedDocument, source: Source, library: Library) -> ExpandedDocument:
    """The document with inner parts in place that an override names: `--set optimizer.otherwise=adamw`."""
    for kind, key in INNER_PARTS.items():
        outer = expanded.node.fields.get(kind)
        inner = outer.fields.get(key) if outer else None
        if outer is None or inner is None or not isinstance(inner.value, str):
            continue
        try:
            part = _resolve_inner_part(ResolvedPart(outer, expanded.names.get(kind, ""), {}), kind, source, library, 0)
        except SpecError as error:
            expanded = expanded.failing(kind, error)
            continue
        document = expanded.node.within({kind: part.node}, {})
        expanded = replace(expanded, node=document, texts={**expanded.texts, **part.texts})
    return expanded


def merge(base: Node, changed: Node) -> Node:
    """`changed` over `base`: mappings entry by entry, all else replaced whole; a sourced value is one value."""
    if not isinstance(base.value, Mapping) or not isinstance(changed.value, Mapping) or "value" in changed.fields:
        return changed
    fields = {
        key: merge(base.fields[key], node) if key in base.fields else node for key, node in changed.fields.items()
    }
    return Node({**base.fields, **fields}, changed.where, {**base.keys, **changed.keys})


def assume_fabric(expanded: ExpandedDocument, source: Source, library: Library) -> ExpandedDocument:
    """The document with a network from the library, marked as assumed, where the cluster does not state its own."""
    cluster = expanded.node.fields.get("cluster")
    if cluster is None or not isinstance(cluster.value, Mapping):
        return expanded
    network = cluster.fields.get("scaleout", Node({}, cluster.where))
    if isinstance(network.value, str):
        network = Node({"bandwidth": network}, network.where, {"bandwidth": network.where})
    if not isinstance(network.value, Mapping) or network.fields.keys() >= {"bandwidth", "latency", "efficiency"}:
        return expanded
    try:
        default = resolve(Node(DEFAULT_FABRIC, cluster.where), "cluster", source, library)
    except SpecError as error:
        return expanded.failing("cluster", error)
    if not {"source", "scaleout"} <= default.node.fields.keys():
        message = f"no network is stated, and `{DEFAULT_FABRIC}`, whose network would be assumed, has none or no source"
        return expanded.failing("cluster", SpecError([Problem(cluster.where, message, "`scaleout: 400 Gb/s`")]))
    publication = default.node.fields["source"]
    note = f"assumed, since the plan does not state it: as of {DEFAULT_FABRIC} ({publication.value})"
    assumed = default.node.fields["scaleout"].within({"source": Node(note, publication.where)}, {})
    document = expanded.node.within({"cluster": cluster.within({"scaleout": merge(assumed, network)}, {})}, {})
    return replace(expanded, node=document, texts={**default.texts, **expanded.texts})


def _slug(node: Node, kind: str) -> str:
    title = node.fields.get(kind)
    words = str(title.value).lower() if title is not None else "inline"
    return "-".join("".join(character if character.isalnum() else " " for character in words).split())


# --- models that are changed from another one ---

LABELS = ("spec", "model", "source", "expect", "aliases")  # of a model: no shape follows from them
CHANGED = "-changed"  # ends the name of a part with values of another that are changed


def changed_model(base: Node, model: Node, name: str) -> Node:
    """The model under a title of its own, without what is stated of `base`; unchanged where no value differs.

    Its own labels stay. Values of the base are marked as those of `name`, with the publication that has them.
    """
    if not is_changed(base, model):
        return model
    inherited = {key for key in LABELS if key in base.fields and model.fields.get(key) is base.fields[key]}
    published = base.fields.get("source")
    new_labels = {"model": Node(changed_title(name), model.where)} if "model" in inherited else {}
    as_of = f"as of {name}, which the model is changed from"
    if published is not None and "source" in inherited:
        stated = str(published.value)
        new_labels["source"] = published if stated.startswith(as_of) else Node(f"{as_of} ({stated})", published.where)
    for key in inherited - {"spec"}:
        model = model.without_key(key)
    return model.within(new_labels, {})


def is_changed(base: Node, model: Node) -> bool:
    """Whether a model says something else than its base, labels left out."""
    return any(_plain_field(base, key) != _plain_field(model, key) for key in {*base.fields, *model.fields} - {*LABELS})


def changed_title(name: str) -> str:
    """The title of a model that was changed from the one of this name, and has no title of its own."""
    return f"changed from {name}"


def name_of_base(name: str) -> str:
    """The name that a changed model was made from; any other name as it is."""
    return name.removesuffix(CHANGED)


def _plain_field(node: Node, key: str) -> object:
    return node.fields[key].plain() if key in node.fields else None


# --- links that are changed from measured ones ---

TO_HOST = ("host_link",)
# The speed of a link by its path in an accelerator's spec, and where the speed stands at which it was measured.
MEASURED: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("scaleup", "bandwidth"): ("scaleup", "measured"),
    TO_HOST: ("host_link_measured",),
}


def with_measured_links(base: Node, changed: Node) -> Node:
    """The accelerator `changed` from `base`: it says at which speed of a changed link transfers were timed.

    Devices that share only the host's link were timed over that one.
    """
    for path, measured in MEASURED.items():
        old, new = _value_at(base, path), _value_at(changed, path)
        if old is None or new is None or _is_same(old, new) or _value_at(changed, measured) is not None:
            continue
        timed_over = _value_at(base, TO_HOST) if _is_zero(old) else old
        changed = _put_value(changed, measured, timed_over) if timed_over else changed
    return changed


def _value_at(node: Node, path: tuple[str, ...]) -> Node | None:
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
    """Whether there is no such link; a value that is no speed is reported elsewhere."""
    try:
        return parse(str(speed.value), "B/s") == 0
    except QuantityError:
        return False


def _put_value(node: Node, path: tuple[str, ...], value: Node) -> Node:
    """The mapping with a value at a path of mappings that are there."""
    key, *remaining = path
    inner = _put_value(node.fields[key], tuple(remaining), value) if remaining else value
    return node.within({key: inner}, {key: value.where} if key not in node.keys else {})
