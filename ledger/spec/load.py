"""Loading specs: the public functions of the stage. What they raise is SpecError, with every problem at once."""

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
    Expanded,
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
from ledger.spec.faults import Fault, Faults, Written, label, unknown_field
from ledger.spec.hardware import PEAK_RATES
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
from ledger.spec.structures import AnyOf, Fields, ListOf, Made, Row, Sourced
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
    """What a spec says, legal or not: the plan, None where a part of it could not be read, and every problem."""

    plan: Plan | None
    problems: tuple[Problem, ...]
    texts: Mapping[str, str]


def revised(plan: Plan, settings: Iterable[str]) -> Draft:
    """A plan that was read from a spec, read again with further `key=value` overrides."""
    if plan.reading is None:
        raise ValueError("a plan that was not read from a spec cannot be read again")
    reading = replace(plan.reading, overrides=(*plan.reading.overrides, *settings))
    try:
        return _draft(reading)
    except SpecError as error:
        return Draft(None, tuple(error.problems), error.sources)


def _draft(reading: Reading, rules: tuple[Rule, ...] = RULES) -> Draft:
    """What a spec says under overrides; raises SpecError for what is no document of a plan."""
    source, shelf = reading.source, reading.library
    try:
        node = read_again(source.text, source.file)
    except SpecError as error:
        raise SpecError(error.problems, {source.file: source.text}) from error
    other = another_kind(node)
    if other is not None:
        raise SpecError([other], {source.file: source.text})
    settings = read_overrides(reading.overrides)
    texts = {setting.text: setting.text for setting in settings}
    early = [setting for setting in settings if len(setting.steps) == 1 or setting.steps == PRICE]
    late = [setting for setting in settings if setting not in early]
    whole = expand(_applied(node, early, texts), source, shelf)
    late = [setting for setting in late if setting.steps[0] not in whole.failed]
    changed = _applied(whole.node, late, texts)
    if late and (device := whole.node.fields.get("accelerator")):
        changed = changed.within({"accelerator": with_measured_links(device, changed.fields["accelerator"])}, {})
    whole = _under_own_name(
        replace(whole, node=changed, texts={**whole.texts, **texts}), whole.node.fields.get("model")
    )
    whole = with_inner_parts(whole, source, shelf)
    whole = for_its_device(assume_fabric(whole, source, shelf), node, source, shelf)
    return _checked(in_new_places(whole, source.file), reading, rules)


def load_accelerator(given: str | Path, *, library: Library | None = None) -> Accelerator:
    """The accelerator of a name, an alias or a file; raises SpecError."""
    return _load(given, Accelerator, library or default_library())


def read_accelerator(text: str, file: str) -> Accelerator:
    """The accelerator that the text of a spec describes, wherever it is from; raises SpecError."""
    library, source = default_library(), Source(file, text, file)
    return _held(resolve(read(text, file), "accelerator", source, library), Accelerator, library)


def load_cluster(given: str | Path) -> Cluster:
    """The cluster of a name or a file; raises SpecError."""
    return _load(given, Cluster, default_library())


def load_price(given: str | Path) -> Price:
    """The price of a device, by the device's name or from a file; raises SpecError."""
    return _load(given, Price, default_library())


def load_model(given: str | Path) -> Model:
    """The model of a name or a file; raises SpecError."""
    return _load(given, Model, default_library())


def read_model(text: str, file: str) -> Model:
    """The model that the text of a spec describes, wherever it is from; raises SpecError."""
    library, source = default_library(), Source(file, text, Path(file).stem)
    return _held(resolve(read(text, file), "model", source, library), Model, library)


def load_precision(given: str | Path, *, library: Library | None = None) -> Precision:
    """The precision of a name or a file; raises SpecError."""
    return _load(given, Precision, library or default_library())


def load_optimizer(given: str | Path, *, library: Library | None = None) -> Optimizer:
    """The optimizer of a name or a file; raises SpecError."""
    return _load(given, Optimizer, library or default_library())


def load_stack(given: str | Path, *, library: Library | None = None) -> Stack:
    """The software stack of a name or a file; raises SpecError."""
    return _load(given, Stack, library or default_library())


def load_publication(given: str | Path, *, library: Library | None = None) -> Publication:
    """What a publication states of its runs, by its name or from a file; raises SpecError."""
    return _load(given, Publication, library or default_library())


def load_spelling(given: str | Path, *, library: Library | None = None) -> Spelling:
    """How publications spell what a column says, by the column's name or from a file; raises SpecError."""
    return _load(given, Spelling, library or default_library())


def plan_source(given: str | Path, stdin: TextIO | None, library: Library) -> Source:
    """The text of a plan and where it stands."""
    if isinstance(given, str) and given in library.names("plan") and not exists(given):
        return library.read(library.path("plan", given)).source
    is_path = "\n" not in str(given)
    return library.sealed(str(given)) if library.home and is_path else open_source(given, stdin)


def _applied(node: Node, settings: Sequence[Override], texts: dict[str, str]) -> Node:
    try:
        for setting in settings:
            node = apply(node, setting)
    except SpecError as error:
        raise SpecError(error.problems, texts) from error
    return node


def _under_own_name(whole: Expanded, before: Node | None) -> Expanded:
    """The same, with a model of the library called by a name of its own where overrides made it another.

    A model that the plan itself writes out is changed like any of its values, but owes nothing that it expects.
    """
    model = whole.node.fields.get("model")
    if before is None or model is None or model is before or "model" not in whole.names:
        return whole
    if not whole.bases["model"]:
        changed = model.without("expect") if is_changed(before, model) else model
        return replace(whole, node=whole.node.within({"model": changed}, {}))
    part = of_changed_model(ResolvedPart(before, whole.names["model"], {}), model)
    return replace(whole, node=whole.node.within({"model": part.node}, {}), names={**whole.names, "model": part.name})


def _checked(whole: Expanded, reading: Reading, rules: tuple[Rule, ...]) -> Draft:
    """The plan with what types and rules find; a part that is broken hides only the rules that read it."""
    node, unsized = evaluate_sizes(whole.node)
    found: Faults = []
    stated = ValuesOf(Plan).read(Written(node), found)
    found += _wrong_defaults(node)
    found = [*_but(found, unsized), *unsized]
    unsound = {str(fault.path[0]) for fault in found if fault.path and not fault.harmless} | whole.failed
    left_out = {name: value for name, value in LEFT_OUT.items() if name not in node.fields}
    sound = {name: value for name, value in (left_out | stated).items() if name not in unsound}
    built = build.parts(sound, whole.names)
    at = Places(build.origins(node, whole.named), tuple(_dense_peaks(node, built.get("accelerator"), reading.library)))
    problems = [*whole.problems, *(fault.problem for fault in found), *check_rules(rules, built, at)]
    plan = None
    if not unsound and all(part in built for part in PARTS):
        heeded = check_rules(WARNINGS, built, at) if rules else ()
        warnings = () if problems else (*heeded, *whole.warnings)
        plan = build.plan(built, node, reading, at, warnings)
    return Draft(plan, tuple(problems), whole.texts)


def _wrong_defaults(node: Node) -> Faults:
    """What no plan may state of that which a stack states where a run leaves it open."""
    steps = ("stack", "defaults", "plan")
    for step in steps:
        node = node.fields.get(step, Node(None, node.where))
    return misfits(Written(node, steps))


def _but(found: Faults, told: Faults) -> Faults:
    """The faults about other places than those that are told already."""
    places = {fault.problem.where for fault in told}
    return [fault for fault in found if fault.problem.where not in places]


def _dense_peaks(node: Node, accelerator: Accelerator | None, library: Library) -> Iterator[Accelerator]:
    """Devices whose dense peaks are known: the half of this one's sparse table, and the library if it is not of it."""
    if accelerator is None:
        return
    fields = node.fields["accelerator"].fields
    if "sparse_peak" in fields:
        sparse = PEAK_RATES.value(Written(fields["sparse_peak"]), [])
        yield replace(accelerator, peak={dtype: rate / 2 for dtype, rate in sparse.items()})
    folders = [Path(display_path(root / FOLDERS["accelerator"])) for root in library.roots]
    if all(Path(entry.where.file).parent in folders for entry in fields["peak"].fields.values()):
        return
    for name in library.names("accelerator"):
        with suppress(SpecError):
            if known := PartByName(Accelerator).read(Written(_part(name, "accelerator", library).node), []):
                yield build.named(known, name)


def _part(given: str | Path, kind: str, library: Library) -> ResolvedPart:
    """A part by name or by path, on its own."""
    path = Path(given)
    beside = Source(str(given), "", path.stem)
    if path.suffix in YAML or isinstance(given, Path):
        beside = open_source(given)
        try:
            part = resolve(read(beside.text, beside.file), kind, beside, library)
        except SpecError as error:
            raise SpecError(error.problems, {beside.file: beside.text, **error.sources}) from error
        return replace(part, name=beside.name, texts={beside.file: beside.text, **part.texts})
    return resolve(Node(str(given), Location(str(given))), kind, beside, library)


def _load(given: str | Path, cls: type[Built], library: Library) -> Built:
    """A part by itself, held to the types of its fields and to the rules that read nothing else."""
    return _held(_part(given, header_of(cls).kind, library), cls, library)


def _held(given: ResolvedPart, cls: type[Built], library: Library) -> Built:
    known_class: type = cls
    kind = header_of(cls).kind
    whole, unsized = evaluate_sizes(Node({kind: given.node}, given.node.where))
    found: Faults = []
    value = spec_type(known_class).read(Written(whole.fields[kind]), found)
    found += _wrong_defaults(whole)
    found = [*_but(found, unsized), *unsized]
    problems: list[Problem] = [fault.problem for fault in found]
    if all(fault.harmless for fault in found):
        built: Built = build.named(value, given.name)
        known = _dense_peaks(whole, built, library) if isinstance(built, Accelerator) else ()
        problems += check_rules(RULES, {kind: built}, Places(build.origins(whole, {}), tuple(known)))
        if not problems:
            return built
    raise SpecError(problems, given.texts)


# --- What is said of a spec that is no plan at all, but of another kind ---

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
    """What to say of a spec that is no plan at all, if its fields tell what it is."""
    if "evidence" not in node.fields and ("plan" in node.fields or "run" in node.fields):
        return None
    for key, kind in TELLING.items():
        if key in node.fields:
            help_text = "give a plan, for example one of `ledger list plan`"
            return Problem(node.keys.get(key, node.where), f"this is a spec of kind `{kind}`, not a plan", help_text)
    return None


# --- keys ---

HEADERS = ("spec", "source", "base", "title")  # keys that say nothing of a plan's books
FIRST = "0"  # of a list, the entry that stands for all
LAYERS = f"model.layers.{FIRST}."  # what is said of every layer leaves this out


@cache
def plan_keys() -> tuple[str, ...]:
    """The paths of a plan's values as `--set` takes them; of lists (layers), those of the first entry."""
    return tuple(dict.fromkeys(_below(PLAN, "", ())))


def misfits(values: Written) -> Faults:
    """What a plan cannot say of the values that a mapping holds by their paths."""
    found: Faults = []
    for path, node in values.node.fields.items():
        kind = type_of(path) or type_of(LAYERS + path)
        if kind is None:
            known = (*plan_keys(), *(key.removeprefix(LAYERS) for key in plan_keys() if key.startswith(LAYERS)))
            found.append(unknown_field(values, path, known))
        elif not isinstance(kind, PartByName):
            kind.read(values.inner(path, node), found)
    return found


def _below(kind: ValueType, path: str, within: tuple[type, ...]) -> Iterator[str]:
    """The paths below a value; a part within itself is not entered again."""
    if isinstance(kind, PartOf):
        if kind.cls not in within:
            yield from _below(spec_type(kind.cls), path, (*within, kind.cls))
    elif isinstance(kind, Fields):
        for row in kind.rows:
            if row.key not in HEADERS:
                inner = f"{path}.{row.key}" if path else row.key
                yield inner
                yield from _below(row.type, inner, within)
    elif isinstance(kind, AnyOf | Made):
        for inner_kind in kind.inners:
            yield from _below(inner_kind, path, within)
    elif isinstance(kind, Sourced):
        yield from _below(kind.inner, path, within)
    elif isinstance(kind, ListOf) and isinstance(kind.item, PartOf):
        yield from _below(kind.item, f"{path}.{FIRST}", within)


# --- Sizes written as expressions, evaluated in place: `d_ff: 4 * d_model` -> its whole number ---

SHARED_PARTS = ("cluster", "parallelism", "run")  # parts that may name each other's sizes
Scope = tuple[Mapping[str, Node], ...]


@cache
def size_names() -> frozenset[str]:
    """The fields that hold a size."""
    rows = (entry for entry in nested_types(PartOf(Plan)) if isinstance(entry, Row))
    return frozenset(row.key for row in rows if isinstance(row.type, Size))


def evaluate_sizes(root: Node) -> tuple[Node, Faults]:
    """A plan whose sizes are numbers; those that could not be evaluated stay, each with what is wrong with it."""
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
        """The same value with numbers for sizes; the very same node where there is nothing to evaluate."""
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
        """What the expression of a name gives, whose own names are looked up in its scope; raises ExpressionError."""
        place = (id(scope[0]), len(scope), name)
        if place not in self.known:
            lookup = partial(self.named, scope=scope, asked=(*asked, name))
            try:
                self.known[place] = evaluate(text, lookup, partial(_known, scope))
            except ExpressionError as error:
                self.known[place] = error
            except RecursionError:
                self.known[place] = ExpressionError(f"`{name}` is nested too deep", "write the number")
        found = self.known[place]
        if isinstance(found, ExpressionError):
            raise found
        return found


def _known(scope: Scope) -> list[str]:
    return sorted({name for fields in scope for name in fields if name in size_names()})


# --- Fields that have moved to another part ---

LIBRARY, PLAN_KEYS, TYPED = range(3)  # who says a value: the stronger last


def in_new_places(whole: Expanded, file: str) -> Expanded:
    """The plan with each field where it stands now.

    Of two spellings one that is typed on the command line holds over the plan's (`file`), and the plan's over that of
    a part on file; two that the same hand wrote are a problem.
    """
    for (part, key), new_key in STOOD.items():
        old_node = whole.node.fields.get(part, whole.node)
        value = old_node.fields.get(key)
        if value is None or old_node is whole.node:
            continue
        holder = whole.node.fields.get(NAME)
        if holder is not None and not isinstance(holder.value, Mapping):
            continue  # what it is instead is told by its type
        whole = replace(whole, node=whole.node.within({part: old_node.without(key)}, {}))
        stated = holder.fields.get(new_key) if holder else None
        if stated is not None and _hand(stated, file) >= _hand(value, file):
            if _hand(stated, file) == _hand(value, file):
                where = old_node.keys.get(key, value.where)
                message = f"`{part}.{key}` and `{NAME}.{new_key}` say the same thing twice"
                problem = Problem(where, message, f"leave out `{part}.{key}`: it is the old place")
                whole = replace(whole, problems=(*whole.problems, problem))
            continue
        place = old_node.keys.get(key, value.where)
        inner = (holder or Node({}, value.where)).within({new_key: value}, {new_key: place})
        whole = replace(whole, node=whole.node.within({NAME: inner}, {} if holder else {NAME: place}))
    return whole


def _hand(value: Node, file: str) -> int:
    """Who wrote a value."""
    place = value.fields.get("value", value).where.file
    return TYPED if place.startswith(FLAG) else PLAN_KEYS if place == file else LIBRARY
