"""Two compiled plans compared: verdict, totals with what caused each change, inputs, formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledger.report.movements import (
    MOST_INPUTS,
    Attribution,
    Bundle,
    BundleTotals,
    attribute,
    bundle_inputs,
    compile_between,
)
from ledger.report.views.served import verdict as of_verdict
from ledger.report.views.verdict import HEADLINES, SIX
from ledger.spec.inputs import Change, changes

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.books.results import Number
    from ledger.spec.plan import Plan

TOTALS_FIRST = tuple(dict.fromkeys(key for key, _ in (*HEADLINES[:SIX], *of_verdict.HEADLINES)))
GROUPS: Mapping[str, str] = {  # by the first word of a key; the word itself where it is not here
    "hfu": "utilisation",
    "mfu": "utilisation",
    "tokens_per_second": "throughput",
    "tokens_per_second_per_device": "throughput",
    "images_per_second": "throughput",
    "energy": "cost",
}
TOO_MANY = "{} inputs changed: more than the {} that changes are attributed to one by one, so to parts of the plan"
TOGETHER = "Taken together, as the rules of a plan allow none of them without others: {}"


@dataclass(frozen=True)
class VerdictChange:
    """A part of the verdict that changed."""

    part: str
    old: str
    new: str

    def __neg__(self) -> VerdictChange:
        return VerdictChange(self.part, self.new, self.old)


@dataclass(frozen=True)
class TotalChange:
    """A total that changed; None where one of the plans does not have it. `causes` explain `by` up to `joint`."""

    key: str
    old: Number | None
    new: Number | None
    causes: tuple[Attribution, ...] = ()

    @property
    def by(self) -> Number | None:
        """New minus old, in the unit of the total; None where one of the plans lacks it."""
        return None if self.old is None or self.new is None else self.new - self.old

    @property
    def relative(self) -> float | None:
        """The change over the old value; None where that says nothing."""
        return None if not self.old or self.by is None else float(self.by / self.old)

    @property
    def joint(self) -> Number:
        """The change that no single cause makes: all of it less the mean of what each does first and last."""
        return (self.by or 0) - sum(cause.mean for cause in self.causes)

    def __neg__(self) -> TotalChange:
        return TotalChange(self.key, self.new, self.old, tuple(-cause for cause in self.causes))


@dataclass(frozen=True)
class FormulaChange:
    """An account that is posted by another formula, or in one plan only (then the other's is empty)."""

    account: str
    resource: str
    when: str
    old: str
    new: str

    def __neg__(self) -> FormulaChange:
        return replace(self, old=self.new, new=self.old)


@dataclass(frozen=True)
class Diff:
    """Everything in which two compiled plans differ. The negative is the difference the other way round."""

    old: str  # their titles
    new: str
    verdict: tuple[VerdictChange, ...]
    outputs: tuple[TotalChange, ...]
    inputs: tuple[Change, ...]
    formulas: tuple[FormulaChange, ...]
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is no difference."""
        return not (self.verdict or self.outputs or self.inputs or self.formulas)

    def __neg__(self) -> Diff:
        parts = {name: tuple(-part for part in getattr(self, name)) for name in PARTS}
        return Diff(self.new, self.old, **parts, notes=self.notes)


PARTS = ("verdict", "outputs", "inputs", "formulas")


def diff(old: Compiled, new: Compiled, compiler: Callable[[Plan], Compiled] | None = None) -> Diff:
    """The differences; `compiler` closes the books of the plans between the two (None: that of this package)."""
    inputs = changes(old.plan, new.plan)
    bundles = bundle_inputs(old.plan, new.plan, inputs)
    outputs = total_changes(old.totals, new.totals, undone=len(bundles) > 1)
    if outputs:
        from ledger.books import compile_plan

        close = compiler or compile_plan
        ends = (old.plan, old.totals), (new.plan, new.totals)
        effects = compile_between(*ends, bundles, lambda plan: close(plan).totals)
        outputs = tuple(with_causes(outputs, effects))
    return Diff(
        old=old.plan.title,
        new=new.plan.title,
        verdict=tuple(verdict_changes(old, new)),
        outputs=outputs,
        inputs=inputs,
        formulas=tuple(formula_changes(old, new)),
        notes=together_notes(bundles, inputs),
    )


def together_notes(bundles: Sequence[Bundle], inputs: Sequence[Change]) -> tuple[str, ...]:
    """Which inputs were changed together, and why."""
    if len(inputs) > MOST_INPUTS:
        return (TOO_MANY.format(len(inputs), MOST_INPUTS),)
    tied = [bundle for bundle in bundles if len(bundle) > 1]
    return tuple(TOGETHER.format(", ".join(change.path for change in bundle)) for bundle in tied)


def with_causes(outputs: Iterable[TotalChange], effects: Sequence[BundleTotals]) -> Iterator[TotalChange]:
    """Totals with what caused their change; one that did not change, only where inputs undo each other."""
    for row in outputs:
        causes = tuple(attribute(row.key, row.old, row.new, effects))
        if causes or row.old != row.new:
            yield replace(row, causes=causes)


def verdict_changes(old: Compiled, new: Compiled) -> Iterable[VerdictChange]:
    """What changed in the verdict, the answer first, then each check with another outcome."""
    answers = ["fits" if compiled.verdict.fits else "does not fit" for compiled in (old, new)]
    rows = [("answer", answers[0], answers[1])]
    words = ("headline", "bottleneck", "evidence")
    rows += [(word, getattr(old.verdict, word), getattr(new.verdict, word)) for word in words]
    before, after = ({check.title: check.status for check in compiled.verdict.checks} for compiled in (old, new))
    rows += [
        (f"check: {title}", before.get(title, "-"), after.get(title, "-")) for title in sorted({**before, **after})
    ]
    return (VerdictChange(*row) for row in rows if row[1] != row[2])


def total_changes(
    old: Mapping[str, Number], new: Mapping[str, Number], *, undone: bool = False
) -> tuple[TotalChange, ...]:
    """The totals that differ: those that a reviewer reads first, then the others by what they count.

    With `undone`, those that a reviewer reads first stand there also where they do not differ.
    """
    either = {*old, *new}
    first = [key for key in TOTALS_FIRST if key in either]
    keys = [*first, *sorted(either - set(first), key=lambda key: (total_group(key), key))]
    listed_keys = [key for key in keys if old.get(key) != new.get(key) or (undone and key in first)]
    return tuple(TotalChange(key, old.get(key), new.get(key)) for key in listed_keys)


def total_group(key: str) -> str:
    """What a total counts; nothing for those that a reviewer reads first."""
    word = key.partition(".")[0]
    return "" if key in TOTALS_FIRST else GROUPS.get(word, word)


def formula_changes(old: Compiled, new: Compiled) -> Iterable[FormulaChange]:
    """Accounts with other formulas."""
    before, after = account_formulas(old), account_formulas(new)
    for key in sorted({**before, **after}):
        if before.get(key) != after.get(key):
            yield FormulaChange(*key, "; ".join(before.get(key, ())), "; ".join(after.get(key, ())))


def account_formulas(compiled: Compiled) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """The formulas of each account, resource and phase, those of several roles once."""
    formulas: dict[tuple[str, str, str], set[str]] = {}
    for leaf in compiled.accounts:
        formulas.setdefault((leaf.account, leaf.resource.name, leaf.when), set()).add(leaf.formula)
    return {key: tuple(sorted(texts)) for key, texts in formulas.items()}
