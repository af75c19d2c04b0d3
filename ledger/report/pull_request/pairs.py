"""The plans of two trees in pairs, those whose resolved documents differ, and the records of their changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ledger.report.gates import PlanOutcome
from ledger.report.movements import Measure, Movement
from ledger.spec.git import printable
from ledger.spec.inputs import Change
from ledger.spec.library import Library
from ledger.spec.load import plan_of
from ledger.spec.plan import Plan
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.trees import Tree, moved_files, plan_paths


@dataclass(frozen=True)
class PlanVersion:
    """A plan of a tree: resolved and held to the rules, or the problems that it has; `texts` are what they lie in."""

    path: str
    plan: Plan | None = None
    problems: tuple[Problem, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> object:
        """What tells two versions apart: the resolved document; of what is no sound plan, its problems."""
        return self.plan.digest if self.plan else tuple((problem.message, problem.help) for problem in self.problems)


@dataclass(frozen=True)
class PlanPair:
    """A plan before and after a change: None where there is none."""

    old: PlanVersion | None
    new: PlanVersion | None

    @property
    def path(self) -> str:
        """The plan's path now, or before it was deleted."""
        version = self.new or self.old
        return version.path if version else ""

    @property
    def moved_from(self) -> str:
        """The path before a move; empty where the plan was not moved."""
        return self.old.path if self.old and self.new and self.old.path != self.new.path else ""

    @property
    def is_affected(self) -> bool:
        """Whether the plan is added, deleted, moved or has other content."""
        return not (self.old and self.new and self.old.content == self.new.content and not self.moved_from)


@dataclass(frozen=True)
class PlanPairs:
    """Every plan of two trees; `affected` are those that differ, `count` is how many there are now."""

    old: Tree
    new: Tree
    pairs: tuple[PlanPair, ...]

    @property
    def affected(self) -> tuple[PlanPair, ...]:
        """The pairs whose versions differ."""
        return tuple(pair for pair in self.pairs if pair.is_affected)

    @property
    def count(self) -> int:
        """Plans that there are after the change."""
        return sum(pair.new is not None for pair in self.pairs)


def plan_pairs(
    old: Tree, new: Tree, typed: Iterable[str], library: Library, overrides: Iterable[str] = ()
) -> PlanPairs:
    """The plans of two trees, of those that a user typed or of all; raises SpecError for what names none.

    `overrides` hold of the new ones. A plan that git takes for renamed is one plan.
    """
    asked = tuple(typed)
    moved = moved_files(old, new)
    gone_to = {before: after for after, before in moved.items()}
    was, now = old.path_filter(asked), new.path_filter(asked)
    before = plan_paths(old, lambda path: was(path) or (path in gone_to and now(gone_to[path])))
    after = plan_paths(new, lambda path: now(path) or (path in moved and was(moved[path])))
    _require_plans(asked, (old, new), (before, after))
    sources = {path: path if path in before else moved.get(path, "") for path in after}
    paired = {path for path in sources.values() if path}
    olds = dict(_versions(old, before, library, ()))
    news = dict(_versions(new, after, library, tuple(overrides)))
    pairs = [PlanPair(olds.get(sources[path]), news[path]) for path in after]
    gone = [PlanPair(olds[path], None) for path in before if path not in paired]
    return PlanPairs(old, new, tuple(sorted((*pairs, *gone), key=lambda pair: pair.path)))


def plan_labels(paths: Iterable[str]) -> Mapping[str, str]:
    """What each plan is called: the name of its file, with as many folders as tell it from others."""
    unique = sorted(set(paths))
    shown_paths = {path: PurePosixPath(printable(path)) for path in unique}
    labels = {path: shown_paths[path].stem for path in unique}
    depth = 2
    while len(set(labels.values())) < len(unique) and depth <= max(len(path.parts) for path in shown_paths.values()):
        shared = [label for label in labels.values() if list(labels.values()).count(label) > 1]
        labels = {
            path: "/".join(shown_paths[path].with_suffix("").parts[-depth:]) if label in shared else label
            for path, label in labels.items()
        }
        depth += 1
    return labels


def _versions(
    tree: Tree, paths: Iterable[str], library: Library, overrides: tuple[str, ...]
) -> Iterator[tuple[str, PlanVersion]]:
    """Each plan of a tree, with the parts that it names there, or with its problems."""
    for path in paths:
        try:
            version = PlanVersion(path, plan_of(tree.source(path), overrides, tree.library(library)))
        except SpecError as error:
            version = PlanVersion(path, None, error.problems, error.sources)
        yield path, version


def _require_plans(asked: Iterable[str], trees: tuple[Tree, Tree], plans: tuple[tuple[str, ...], ...]) -> None:
    """Raises SpecError for what was typed and is, before and after, no plan and no folder with one."""
    problems = []
    for typed in asked:
        tests = [tree.path_filter([typed]) for tree in trees]
        if not any(test(path) for test, paths in zip(tests, plans, strict=True) for path in paths):
            help_text = "a plan is a YAML file that begins with `spec: ledger/1` and has `plan:`, and is committed"
            message = f"no plan there, neither at {trees[0].title} nor at {trees[1].title}"
            problems.append(Problem(Location(typed), message, help_text))
    if problems:
        raise SpecError(problems)


# --- affected plans and their changes ---

BROKEN, CHANGED, NEW, DELETED, MOVED, SAME = (
    "does not compile",
    "changed",
    "new",
    "deleted",
    "moved",
    "same totals",
)
REPAIRED = "compiles again"


@dataclass(frozen=True)
class Flip:
    """A word of the verdict (`fits`, `headroom`) that holds now, or no more, and the inputs that turned it."""

    word: str
    holds: bool
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanChange:
    """An affected plan: its kind of change, what it came and comes to, what moved by which input, which gates trip."""

    label: str
    pair: PlanPair
    kind: str
    old: PlanOutcome | None = None
    new: PlanOutcome | None = None
    inputs: tuple[Change, ...] = ()
    movements: tuple[Movement, ...] = ()
    flips: tuple[Flip, ...] = ()
    problems: tuple[Problem, ...] = ()
    texts: Mapping[str, str] | None = None
    failed: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where the plan is, or was."""
        return self.pair.path

    @property
    def plan(self) -> Plan | None:
        """The plan as it is now, or was last."""
        versions = (self.pair.new, self.pair.old)
        return next((version.plan for version in versions if version and version.plan), None)

    def movement(self, measure: Measure) -> Movement | None:
        """What became of a measure; None where one of the plans lacks it."""
        return next((movement for movement in self.movements if movement.measure == measure.name), None)

    def lost(self, word: str) -> bool:
        """Whether a word of the verdict holds no more."""
        return any(flip.word == word and not flip.holds for flip in self.flips)


@dataclass(frozen=True)
class Comparison:
    """Two trees of plans compared: the affected ones, worst first, of `count` that there are now."""

    old: str  # the trees, as they were typed
    new: str
    count: int
    changes: tuple[PlanChange, ...]
    gates: tuple[str, ...] = ()

    def place(self, where: Location) -> str:
        """A place in a line's words: of the newer tree, from its top."""
        return f"{where.file.removeprefix(f'{self.new}:')}:{where.line}"

    def of_kind(self, *kinds: str) -> tuple[PlanChange, ...]:
        """The plans of a kind of change."""
        return tuple(change for change in self.changes if change.kind in kinds)

    def failed(self, gate: str) -> tuple[PlanChange, ...]:
        """The plans on which a gate trips."""
        return tuple(change for change in self.changes if gate in change.failed)
