"""The recommendation in words, with the rule that it goes by; `mark` sets off names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ledger import numbers
from ledger.books.results import Number
from ledger.report.compare.choice import HEADROOM, PlanChoice, RankedPlan
from ledger.units import is_more_better, unit_of

Mark = Callable[[str], str]
SUPERLATIVES: Mapping[str, str] = {
    "cost.run": "cheapest",
    "time.calendar": "soonest to end",
    "time.step": "fastest",
    "tokens_per_second": "fastest",
    "cost.per_million_tokens": "cheapest",
    "serve.time_per_token": "fastest",
    "serve.tokens_per_second": "fastest",
}
MOST_RIVALS = 3  # that are named with their ranges


def backticked(name: str) -> str:
    """A name as messages on a terminal set it off."""
    return f"`{name}`"


def rule_text(choice: PlanChoice, mark: Mark = backticked) -> str:
    """The rule: what is least or most, and of which plans."""
    return f"{superlative(choice.total, mark)} of those that {requirement_text(choice, mark)}"


def superlative(total: str, mark: Mark) -> str:
    """What makes one plan better than another by a total."""
    extreme = "most" if is_more_better(total) else "least"
    return (
        f"the {word} ({mark(total)})" if (word := SUPERLATIVES.get(total)) else f"the one with {extreme} {mark(total)}"
    )


def requirement_text(choice: PlanChoice, mark: Mark, *, one: bool = False) -> str:
    """What plans that may be chosen do, or the `one` does."""
    kept = ["keeps its headroom" if one else "keep their headroom"] if HEADROOM in choice.requirements else []
    met = [mark(text) for text in choice.requirements if text != HEADROOM]
    conditions = [f"{'meets' if one else 'meet'} {' and '.join(met)}"] if met else []
    lacked = [] if choice.has_all else [f"{'has' if one else 'have'} {mark(choice.total)}"]
    return joined(["fits" if one else "fit", *kept, *conditions, *lacked])


def choice_sentences(choice: PlanChoice, mark: Mark = backticked) -> tuple[str, ...]:
    """The recommendation, what evidence says of it, which plans were left out: a sentence each."""
    return tuple(f"{sentence}." for sentence in _sentences(choice, mark))


def _sentences(choice: PlanChoice, mark: Mark) -> Iterator[str]:
    best = choice.chosen
    if best is not None:
        yield recommended(choice, best, mark)
        yield from evidence(choice, best, mark)
    elif choice.candidates:
        yield f"No plan is recommended, as they do not do the same work; {mark('--for')} names what to choose by"
    else:
        yield f"No plan is recommended: none of the {choice.count} {requirement_text(choice, mark, one=True)}"
    for inputs, labels in plans_by_work(choice, mark).items():
        verb = "do" if labels[1:] else "does"
        yield f"{joined([*map(mark, labels)])} {verb} not do the work of {mark(choice.first)}: {inputs}"
    if choice.left_out:
        yield f"Left out: {', '.join(f'{mark(label)} ({marked(why, mark)})' for label, why in choice.left_out)}"


def plans_by_work(choice: PlanChoice, mark: Mark) -> dict[str, list[str]]:
    """Plans that do other work than the first, by the inputs that say so."""
    found: dict[str, list[str]] = {}
    for label, inputs in choice.work:
        found.setdefault(work_text(inputs, mark), []).append(label)
    return found


def recommended(choice: PlanChoice, best: RankedPlan, mark: Mark) -> str:
    """Which plan, why by the rule, and by how much it is ahead of the next."""
    unit, others = unit_of(choice.total), choice.candidates[1:]
    amount = numbers.written(best.amount, unit)
    if not others:
        lone = f"the only one of {choice.count} that {requirement_text(choice, mark, one=True)}"
        return f"{mark(best.label)} is recommended: {lone}; {mark(choice.total)} {amount}"
    number = f"the {len(choice.candidates)}" + (f" of {choice.count}" if choice.left_out else "")
    said = f"{superlative(choice.total, mark)} of {number} that {requirement_text(choice, mark)}, {amount}"
    return f"{mark(best.label)} is recommended: {said}{ahead(choice, best, mark)}"


def ahead(choice: PlanChoice, best: RankedPlan, mark: Mark) -> str:
    """By how much the best is better than the next, after a comma; or which plans come to the same."""
    equal = [one.label for one in choice.candidates[1:] if one.amount == best.amount]
    if equal:
        return f"; {joined([*map(mark, equal)])} {'come' if equal[1:] else 'comes'} to the same, and it was named first"
    next_best = choice.candidates[1]
    by: Number = next_best.amount - best.amount
    compared = f"{amount_text(max(by, -by), unit_of(choice.total))} {'less' if by > 0 else 'more'}"
    return f", {compared} than {mark(next_best.label)}"


def evidence(choice: PlanChoice, best: RankedPlan, mark: Mark) -> Iterator[str]:
    """Whether the ranges that hold 80 of 100 runs part the best from the others, and by how much they overlap."""
    others = [one for one in choice.candidates if one.amount != best.amount]
    if not others:
        return
    if best.ends is None:
        yield f"How far {mark(choice.total)} of a plan may be off is not known"
        return
    unit, own = unit_of(choice.total), range_text(best, unit_of(choice.total))
    rivals = [(one, shared) for one, shared in choice.rivals if one in others]
    if not rivals:
        next_best = f"{mark(others[0].label)} ({range_text(others[0], unit)})"
        yield f"The ranges that hold 80 of 100 runs part it ({own}) from the next, {next_best}"
        return
    named = [
        f"{mark(other.label)} ({range_text(other, unit)}, {amount_text(shared, unit)} of overlap)"
        for other, shared in rivals[:MOST_RIVALS]
    ]
    more = [f"{len(rivals) - MOST_RIVALS} more"] if rivals[MOST_RIVALS:] else []
    unparted = joined([*named, *more])
    yield f"The ranges that hold 80 of 100 runs overlap: evidence does not part it ({own}) from {unparted}"


def range_text(one: RankedPlan, unit: str) -> str:
    """The ends of a range."""
    return " to ".join(numbers.written(end, unit) for end in one.ends or ())


def amount_text(value: Number, unit: str) -> str:
    """An amount that is compared: dollars to three figures."""
    return numbers.brief_money(value) if unit == "USD" else numbers.written(value, unit)


def work_text(inputs: Sequence[str], mark: Mark) -> str:
    """The inputs by which plans train other things, of many the parts that they belong to."""
    parts = tuple(dict.fromkeys(path if path == "run.tokens" else path.partition(".")[0] for path in inputs))
    return joined([mark(name) for name in (inputs if len(inputs) <= MOST_RIVALS else parts)])


def joined(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def marked(text: str, mark: Mark) -> str:
    """A text in which what stands in backticks is marked."""
    return "".join(mark(part) if place % 2 else part for place, part in enumerate(text.split("`")))
