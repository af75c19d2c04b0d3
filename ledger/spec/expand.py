"""Named parts -> their specs: every part of a plan in one document, each value still with its own place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ledger.spec.library import Library
from ledger.spec.near import LISTED
from ledger.spec.plan import PRICE_EXAMPLE
from ledger.spec.problems import FLAG, Location, Problem, SpecError
from ledger.spec.quantities import QuantityError, parse
from ledger.spec.reader import Node, read_again
from ledger.spec.sources import Source

LABELS = ("spec", "model", "source", "expect", "aliases")  # of a model: no shape follows from them
CHANGED = "-changed"  # ends the name of a part with values of another that are changed


def changed_model(base: Node, model: Node, name: str) -> Node:
    """The model under a title of its own, without what is stated of `base`; the same where no value is another.

    What it states itself stays. Values of the base are said to be as of `name`, with the publication that has them.
    """
    if not is_changed(base, model):
        return model
    inherited = {key for key in LABELS if key in base.fields and model.fields.get(key) is base.fields[key]}
    published = base.fields.get("source")
    told = {"model": Node(changed_title(name), model.where)} if "model" in inherited else {}
    as_of = f"as of {name}, which the model is changed from"
    if published is not None and "source" in inherited:
        stated = str(published.value)
        told["source"] = published if stated.startswith(as_of) else Node(f"{as_of} ({stated})", published.where)
    for key in inherited - {"spec"}:
        model = model.without(key)
    return model.within(told, {})


def is_changed(base: Node, model: Node) -> bool:
    """Whether a model says something else than its base, labels left out."""
    return any(_said(base, key) != _said(model, key) for key in {*base.fields, *model.fields} - {*LABELS})


def changed_title(name: str) -> str:
    """The title of a model that was changed from the one of this name, and has no title of its own."""
    return f"changed from {name}"


def name_of_base(name: str) -> str:
    """The name that a changed model was made from; any other name as it is."""
    return name.removesuffix(CHANGED)


def _said(node: Node, key: str) -> object:
    return node.fields[key].plain() if key in node.fields else None


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


NAMED_PARTS = ("accelerator", "cluster", "model", "precision", "optimizer", "stack")
DEFAULT_PARTS: Mapping[str, str] = {"stack": "pytorch-fsdp2-2025", "optimizer": "adamw"}  # of parts left out
SERVING_PARTS: Mapping[str, str] = {**DEFAULT_PARTS, "stack": "serving"}  # the same of a plan that serves
DEFAULT_FABRIC = "h100-400g"  # the cluster whose network is assumed where a plan states none
PRICE = ("assumptions", "price")  # where a plan states one
LONGEST_CHAIN = 8  # parts that are based on parts
HERE = Source("", "", "")  # beside what is typed on the command line: the folder in which it is typed


@dataclass(frozen=True)
class Expanded:
    """A document with its parts in place; `failed` are those that could not be read, with the problems.

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

    def having(self, kind: str, part: ResolvedPart, place: Location) -> Expanded:
        """The same with one part more in place."""
        return replace(
            self,
            node=self.node.within({kind: part.node}, {kind: self.node.keys.get(kind, place)}),
            texts={**self.texts, **part.texts},
            names={**self.names, kind: part.name},
            named={**self.named, kind: place},
            bases={**self.bases, kind: part.bases},
        )

    def stating(self, path: tuple[str, str], part: ResolvedPart) -> Expanded:
        """The same with a part in place that stands within another one, which is made where there is none."""
        outer, key = path
        holder = self.node.fields.get(outer, Node({}, part.node.where)).within({key: part.node}, {})
        return replace(self, node=self.node.within({outer: holder}, {}), texts={**self.texts, **part.texts})

    def failing(self, part: str, error: SpecError) -> Expanded:
        """The same with one part more that could not be read."""
        texts = {**self.texts, **error.sources}
        return replace(self, texts=texts, problems=(*self.problems, *error.problems), failed=self.failed | {part})


@dataclass(frozen=True)
class ResolvedPart:
    """One part in full: its node, the name it goes by, the texts its values stand in, the names it is based on."""

    node: Node
    name: str
    texts: Mapping[str, str]
    bases: tuple[str, ...] = ()


def expand(node: Node, source: Source, library: Library) -> Expanded:
    """The plan with each named or based part replaced by what it stands for."""
    whole = Expanded(node, {source.file: source.text}, {}, {})
    left_out = SERVING_PARTS if "serve" in node.fields else DEFAULT_PARTS
    for kind in NAMED_PARTS:
        given = node.fields.get(kind)
        if given is None and kind in left_out:
            given = Node(left_out[kind], node.where)
        if given is None:
            continue
        try:
            part = resolve(given, kind, source, library)
        except SpecError as error:
            whole = whole.failing(kind, error)
            continue
        whole = whole.having(kind, part, given.where if kind in node.fields else part.node.where)
    return _with_named_price(whole, source, library)


def _with_named_price(whole: Expanded, source: Source, library: Library) -> Expanded:
    """The same with a price that is named or based on another in place: the one part within a part."""
    kind, key = PRICE
    assumptions = whole.node.fields.get(kind)
    if assumptions is None or key not in assumptions.fields:
        return whole
    try:
        price = resolve(assumptions.fields[key], key, source, library)
    except SpecError as error:
        return whole.failing(kind, _with_example(error))
    return whole.stating(PRICE, price)


def _with_example(error: SpecError) -> SpecError:
    """The same, with how a price is written out where what is written is like no name of one: most have no name."""
    problems = (
        replace(problem, help=f"write it out: `{PRICE_EXAMPLE}`; {problem.help}")
        if problem.help.startswith(LISTED)
        else problem
        for problem in error.problems
    )
    return SpecError(problems, error.sources)


def resolve(given: Node, kind: str, beside: Source, library: Library, depth: int = 0) -> ResolvedPart:
    """What a name, a mapping, or a mapping with `base` stands for; raises SpecError."""
    if depth > LONGEST_CHAIN:
        raise SpecError(
            [Problem(given.where, f"more than {LONGEST_CHAIN} parts are based on each other", "is there a circle?")]
        )
    named = given if isinstance(given.value, str) else given.fields.get("base", _only_name(given))
    if named is None or not isinstance(named.value, str):
        return _with_inner(ResolvedPart(given, _slug(given, kind), {}), kind, beside, library, depth)
    source = library.find(kind, named.value, named.where, HERE if named.where.file.startswith(FLAG) else beside)
    texts = {source.file: source.text}
    try:
        below = (_committed_part if source.revision else _part_of)(source, kind, library, depth + 1)
    except SpecError as error:
        raise SpecError(error.problems, {**texts, **error.sources}) from error
    part = replace(below, name=source.name, texts={**texts, **below.texts}, bases=(source.name, *below.bases))
    if named is given:
        return part
    own = {key: inner for key, inner in given.fields.items() if key != "base" and inner is not named}
    merged = merge(part.node, Node(own, given.where, given.keys))
    overridden = _overridden(part, merged, kind)
    return _with_inner(overridden, kind, beside, library, depth) if INNER_PARTS.get(kind) in own else overridden


def _overridden(part: ResolvedPart, merged: Node, kind: str) -> ResolvedPart:
    """A part with values over its own: rates of links that were measured go, and so does what a model is called."""
    if kind == "accelerator":
        return replace(part, node=with_measured_links(part.node, merged))
    return of_changed_model(part, merged) if kind == "model" else replace(part, node=merged)


def of_changed_model(part: ResolvedPart, merged: Node) -> ResolvedPart:
    """A model that was `part`, under a name of its own where a value is another."""
    base = name_of_base(part.name)
    changed = changed_model(part.node, merged, base)
    return replace(part, node=changed, name=part.name if changed is merged else f"{base}{CHANGED}")


def _part_of(source: Source, kind: str, library: Library, depth: int) -> ResolvedPart:
    """The part that the text of a file describes."""
    return resolve(read_again(source.text, source.file), kind, source, library, depth)


# What a revision has does not change, and plans of a repository name the same files.
_committed_part = lru_cache(maxsize=256)(_part_of)


# The key of a part under which another of its kind is named.
INNER_PARTS: Mapping[str, str] = {"optimizer": "otherwise"}


def _only_name(given: Node) -> Node | None:
    """`{name: adamw}` is the name."""
    return given.fields["name"] if given.fields.keys() == {"name"} else None


def _with_inner(part: ResolvedPart, kind: str, beside: Source, library: Library, depth: int) -> ResolvedPart:
    """The part with the one that it names in place, which keeps its name."""
    given = part.node.fields.get(INNER_PARTS[kind]) if kind in INNER_PARTS else None
    if given is None:
        return part
    inner = resolve(given, kind, beside, library, depth + 1)
    name = {"name": Node(inner.name, given.where)} if inner.node.fields else {}  # a name alone would stand for a part
    named = inner.node.within(name, {})
    return replace(part, node=part.node.within({INNER_PARTS[kind]: named}, {}), texts={**part.texts, **inner.texts})


def with_inner_parts(whole: Expanded, source: Source, library: Library) -> Expanded:
    """The same with parts in place that an override names within another one: `--set optimizer.otherwise=adamw`."""
    for kind, key in INNER_PARTS.items():
        outer = whole.node.fields.get(kind)
        inner = outer.fields.get(key) if outer else None
        if outer is None or inner is None or not isinstance(inner.value, str):
            continue
        try:
            part = _with_inner(ResolvedPart(outer, whole.names.get(kind, ""), {}), kind, source, library, 0)
        except SpecError as error:
            whole = whole.failing(kind, error)
            continue
        whole = replace(whole, node=whole.node.within({kind: part.node}, {}), texts={**whole.texts, **part.texts})
    return whole


def merge(below: Node, above: Node) -> Node:
    """`above` over `below`: mappings entry by entry, all else replaced whole; a sourced value is one value."""
    if not isinstance(below.value, Mapping) or not isinstance(above.value, Mapping) or "value" in above.fields:
        return above
    fields = {
        key: merge(below.fields[key], node) if key in below.fields else node for key, node in above.fields.items()
    }
    return Node({**below.fields, **fields}, above.where, {**below.keys, **above.keys})


def assume_fabric(whole: Expanded, source: Source, library: Library) -> Expanded:
    """The same, with what the cluster does not say of its network taken from the library, and marked as assumed."""
    cluster = whole.node.fields.get("cluster")
    if cluster is None or not isinstance(cluster.value, Mapping):
        return whole
    given = cluster.fields.get("scaleout", Node({}, cluster.where))
    if isinstance(given.value, str):
        given = Node({"bandwidth": given}, given.where, {"bandwidth": given.where})
    if not isinstance(given.value, Mapping) or given.fields.keys() >= {"bandwidth", "latency", "efficiency"}:
        return whole
    try:
        default = resolve(Node(DEFAULT_FABRIC, cluster.where), "cluster", source, library)
    except SpecError as error:
        return whole.failing("cluster", error)
    if not {"source", "scaleout"} <= default.node.fields.keys():
        message = f"no network is stated, and `{DEFAULT_FABRIC}`, whose network would be assumed, has none or no source"
        return whole.failing("cluster", SpecError([Problem(cluster.where, message, "`scaleout: 400 Gb/s`")]))
    publication = default.node.fields["source"]
    note = f"assumed, since the plan does not state it: as of {DEFAULT_FABRIC} ({publication.value})"
    assumed = default.node.fields["scaleout"].within({"source": Node(note, publication.where)}, {})
    cluster = cluster.within({"scaleout": merge(assumed, given)}, {})
    return replace(whole, node=whole.node.within({"cluster": cluster}, {}), texts={**default.texts, **whole.texts})


def _slug(node: Node, kind: str) -> str:
    title = node.fields.get(kind)
    words = str(title.value).lower() if title is not None else "inline"
    return "-".join("".join(character if character.isalnum() else " " for character in words).split())
