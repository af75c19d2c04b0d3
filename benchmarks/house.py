"""How a tree is kept: lines by room, names with two meanings, cycles, lengths, what is read back out of names.

    python benchmarks/house.py [TREE] [TREE]      # this one where none is given; of two, before and after
    python benchmarks/house.py --list FIGURE      # what a figure counts, by place: homonyms, decodings, ...

A room is a folder of the package, and of `ledger/lab` each of its own. Everything is read from syntax trees.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

DECODING = frozenset(
    ("split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix", "removesuffix")
)
CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__setattr__", "__setstate__")
SHORT = 60  # lines: a module below has little to hide
WORDS = 4  # a docstring below says little
BESIDE = {"templates": "*", "tests": "*.py", "benchmarks": "*.py"}  # folders around the package
WIDTH = 20  # of a column
LARGE = 600  # lines: a module above holds more than one subject
SMALL_FUNCTION = 3  # lines below its signature: it says little that its caller could not
# Names that say where a value comes from, not what it is; and the first words of docstrings that lean on a line above.
VAGUE = frozenset(
    (
        "one",
        "found",
        "mine",
        "own",
        "whole",
        "known",
        "given",
        "held",
        "told",
        "taken",
        "wanted",
        "way",
        "ways",
        "lone",
        "alone",
        "shown",
        "behind",
    )
)
LEANING = ("the same", "those that", "what of", "what it", "as it is", "as they are", "of those", "of it ", "the rest")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of the package, `name` dotted, `path` below the tree."""

    name: str
    path: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The folder of the package it lies in; of the laboratory, which is several programs, the one below."""
        parts = self.path.split("/")[:-1]
        return "/".join(parts[: 3 if parts[1:2] == ["lab"] else 2])

    @property
    def lines(self) -> int:
        """Lines, blank ones too."""
        return self.text.count("\n")

    def at(self, node: ast.AST) -> str:
        """The place of a node."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


@dataclass(frozen=True)
class House:
    """All modules of a tree's package."""

    root: Path

    @cached_property
    def modules(self) -> Sequence[Module]:
        """Every module, by path."""
        found = []
        for path in sorted((self.root / "ledger").rglob("*.py")):
            place = path.relative_to(self.root)
            name = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
            text = path.read_text(encoding="utf-8")
            found.append(Module(name, str(place), text, ast.parse(text)))
        return found

    @property
    def lines(self) -> int:
        """Lines of the package."""
        return sum(module.lines for module in self.modules)


# --- what is counted, each with its place --------------------------------------------------------


def decodings(module: Module) -> Iterator[str]:
    """Calls of the methods by which text is taken apart."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in DECODING:
            yield f"{module.at(node)}: {ast.unparse(node)[:100]}"


def mutations(module: Module) -> Iterator[str]:
    """Attributes assigned outside constructors."""
    for node, function in _within(module.tree, ""):
        if function in CONSTRUCTORS:
            continue
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [getattr(node, "target", None)]
        for target in targets if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete) else []:
            if any(isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load) for part in _parts(target)):
                yield f"{module.at(node)}: {ast.unparse(node)[:100]}"


def _parts(target: ast.AST | None) -> Iterator[ast.AST]:
    return ast.walk(target) if target is not None else iter(())


def _within(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
    """Every node with the name of the function around it."""
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, Function) else function
        yield child, inner
        yield from _within(child, inner)


def terse(module: Module) -> Iterator[str]:
    """Docstrings of a few words."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            text = ast.get_docstring(node)
            if text and len(text.split()) < WORDS:
                yield f"{module.at(node)}: {text}"


def vague(module: Module) -> Iterator[str]:
    """Variables and parameters with a name that does not say what they hold, once in each function."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function):
            names = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
            names |= {
                part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
            yield from (f"{module.at(node)}: {name}" for name in sorted(names & VAGUE))


def leaning(module: Module) -> Iterator[str]:
    """Docstrings that are understood with the one above alone."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            text = ast.get_docstring(node) or ""
            if text.lower().startswith(LEANING):
                yield f"{module.at(node)}: {text.splitlines()[0]}"


def called_once(module: Module) -> Iterator[str]:
    """Small private functions that are named in one place."""
    uses = Counter(node.id for node in ast.walk(module.tree) if isinstance(node, ast.Name))
    uses += Counter(node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute))
    for node in ast.walk(module.tree):
        if isinstance(node, Function) and node.name.startswith("_") and not node.name.startswith("__"):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines <= SMALL_FUNCTION and uses[node.name] == 1 and not node.decorator_list:
                yield f"{module.at(node)}: {node.name}"


def statements(house: House) -> list[int]:
    """How many statements each function has, docstrings aside, in order."""
    return sorted(
        sum(isinstance(part, ast.stmt) for part in ast.walk(node)) - 1 - bool(ast.get_docstring(node))
        for module in house.modules
        for node in ast.walk(module.tree)
        if isinstance(node, Function)
    )


def lines_by_kind(house: House) -> Mapping[str, int]:
    """Lines of code, imports, docstrings, comments and blank ones."""
    counts = Counter[str]()
    for module in house.modules:
        kinds: dict[int, str] = {}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                kinds |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), "imports")
            elif isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None:
                text = node.body[0]
                kinds |= dict.fromkeys(range(text.lineno, (text.end_lineno or text.lineno) + 1), "docstrings")
        for number, line in enumerate(module.text.splitlines(), 1):
            plain = "comments" if line.lstrip().startswith("#") else "code" if line.strip() else "blank"
            counts[kinds.get(number, plain)] += 1
    return counts


def short(module: Module) -> Iterator[str]:
    """The module itself, where it is small and no package's front."""
    if module.lines < SHORT and Path(module.path).stem not in ("__init__", "__main__"):
        yield f"{module.path}: {module.lines}"


def classes(module: Module) -> Iterator[str]:
    """Names of classes, those inside others too."""
    yield from (node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))


def constants(module: Module) -> Iterator[str]:
    """Names in capitals that a module assigns at its top."""
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper() and len(target.id) > 1:
                yield target.id


def lengths(house: House) -> list[tuple[int, str]]:
    """Lines of each function, from its `def`, with its place."""
    return sorted(
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{module.at(node)}: {node.name}")
        for module in house.modules
        for node in ast.walk(module.tree)
        if isinstance(node, Function)
    )


def homonyms(house: House, names: Callable[[Module], Iterator[str]]) -> Mapping[str, list[str]]:
    """Names that are defined more than once, with the modules that do."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in house.modules:
        for name in names(module):
            places[name].append(module.path)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


# --- imports -------------------------------------------------------------------------------------


def imports(module: Module, known: frozenset[str], *, lazy: bool, types: bool = False) -> Iterator[str]:
    """Modules of the package that a module loads at run time; with `lazy`, from inside functions too.

    With `types` those that are imported for types alone, too.
    """
    pending: list[ast.AST] = [module.tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not types:
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from (name for name in [inner if inner in known else node.module] if name in known)
        if lazy or not isinstance(node, Function):
            pending.extend(ast.iter_child_nodes(node))


def graph_of(house: House, *, lazy: bool, types: bool = False) -> Mapping[str, set[str]]:
    """The modules that each module imports."""
    known = frozenset(module.name for module in house.modules)
    return {
        module.name: set(imports(module, known, lazy=lazy, types=types)) - {module.name} for module in house.modules
    }


def read_once(house: House) -> list[str]:
    """Modules that one other module imports, and no package's front."""
    readers = Counter(name for names in graph_of(house, lazy=True, types=True).values() for name in names)
    fronts = {module.name for module in house.modules if module.path.endswith("__init__.py")}
    return sorted(name for name, count in readers.items() if count == 1 and name not in fronts)


def cycles(house: House, *, lazy: bool, types: bool = False) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others."""
    graph = graph_of(house, lazy=lazy, types=types)
    reached = {name: _reached(graph, name) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    pending = [*graph[start]]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(graph[name])
    return reached


# --- the table -----------------------------------------------------------------------------------

COUNTED: Mapping[str, Callable[[Module], Iterator[str]]] = {
    "decodings": decodings,
    "mutations": mutations,
    "docstrings": terse,
    "short": short,
    "vague": vague,
    "leaning": leaning,
    "called-once": called_once,
}


@dataclass(frozen=True)
class Figure:
    """One line of the table, and what it is made up of."""

    title: str
    value: str
    parts: Mapping[str, str] = field(default_factory=dict)


def figures(house: House) -> Iterator[Figure]:
    """Each figure with its value, in the same order for every tree."""
    rooms, read = Counter[str](), Counter[str]()
    for module in house.modules:
        rooms[f"{module.room}/"] += module.lines
        read[f"{module.room}/"] += len(list(decodings(module)))
    yield Figure("lines of ledger/", f"{house.lines:,}", {room: f"{rooms[room]:,}" for room in sorted(rooms)})
    yield Figure("lines by kind", "", {kind: f"{count:,}" for kind, count in lines_by_kind(house).items()})
    for folder, pattern in BESIDE.items():
        texts = [path.read_bytes() for path in (house.root / folder).rglob(pattern) if path.is_file()]
        lines = sum(len(text.splitlines()) for text in texts if bytes(1) not in text)
        yield Figure(f"lines of {folder}/", f"{lines:,}")
    shares = {room: _rate(read[room], rooms[room]) for room in sorted(rooms)}
    yield Figure("decodings per 1000 lines", _rate(sum(read.values()), house.lines), shares)
    yield from names_and_cycles(house)
    yield from shapes(house)


def _rate(count: int, lines: int) -> str:
    return f"{1000 * count / lines:.1f} ({count})"


def names_and_cycles(house: House) -> Iterator[Figure]:
    """What is defined more than once, and what imports itself."""
    twice, repeated = homonyms(house, classes), homonyms(house, constants)
    names = {name for module in house.modules for name in classes(module)}
    yield Figure("class names defined twice or more", f"{len(twice)} of {len(names)}")
    yield Figure("constants' names in two modules or more", f"{len(repeated)}")
    for title, lazy, types in (
        ("at import", False, False),
        ("at run time, in functions too", True, False),
        ("with types", True, True),
    ):
        groups = cycles(house, lazy=lazy, types=types)
        yield Figure(f"import cycles {title}", f"{len(groups)} of {sum(map(len, groups))} modules")


def shapes(house: House) -> Iterator[Figure]:
    """How long functions and modules are, and what is assigned or said in passing."""
    long = [length for length, _ in lengths(house)]
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
    spread = {title: str(long[min(int(share * len(long)), len(long) - 1)]) for title, share in shares.items()}
    count = {name: sum(len(list(found(module))) for module in house.modules) for name, found in COUNTED.items()}
    yield Figure("functions, and their lines", f"{len(long):,}", spread)
    sizes = statements(house)
    middle = {"mean": f"{sum(sizes) / len(sizes):.1f}", "median": str(sizes[len(sizes) // 2])}
    yield Figure("  and their statements", "", middle)
    yield Figure("small private functions with one caller", str(count["called-once"]))
    large = sum(module.lines > LARGE for module in house.modules)
    per_thousand = f"{1000 * len(house.modules) / house.lines:.1f}"
    yield Figure(
        "modules",
        f"{len(house.modules):,}",
        {
            f"under {SHORT} lines": str(count["short"]),
            f"over {LARGE} lines": str(large),
            "a thousand lines": per_thousand,
            "with one reader": str(len(read_once(house))),
        },
    )
    yield Figure("variables with a vague name, by function", str(count["vague"]))
    yield Figure("mutations outside constructors per 1000 lines", _rate(count["mutations"], house.lines))
    yield Figure(f"docstrings of under {WORDS} words", str(count["docstrings"]))
    yield Figure("docstrings that lean on another", str(count["leaning"]))


def print_columns(houses: Sequence[House]) -> None:
    """Figures side by side; a room that only one tree has is empty in the other."""
    print_row("", [str(house.root)[-WIDTH:] for house in houses])
    for some in zip(*(figures(house) for house in houses), strict=True):
        print_row(some[0].title, [figure.value for figure in some])
        titles = dict.fromkeys(title for figure in some for title in figure.parts)
        for title in sorted(titles) if any(title.endswith("/") for title in titles) else titles:
            print_row(f"  {title}", [figure.parts.get(title, "") for figure in some])


def print_row(title: str, values: Sequence[str]) -> None:
    """A title and a value for each tree."""
    print("  ".join([f"{title:48s}", *(f"{value:>{WIDTH}s}" for value in values)]).rstrip())


def listed(house: House, figure: str) -> Iterator[str]:
    """What a figure counts, a line each."""
    if figure in COUNTED:
        yield from (text for module in house.modules for text in COUNTED[figure](module))
    elif figure == "cycles":
        yield from (", ".join(group) for group in cycles(house, lazy=True, types=True))
    elif figure == "read-once":
        yield from read_once(house)
    elif figure == "functions":
        yield from (f"{length:4d}  {place}" for length, place in lengths(house)[-50:])
    else:
        found = homonyms(house, classes if figure == "homonyms" else constants)
        yield from (f"{name}: {', '.join(places)}" for name, places in found.items())


def main() -> None:
    """Prints a line for each figure, with a column for each tree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, default=[Path(__file__).resolve().parents[1]])
    parser.add_argument("--list", choices=[*COUNTED, "homonyms", "constants", "cycles", "functions", "read-once"])
    args = parser.parse_args()
    houses = [House(tree) for tree in args.trees]
    if args.list:
        for house in houses:
            print("\n".join(listed(house, args.list)))
        return
    print_columns(houses)


if __name__ == "__main__":
    main()
