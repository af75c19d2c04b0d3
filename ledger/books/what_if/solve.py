"""A plan solved for its inputs: the largest, smallest or best values under which every condition holds.

Where memory limits a size, the closed form is solved for it. The answer is always verified by compiling the plan with
the values themselves and with the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.books.names import no_total
from ledger.books.what_if.answer import Question, Solution, solution_in_order
from ledger.books.what_if.conditions import FITS, check_consistent, condition, fault, host_conditions, served_conditions
from ledger.books.what_if.inversion import closed_form, inverted
from ledger.books.what_if.ordered import Objective, check_matters, place
from ledger.books.what_if.product import Note, best_of
from ledger.books.what_if.sizes import proportional_sizes
from ledger.books.what_if.sought import BARE, Trial, Unknown, key_fault, totals
from ledger.books.what_if.unknowns import in_order, unknown
from ledger.spec.plan import Plan


def solve(  # noqa: PLR0913 - a question has these parts, and callers name those they use
    plan: Plan,
    paths: str | Sequence[str],
    subject_to: Sequence[str] = (),
    *,
    maximize: str = "",
    minimize: str = "",
    keep: str = "",
    note: Note = lambda *_: None,
) -> Solution:
    """The values of the inputs at `paths` under conditions (`fits` where there are none), the best for an objective.

    `keep`: which sizes of the model stay in proportion to the one that is looked for. `note` is told how many
    combinations were tried, of how many. The plan must have been read from a spec. Raises SpecError for an input, a
    condition or an objective that it does not know, for conditions that contradict each other, and where nothing ends
    the search.
    """
    asked = (paths,) if isinstance(paths, str) else tuple(paths)
    if not asked:
        raise fault("--for", 1, "no input to solve for", "name one or several, as `run.micro_batch`")
    question = asked_of(plan, subject_to, maximize, minimize)
    proportions = _kept_proportions(plan, asked, keep)
    first = unknown(plan, asked[0], proportions.get(asked[0], ""))
    if len(asked) == 1 and not first.choice:
        return _solution_in_order(question, first)
    for again in asked[1:]:
        unknown(plan, again, proportions.get(again, ""))
        if asked.count(again) > 1:
            raise key_fault(again, f"`{again}` is asked for twice", "name each key once")
    return best_of(question, in_order(plan, asked), proportions, note)


def asked_of(plan: Plan, subject_to: Sequence[str], maximize: str, minimize: str) -> Question:
    """What is asked of a plan, in the texts of the command line; raises SpecError with the place in the text."""
    if maximize and minimize:
        both = f"--maximize {maximize} --minimize {minimize}"
        raise fault(both, 1, "`--maximize` and `--minimize` exclude each other", "leave one of them out")
    amounts = totals(plan)
    texts = subject_to or [FITS]
    conditions = tuple(condition(text, amounts, plan) for text in texts)
    if FITS in map(str.strip, texts):
        conditions += host_conditions(plan) + served_conditions(plan)
    check_consistent(conditions)
    for flag, key in (("--maximize ", maximize), ("--minimize ", minimize)):
        if key and key not in amounts:
            raise fault(f"{flag}{key}", len(flag) + 1, *no_total(plan, key, amounts))
    objective = Objective(maximize, 1) if maximize else Objective(minimize, -1) if minimize else None
    return Question(plan, amounts, conditions, objective, (BARE,) if plan.model.bare else ())


def _kept_proportions(plan: Plan, asked: Sequence[str], keep: str) -> dict[str, str]:
    """What stays in proportion to the one key that is a size of the model; of one key alone, it must be that."""
    if not keep:
        return {}
    scaled = [path for path in asked if path in proportional_sizes(plan, keep)] or [asked[0]]
    if len(scaled) > 1:
        raise key_fault(
            scaled[1], f"`{scaled[1]}` is in proportion to `{scaled[0]}` under `--keep {keep}`", "name one of them"
        )
    return {scaled[0]: keep}


def _solution_in_order(question: Question, sought: Unknown) -> Solution:
    """The answer for one input whose values are in order."""
    trial = Trial(question.plan, sought)
    check_matters(trial, question.keys)
    guess = inverted(question.plan, sought, question.conditions)
    reached = place(trial, question.conditions, question.objective, guess)
    plan = trial.draft(reached.rank).plan
    form = closed_form(plan, sought, sought.value(reached.rank), question.conditions) if plan is not None else ""
    return solution_in_order(question, trial, reached, form)
