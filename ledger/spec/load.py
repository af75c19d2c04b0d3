"""Loading specs: the public functions of the stage, all of which raise SpecError with every problem at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import is_
from pathlib import Path
from typing import Any, TextIO, TypeVar

from ledger.spec import build
from ledger.spec.device_parts import for_its_device
from ledger.spec.expand import (
    PRICE,
    ExpandedDocument,
    ResolvedPart,
    assume_fabric,
    expand,
    is_changed,
    of_changed_model,
    resolve,
    with_inner_parts,
    with_measured_links,
)
from ledger.spec.expressions import ExpressionError, evaluate
from ledger.spec.faults import Fault, Faults, StatedValue, label, unknown_field
from ledger.spec.library import FOLDERS, Library, default_library, display_path, library_of
from ledger.spec.operations import NAME, STOOD
from ledger.spec.overrides import Override, apply, read_overrides
from ledger.spec.parts import PartByName, PartOf, ValuesOf, field_rows, header_of, nested_types, spec_type
from ledger.spec.paths import PLAN, Places, type_of
from ledger.spec.plan import Accelerator, Cluster, Model, Optimizer, Plan, Precision, Price, Reading, Stack
from ledger.spec.problems import FLAG, Location, Problem, SpecError
from ledger.spec.publication import Publication, Spelling
from ledger.spec.reader import Node, read, read_again
from ledger.spec.rules.table import RULES, WARNINGS, Rule, check_rules
from ledger.spec.sources import YAML, Source, exists, open_source
from ledger.spec.structures import AnyOf, DerivedType, Fields, ListOf, Row, Sourced
from ledger.spec.values import Size, ValueType

Built = TypeVar("Built")
PARTS = tuple(row.attribute for row in field_rows(Plan) if row.attribute != "title")
# Parts that a plan may leave out, as they are then; of those that are derived, no value is stated.
LEFT_OUT: Mapping[str, Any] = {"kernels": {}, "parallelism": {}} | {
    row.key: row.default for row in field_rows(Plan) if row.key in build.PLAIN_PARTS
}


def load_plan(
    path_or_text: str | Path,
    overrides: Iterable[str] = (),
    *,
    stdin: TextIO | None = None,
    library: Library | None = None,
    rules: tuple[Rule, ...] = RULES,
) -> Plan:
    """The plan of a file, `-`, `REV:path`, the name of a library plan, or a text of several lines; raises SpecError.

    `library`: where its parts are looked for by name; None: in `specs/` of its own folder and of the working
    directory, then in the library that comes with the package. `rules`: what it is held to beyond the types of its
    values (none: a plan whose layout is still to be chosen).
    """
    shelf = library or default_library()
    source = plan_source(path_or_text, stdin, shelf)
    return plan_of(source, overrides, library or library_of(source, shelf), rules)


def plan_of(source: Source, overrides: Iterable[str], shelf: Library, rules: tuple[Rule, ...] = RULES) -> Plan:
    """The plan of a text that stands somewhere; raises SpecError."""
    draft = _draft(Reading(source, tuple(overrides), shelf), rules)
    if draft.problems or draft.plan is None:
        raise SpecError(draft.problems, draft.texts)
    return draft.plan


@dataclass(frozen=True)
class Draft:
    """A plan as far as it could be read (None where a part is broken), with every problem of its spec."""

    plan: Plan | None
    problems: tuple[Problem, ...]
    texts: Mapping[str, str]


def read_with_overrides(plan: Plan, settings: Iterable[str]) -> Draft:
    """A plan that was read from a spec, read again with further `key=value` overrides."""
    if plan.reading is None:
        raise ValueError("a plan that was not read from a spec cannot be read again")
    reading = replace(plan.reading, overrides=(*plan.reading.overrides, *settings))
    try:
        return _draft(reading)
    except SpecError as error:
        return Draft(None, tuple(error.problems), error.sources)


def _draft(reading: Reading, rules: tuple[Rule, ...] = RULES) -> Draft:
    """The plan of a spec under overrides, checked; raises SpecError for what is no document of a plan."""
    source, shelf = reading.source, reading.library
    try:
        node = read_again(source.text, source.file)
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text}) from error
    wrong_kind = another_kind(node)
    if wrong_kind is not None:
        raise SpecError([wrong_kind], {source.file: source.text})
    settings = read_overrides(reading.overrides)
    texts = {setting.text: setting.text for setting in settings}
    early = [setting for setting in settings if len(setting.steps) == 1 or setting.steps == PRICE]
    late = [setting for setting in settings if setting not in early]
    expanded = expand(_apply_overrides(node, early, texts), source, shelf)
    late = [setting for setting in late if setting.steps[0] not in expanded.failed]
    changed = _apply_overrides(expanded.node, late, texts)
    if late and (device := expanded.node.fields.get("accelerator")):
        changed = changed.within({"accelerator": with_measured_links(device, changed.fields["accelerator"])}, {})
    expanded = _name_changed_model(
        replace(expanded, node=changed, texts={**expanded.texts, **texts}), expanded.node.fields.get("model")
    )
    expanded = with_inner_parts(expanded, source, shelf)
    expanded = for_its_device(assume_fabric(expanded, source, shelf), node, source, shelf)
    return _check_document(with_moved_fields(expanded, source.file), reading, rules)


def load_accelerator(name_or_path: str | Path, *, library: Library | None = None) -> Accelerator:
    """The accelerator of a name, an alias or a file; raises SpecError."""
    return _load(name_or_path, Accelerator, library or default_library())


def read_accelerator(text: str, file: str) -> Accelerator:
    """The accelerator that the text of a spec describes, wherever it is from; raises SpecError."""
    library, source = default_library(), Source(file, text, file)
    return _build_part(resolve(read(text, file), "accelerator", source, library), Accelerator, library)


def load_cluster(name_or_path: str | Path) -> Cluster:
    """The cluster of a name or a file; raises SpecError."""
    return _load(name_or_path, Cluster, default_library())


def load_price(name_or_path: str | Path) -> Price:
    """The price of a device, by the device's name or from a file; raises SpecError."""
    return _load(name_or_path, Price, default_library())


def load_model(name_or_path: str | Path) -> Model:
    """The model of a name or a file; raises SpecError."""
    return _load(name_or_path, Model, default_library())


def read_model(text: str, file: str) -> Model:
    """The model that the text of a spec describes, wherever it is from; raises SpecError."""
    library, source = default_library(), Source(file, text, Path(file).stem)
    return _build_part(resolve(read(text, file), "model", source, library), Model, library)


def load_precision(name_or_path: str | Path, *, library: Library | None = None) -> Precision:
    """The precision of a name or a file; raises SpecError."""
    return _load(name_or_path, Precision, library or default_library())


def load_optimizer(name_or_path: str | Path, *, library: Library | None = None) -> Optimizer:
    """The optimizer of a name or a file; raises SpecError."""
    return _load(name_or_path, Optimizer, library or default_library())


def load_stack(name_or_path: str | Path, *, library: Library | None = None) -> Stack:
    """The software stack of a name or a file; raises SpecError."""
    return _load(name_or_path, Stack, library or default_library())


def load_publication(name_or_path: str | Path, *, library: Library | None = None) -> Publication:
    """The runs that a publication states, by its name or from a file; raises SpecError."""
    return _load(name_or_path, Publication, library or default_library())


def load_spelling(name_or_path: str | Path, *, library: Library | None = None) -> Spelling:
    """The spellings of a column in publications, by the column's name or from a file; raises SpecError."""
    return _load(name_or_path, Spelling, library or default_library())


def plan_source(path_or_text: str | Path, stdin: TextIO | None, library: Library) -> Source:
    """The text of a plan and where it stands."""
    if isinstance(path_or_text, str) and path_or_text in library.names("plan") and not exists(path_or_text):
        return library.read(library.path("plan", path_or_text)).source
    is_path = "\n" not in str(path_or_text)
    return library.read_in_home(str(path_or_text)) if library.home and is_path else open_source(path_or_text, stdin)


def _apply_overrides(node: Node, settings: Sequence[Override], texts: dict[str, str]) -> Node:
    try:
        for setting in settings:
            node = apply(node, setting)
    except SpecError as error:
        raise SpecError(error.problems, texts) from error
    return node


def _name_changed_model(expanded: ExpandedDocument, before: Node | None) -> ExpandedDocument:
    """The document, with a library model under a new name where overrides changed it.

    A model that the plan itself writes out is changed like any of its values, but owes nothing that it expects.
    """
    model = expanded.node.fields.get("model")
    if before is None or model is None or model is before or "model" not in expanded.names:
        return expanded
    if not expanded.bases["model"]:
        changed = model.without_key("expect") if is_changed(before, model) else model
        return replace(expanded, node=expanded.node.within({"model": changed}, {}))
    part = of_changed_model(ResolvedPart(before, expanded.names["model"], {}), model)
    node, names = expanded.node.within({"model": part.node}, {}), {**expanded.names, "model": part.name}
    return replace(expanded, node=node, names=names)


def _check_document(expanded: ExpandedDocument, reading: Reading, rules: tuple[Rule, ...]) -> Draft:
    """The plan held to types and rules; a part that is broken hides only the rules that read it."""
    node, unsized = evaluate_sizes(expanded.node)
    faults: Faults = []
    stated = ValuesOf(Plan).read(StatedValue(node), faults)
    faults += _wrong_defaults(node)
    faults = [*_faults_elsewhere(faults, unsized), *unsized]
    unsound = {str(fault.path[0]) for fault in faults if fault.path and not fault.harmless} | expanded.failed
    left_out = {name: value for name, value in LEFT_OUT.items() if name not in node.fields}
    sound = {name: value for name, value in (left_out | stated).items() if name not in unsound}
    built = build.parts(sound, expanded.names)
    peak_devices = _dense_peaks(node, built.get("accelerator"), reading.library)
    places = Places(build.origins(node, expanded.named), tuple(peak_devices))
    problems = [*expanded.problems, *(fault.problem for fault in faults), *check_rules(rules, built, places)]
    plan = None
    if not unsound and all(part in built for part in PARTS):
        broken_warnings = check_rules(WARNINGS, built, places) if rules else ()
        warnings = () if problems else (*broken_warnings, *expanded.warnings)
        plan = build.plan(built, node, reading, places, warnings)
    return Draft(plan, tuple(problems), expanded.texts)


def _wrong_defaults(node: Node) -> Faults:
    """Faults in a stack's defaults for plans: paths that no plan has, and values of wrong types."""
    steps = ("stack", "defaults", "plan")
    for step in steps:
        node = node.fields.get(step, Node(None, node.where))
    return plan_value_faults(StatedValue(node, steps))


def _faults_elsewhere(faults: Faults, reported: Faults) -> Faults:
    """The faults about places that no reported fault is about."""
    places = {fault.problem.where for fault in reported}
    return [fault for fault in faults if fault.problem.where not in places]


def _dense_peaks(node: Node, accelerator: Accelerator | None, library: Library) -> Iterator[Accelerator]:
    """Devices whose dense peaks are known: the half of this one's sparse table, and the library if it is not of it."""
    if accelerator is None:
        return
    fields = node.fields["accelerator"].fields
    if accelerator.sparse_peak:
        yield replace(accelerator, peak={dtype: rate / 2 for dtype, rate in accelerator.sparse_peak.items()})
    folders = [Path(display_path(root / FOLDERS["accelerator"])) for root in library.roots]
    if all(Path(entry.where.file).parent in folders for entry in fields["peak"].fields.values()):
        return
    for name in library.names("accelerator"):
        with suppress(SpecError):
            if device := PartByName(Accelerator).read(
                StatedValue(_resolve_part(name, "accelerator", library).node), []
            ):
                yield build.with_name(device, name)


def _resolve_part(name_or_path: str | Path, kind: str, library: Library) -> ResolvedPart:
    """A part by name or by path, outside any plan."""
    path = Path(name_or_path)
    source = Source(str(name_or_path), "", path.stem)
    if path.suffix in YAML or isinstance(name_or_path, Path):
        source = open_source(name_or_path)
        try:
            part = resolve(read(source.text, source.file), kind, source, library)
        except SpecError as error:
            raise SpecError(error.problems, {source.file: source.text, **error.sources}) from error
        return replace(part, name=source.name, texts={source.file: source.text, **part.texts})
    return resolve(Node(str(name_or_path), Location(str(name_or_path))), kind, source, library)


def _load(name_or_path: str | Path, cls: type[Built], library: Library) -> Built:
    """A part by itself, held to the types of its fields and to the rules that read nothing else."""
    return _build_part(_resolve_part(name_or_path, header_of(cls).kind, library), cls, library)


def _build_part(part: ResolvedPart, cls: type[Built], library: Library) -> Built:
    """The part as its class; raises SpecError with what types and rules find."""
    known_class: type = cls
    kind = header_of(cls).kind
    document, unsized = evaluate_sizes(Node({kind: part.node}, part.node.where))
    faults: Faults = []
    value = spec_type(known_class).read(StatedValue(document.fields[kind]), faults)
    faults += _wrong_defaults(document)
    faults = [*_faults_elsewhere(faults, unsized), *unsized]
    problems: list[Problem] = [fault.problem for fault in faults]
    if all(fault.harmless for fault in faults):
        built: Built = build.with_name(value, part.name)
        peak_devices = _dense_peaks(document, built, library) if isinstance(built, Accelerator) else ()
        problems += check_rules(RULES, {kind: built}, Places(build.origins(document, {}), tuple(peak_devices)))
        if not problems:
            return built
    raise SpecError(problems, part.texts)


# --- specs of another kind than a plan ---

# Fields that only one kind of spec has.
TELLING: Mapping[str, str] = {
    "lecture": "lecture",
    "questions": "lecture",
    "suite": "suite",
    "evidence": "evidence",
    "layers": "model",
    "peak": "accelerator",
    "scaleout": "cluster",
    "per_device_hour": "price",
    "compute": "precision",
    "matmul": "precision",
    "flops": "optimizer",
    "update": "optimizer",
    "overlap": "stack",
    "date": "stack",
}


def another_kind(node: Node) -> Problem | None:
    """The problem of a spec that is no plan, if its fields tell which kind it is of."""
    if "evidence" not in node.fields and ("plan" in node.fields or "run" in node.fields):
        return None
    for key, kind in TELLING.items():
        if key in node.fields:
            help_text = "give a plan, for example one of `ledger list plan`"
            return Problem(node.keys.get(key, node.where), f"this is a spec of kind `{kind}`, not a plan", help_text)
    return None


# --- the keys that a plan may state ---

HEADERS = ("spec", "source", "base", "title")  # keys that say nothing of a plan's books
FIRST = "0"  # of a list, the entry that stands for all
LAYERS = f"model.layers.{FIRST}."  # what is said of every layer leaves this out


@cache
def plan_keys() -> tuple[str, ...]:
    """The paths of a plan's values as `--set` takes them; of lists (layers), those of the first entry."""
    return tuple(dict.fromkeys(_paths_below(PLAN, "", ())))


def plan_value_faults(values: StatedValue) -> Faults:
    """Faults in values held by their paths: paths that no plan has, and values of wrong types."""
    faults: Faults = []
    for path, node in values.node.fields.items():
        kind = type_of(path) or type_of(LAYERS + path)
        if kind is None:
            known_paths = (*plan_keys(), *(key.removeprefix(LAYERS) for key in plan_keys() if key.startswith(LAYERS)))
            faults.append(unknown_field(values, path, known_paths))
        elif not isinstance(kind, PartByName):
            kind.read(values.inner(path, node), faults)
    return faults


def _paths_below(kind: ValueType, path: str, within: tuple[type, ...]) -> Iterator[str]:
    """The paths below a value; a part within itself is not entered again."""
    if isinstance(kind, PartOf):
        if kind.cls not in within:
            yield from _paths_below(spec_type(kind.cls), path, (*within, kind.cls))
    elif isinstance(kind, Fields):
        for row in kind.rows:
            if row.key not in HEADERS:
                inner = f"{path}.{row.key}" if path else row.key
                yield inner
                yield from _paths_below(row.type, inner, within)
    elif isinstance(kind, AnyOf | DerivedType):
        for inner_kind in kind.inners:
            yield from _paths_below(inner_kind, path, within)
    elif isinstance(kind, Sourced):
        yield from _paths_below(kind.inner, path, within)
    elif isinstance(kind, ListOf) and isinstance(kind.item, PartOf):
        yield from _paths_below(kind.item, f"{path}.{FIRST}", within)


# --- sizes written as expressions: `d_ff: 4 * d_model` -> its whole number ---

SHARED_PARTS = ("cluster", "parallelism", "run")  # parts that may name each other's sizes
Scope = tuple[Mapping[str, Node], ...]


@cache
def size_names() -> frozenset[str]:
    """The fields that hold a size."""
    rows = (entry for entry in nested_types(PartOf(Plan)) if isinstance(entry, Row))
    return frozenset(row.key for row in rows if isinstance(row.type, Size))


def evaluate_sizes(root: Node) -> tuple[Node, Faults]:
    """A plan whose sizes are numbers, and the faults of those that stay since they could not be evaluated."""
    sizes = _Sizes()
    shared: Scope = tuple(root.fields[part].fields for part in SHARED_PARTS if part in root.fields)
    scopes = {**dict.fromkeys(SHARED_PARTS, shared), "model": ()}
    fields = {
        part: sizes.walk(root.fields[part], scope, (part,)) for part, scope in scopes.items() if part in root.fields
    }
    return root.within(fields, {}), sizes.problems


@dataclass(frozen=True)
class _Sizes:
    """The sizes of one document: each is evaluated once, however many others name it."""

    problems: Faults = field(default_factory=list)
    known: dict[tuple[int, int, str], int | ExpressionError] = field(default_factory=dict)

    def walk(self, node: Node, scope: Scope, path: tuple[str, ...]) -> Node:
        """The value with numbers for sizes; the node itself where there is nothing to evaluate."""
        if isinstance(node.value, tuple):
            items = tuple(self.walk(item, scope, path) for item in node.items)
            return node if all(map(is_, items, node.items)) else Node(items, node.where)
        if not isinstance(node.value, Mapping):
            return node
        inner = (node.fields, *scope)
        fields = {}
        for key, value in node.fields.items():
            fields[key] = self.walk(value, inner, (*path, key))
            if key in size_names() and isinstance(value.value, str):
                try:
                    fields[key] = Node(self.named(key, inner, ()), value.where)
                except ExpressionError as error:
                    problem = Problem(value.where, f"{label((*path, key))}: {error.message}", error.help)
                    self.problems.append(Fault((*path, key), problem))
        return node if all(map(is_, fields.values(), node.fields.values())) else Node(fields, node.where, node.keys)

    def named(self, name: str, scope: Scope, asked: tuple[str, ...]) -> int:
        """The size of that name, nearest first; KeyError where there is none, ExpressionError where it has no value."""
        if name in asked:
            raise ExpressionError(f"`{name}` is defined by itself", " -> ".join((*asked, name)))
        for depth, fields in enumerate(scope):
            value = fields[name].value if name in fields else None
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if isinstance(value, str) and name in size_names():
                return self.evaluated(name, value, scope[depth:], asked)
        raise KeyError(name)

    def evaluated(self, name: str, text: str, scope: Scope, asked: tuple[str, ...]) -> int:
        """The size that an expression gives, its names looked up in its scope; raises ExpressionError."""
        place = (id(scope[0]), len(scope), name)
        if place not in self.known:
            lookup = partial(self.named, scope=scope, asked=(*asked, name))
            try:
                self.known[place] = evaluate(text, lookup, partial(_sizes_in_scope, scope))
            except ExpressionError as error:
                self.known[place] = error
            except RecursionError:
                self.known[place] = ExpressionError(f"`{name}` is nested too deep", "write the number")
        size = self.known[place]
        if isinstance(size, ExpressionError):
            raise size
        return size


def _sizes_in_scope(scope: Scope) -> list[str]:
    return sorted({name for fields in scope for name in fields if name in size_names()})


# --- fields that have moved to another part ---

LIBRARY, PLAN_KEYS, TYPED = range(3)  # who says a value: the stronger last


def with_moved_fields(expanded: ExpandedDocument, file: str) -> ExpandedDocument:
    """The plan with each field where it stands now.

    Of two spellings one that is typed on the command line holds over the plan's (`file`), and the plan's over that of
    a part on file; two that the same hand wrote are a problem.
    """
    for (part, key), new_key in STOOD.items():
        old_node = expanded.node.fields.get(part, expanded.node)
        value = old_node.fields.get(key)
        if value is None or old_node is expanded.node:
            continue
        holder = expanded.node.fields.get(NAME)
        if holder is not None and not isinstance(holder.value, Mapping):
            continue  # that it is no mapping is reported with its type
        expanded = replace(expanded, node=expanded.node.within({part: old_node.without_key(key)}, {}))
        stated = holder.fields.get(new_key) if holder else None
        if stated is not None and _writer_rank(stated, file) >= _writer_rank(value, file):
            if _writer_rank(stated, file) == _writer_rank(value, file):
                where = old_node.keys.get(key, value.where)
                message = f"`{part}.{key}` and `{NAME}.{new_key}` say the same thing twice"
                problem = Problem(where, message, f"leave out `{part}.{key}`: it is the old place")
                expanded = replace(expanded, problems=(*expanded.problems, problem))
            continue
        place = old_node.keys.get(key, value.where)
        inner = (holder or Node({}, value.where)).within({new_key: value}, {new_key: place})
        expanded = replace(expanded, node=expanded.node.within({NAME: inner}, {} if holder else {NAME: place}))
    return expanded


def _writer_rank(value: Node, file: str) -> int:
    """Who wrote a value: the library, the plan's file, or the command line."""
    place = value.fields.get("value", value).where.file
    return TYPED if place.startswith(FLAG) else PLAN_KEYS if place == file else LIBRARY
