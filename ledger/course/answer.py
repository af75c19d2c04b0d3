"""Answers to the questions of a lecture: their expressions evaluated for each case, and compared with expectations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

from ledger.books.compiled import Compiled
from ledger.books.compiler import compile_plan
from ledger.books.memory.holdings import CATEGORIES
from ledger.books.plan_quantities import DeviceQuantities, PlanQuantities, solved_plan
from ledger.course.answers import Amount, AnswerContent, Figure, Grid, Outcome, Plot, compare_figure, number
from ledger.course.asks import Find, Sought
from ledger.course.claims import contradictions
from ledger.course.lecture import About, Answer, Cases, Lecture, Question, is_lecture, load_lecture
from ledger.course.questions import SUBJECTS
from ledger.model.einsums import EinsumError
from ledger.model.strides import MoveError
from ledger.numbers import with_unit
from ledger.report.checked import CheckOutcome, check_plan
from ledger.spec.expressions import ExpressionError
from ledger.spec.near import nearest
from ledger.spec.plan import Plan
from ledger.spec.problems import Problem, SpecError, collect_results
from ledger.spec.quantity_expressions import NONE, ExpressionQuantity, Names, Sum, Value, alike, evaluate, quantity_in
from ledger.units import spelt

ABSENT = "–"  # in a table, what a case does not have


def answers(lecture: Lecture) -> Iterator[Answer]:
    """Every question of a lecture with its answer, in order; a plan that several ask about is compiled once.

    Raises SpecError with the problems of all questions that have no answer.
    """
    books = CompiledPlans()
    asked = [question for chapter in lecture.chapters for question in chapter.questions]
    yield from collect_results(partial(answer, question, books) for question in asked)


def answer(question: Question, books: CompiledPlans | None = None) -> Answer:
    """One question with its answer, compared with what is expected of it; raises SpecError with a place."""
    try:
        result = _answer_question(question, books or CompiledPlans())
    except (ExpressionError, EinsumError, MoveError) as error:
        raise SpecError([Problem(question.where, f"`{question.name}`: {error.message}", error.help)]) from error
    by_name = {figure.name: figure for figure in result.figures}
    names = [*by_name, *(result.grid.figures if result.grid else ())]
    for name in question.right:
        if name not in names:
            help_ = nearest(name, names)
            raise SpecError([Problem(question.where, f"`{question.name}` has no figure `{name}`", help_)])
    outcomes = tuple(compare_figure(expected, by_name.get(expected.figure)) for expected in question.expected)
    return Answer(question, result, outcomes)


# --- answers over all cases of a question ---


def _answer_question(question: Question, books: CompiledPlans) -> AnswerContent:
    if question.table:
        abouts = question.cases.by_name if question.cases else {"plan": question.about}
        plans = {name: books(about.plan) for name, about in abouts.items() if about.plan is not None}
        return moments(plans) if question.table == "moments" else checklist_lines(plans, question.only)
    if question.cases is None:
        case = case_of(question.about, books)
        first = case.found[0] if case.found else AnswerContent(())
        return replace(first, figures=tuple(case.figures.values()))
    makers = {name: partial(case_of, about, books) for name, about in question.cases.by_name.items()}
    cases = dict(zip(makers, collect_results(makers.values()), strict=True))
    figures = [*_case_figures(cases, question.cases.against), *_figures_over_cases(question.cases, cases)]
    curve = _curve(question, cases) if question.curve else None
    return AnswerContent(tuple(figures), _grid(question.cases, cases), curve)


def _case_figures(cases: Mapping[str, Case], against: str) -> Iterator[Figure]:
    """Figures of cases as `case.figure`, and `case.figure.ratio`: over the figure of the case `against`."""
    for name, case in cases.items():
        for figure in case.figures.values():
            yield replace(figure, name=f"{name}.{figure.name}", title="")
            first = cases[against].figures.get(figure.name) if against and name != against else None
            if first and not isinstance(first.value, str) and first.value and not isinstance(figure.value, str):
                yield Figure(f"{name}.{figure.name}.ratio", "", Fraction(figure.value) / Fraction(first.value), "x")


def _figures_over_cases(question_cases: Cases, cases: Mapping[str, Case]) -> Iterator[Figure]:
    """The best case with its figures, and figures over those of all cases."""
    if question_cases.best:
        with_figure = {name: case for name, case in cases.items() if question_cases.best in case.figures}
        if not with_figure:
            raise ExpressionError(f"no case has a figure `{question_cases.best}`", "name one of `figures`")
        choose: Callable[..., str] = max if question_cases.most else min
        best = choose(with_figure, key=lambda name: quantity(with_figure[name].figures[question_cases.best]))
        title = with_figure[best].figures[question_cases.best].title
        yield Figure("best", f"{'most' if question_cases.most else 'least'} {title}", best.replace("_", " "))
        yield from with_figure[best].figures.values()

    def lookup(name: str) -> ExpressionQuantity:
        case, _, figure = name.partition(".")
        return cases[case].lookup(figure) if figure else quantity(figures[name])

    figures: dict[str, Figure] = {}
    names_of_figures = [f"{name}.{figure}" for name, case in cases.items() for figure in case.figures]
    names = Names(lookup, {}, lambda name: ExpressionError(f"no case has `{name}`", nearest(name, names_of_figures)))
    for name, sought in question_cases.then.items():
        figure = figure_of(name, sought, names)
        figures[name] = replace(figure, formula="", title=sought.title or name.replace("_", " "))
    yield from figures.values()


def _grid(asked: Cases, cases: Mapping[str, Case]) -> Grid:
    """A table with a row for each case; or a column for each, with changes against one of them."""
    titled = {name: figure for case in [*cases.values()][::-1] for name, figure in case.figures.items() if figure.title}
    titled = {name: titled[name] for case in cases.values() for name in case.figures if name in titled}
    if not asked.against:
        columns = (("case", ""), *((figure.title, _column(figure)) for figure in titled.values()))
        rows = [(name, *(_amount(case.figures.get(key)) for key in titled)) for name, case in cases.items()]
        return Grid("Case by case", columns, tuple(rows), tuple(titled))
    columns = (("figure", ""), *((name.replace("_", " "), "mixed") for name in cases))
    base = cases[asked.against].figures
    changed = [
        (
            figure.title,
            *(
                _amount(case.figures.get(key), None if name == asked.against else base.get(key))
                for name, case in cases.items()
            ),
        )
        for key, figure in titled.items()
    ]
    return Grid("What it saves and what it costs", columns, tuple(changed), tuple(titled), of_rows=True)


def _column(figure: Figure) -> str:
    return "" if isinstance(figure.value, str) else "yes" if isinstance(figure.value, bool) else "mixed"


def _amount(figure: Figure | None, first: Figure | None = None) -> Value | Amount:
    if figure is None:
        return ABSENT
    if isinstance(figure.value, str | bool):
        return figure.value
    numeric = first is not None and not isinstance(first.value, str | bool) and first.value
    change = Fraction(figure.value) / Fraction(first.value) - 1 if first is not None and numeric else None
    return Amount(figure.value, figure.unit, change)


def _curve(question: Question, cases: Mapping[str, Case]) -> Plot:
    for name in question.curve:
        if any(name not in case.figures for case in cases.values()):
            raise ExpressionError(f"not every case has a figure `{name}`", "a curve is drawn over figures of all cases")
    across, up = (next(iter(cases.values())).figures[name] for name in question.curve)
    points: Sequence[tuple[float, float, str]] = [
        (float(case.figures[across.name].value), float(case.figures[up.name].value), name)
        for name, case in cases.items()
    ]
    title = f"{up.title} against {across.title}"
    return Plot(title, (across.title, across.unit), (up.title, up.unit), tuple(points))


# --- one case: the quantities that its expressions may name, and its figures ---

ALONE = re.compile(r"(?<![\w.'/])[a-z]\w*_\w+(?![\w.'/])")  # a name with several words, of no plan
NUMBER = re.compile(r"(?<![\w.'])\d")  # at the start of a number, of no name


@dataclass(frozen=True)
class Case:
    """One case: its compiled plan, the results for its records, its figures by name."""

    about: About
    compiled: Compiled | None
    found: tuple[AnswerContent, ...]
    figures: dict[str, Figure] = field(default_factory=dict)

    def lookup(self, name: str) -> ExpressionQuantity:
        """A quantity: a figure above, a number of `with`, of a record, of the device, of the plan; KeyError else."""
        if name in self.figures:
            return quantity(self.figures[name])
        if name in self.about.values:
            return number(self.about.values[name])
        for result in self.found:
            for figure in result.figures:
                if figure.name == name:
                    return quantity(figure)
        if name.startswith("accelerator.") and self.about.accelerator:
            return DeviceQuantities(self.about.accelerator)(name)
        if self.compiled is None:
            raise KeyError(name)
        return PlanQuantities(self.compiled)(name)

    @property
    def names(self) -> Names:
        """The quantities and functions that its expressions may name."""
        if self.compiled is None:
            of_records = (figure.name for result in self.found for figure in result.figures)
            listed = [*self.figures, *self.about.values, *of_records]
            return Names(
                self.lookup, {}, lambda name: ExpressionError(f"nothing here is called `{name}`", nearest(name, listed))
            )
        plan = PlanQuantities(self.compiled)
        functions: dict[str, Sum] = {
            "sum": plan.totals,
            **{when: partial(plan.spent, when) for when in ("forward", "backward")},
        }
        return Names(self.lookup, functions, plan.unknown)


def quantity(figure: Figure) -> ExpressionQuantity:
    """The value of a figure with its unit."""
    return quantity_in(figure.value, figure.unit)


def case_of(about: About, books: CompiledPlans) -> Case:
    """A case with its figures: those that are asked for, else all of its records."""
    compiled, results = None, [SUBJECTS[kind].found(record) for kind, record in about.records.items()]
    plan = about.plan
    if plan is not None and about.find:
        plan, figure = plan_with_input(plan, about.find)
        results.append(AnswerContent((figure,)))
    if plan is not None:
        compiled = books(plan)
    case = Case(about, compiled, tuple(results))
    of_records = {figure.name: figure for result in reversed(results) for figure in reversed(result.figures)}
    for name, sought in about.figures.items():
        figure = of_records.get(sought.expression.text) or figure_of(name, sought, case.names)
        if figure.value != NONE.value:
            case.figures[name] = replace(
                figure, name=name, title=figure.title if sought.title is None else sought.title
            )
    if not about.figures:
        case.figures.update({figure.name: figure for result in results for figure in result.figures})
    return case


def figure_of(name: str, sought: Sought, names: Names) -> Figure:
    """A figure of an expression; raises SpecError at the place of an expression that has no value."""
    text = sought.expression.text.strip()
    try:
        result = evaluate(text, names)
        _require_unit(name, result, sought)
    except ExpressionError as error:
        if sought.expression.where is None:
            raise
        raise SpecError([Problem(sought.expression.where, error.message, error.help)]) from error
    value: Value = result.value
    if isinstance(value, Fraction) and value.denominator == 1:
        value = int(value)
    is_name = text.replace(".", "").replace("_", "").isalnum()
    formula = "" if is_name else ALONE.sub(lambda name: name[0].replace("_", " "), text.partition(" if ")[0])
    title = words(text) if is_name and "." in text else name.replace("_", " ")
    title = title if sought.title is None else sought.title
    unit = "%" if spelt(text) == "%" else result.unit  # a total that is a share stays one
    return Figure(name, title, value, sought.unit or unit, formula)


def _require_unit(name: str, result: ExpressionQuantity, sought: Sought) -> None:
    """Raises where a stated unit does not follow, and no number in the expression may convert to it (3600 s/h)."""
    has_number = NUMBER.search(sought.expression.text)
    if sought.unit in ("", "1") or result.unit == "1" or has_number or alike(result, quantity_in(0, sought.unit)):
        return
    raise ExpressionError(
        f"`{name}` comes out in {result.unit}, not in {sought.unit}", "leave `unit` out where it follows"
    )


# --- compiled plans, and totals in words ---

ALIVE = {"optimizer": "optimizer states"}
Row = tuple[Value | Amount, ...]
NEGLIGIBLE = 1000  # a part is not called alive below a thousandth of its most: tokens and labels outlive activations
WORDS: Mapping[str, str] = {
    "napkin.flops.run": "FLOPs of the run, by the rule",
    "napkin.days": "days, by the rule",
    "napkin.max_parameters": "bound from state alone",
    "flops.run": "FLOPs of the run, counted",
    "flops.step": "FLOPs of a step, repeated ones included",
    "flops.model": "FLOPs of a step",
    "saved.per_layer.decoder": "kept by one layer",
    "saved.total": "kept by all layers and the head",
    "memory.static.weights": "weights held",
    "memory.static.gradients": "gradients held",
    "memory.static.optimizer": "optimizer states held",
    "memory.static.master": "master copy held",
    "memory.activations": "activations at the peak",
    "memory.logits": "logits at the peak",
    "memory.unsharded": "gathered weights at the peak",
    "memory.peak": "memory at the peak",
    "memory.reserved": "memory reserved",
    "memory.capacity": "memory of the device",
    "time.step": "time of a step",
    "time.calendar": "time of the run",
    "cost.run": "cost of the run",
    "comm.all_gather.data.count": "gathers of weights in a step",
    "comm.all_gather.data.bytes": "weights gathered",
    "comm.all_reduce.data.bytes": "gradients summed (all-reduce)",
    "comm.reduce_scatter.data.bytes": "gradients scattered",
}


@dataclass(frozen=True)
class CompiledPlans:
    """Compiled plans by the digest of what they say."""

    by_reference: dict[str, Compiled] = field(default_factory=dict)

    def __call__(self, plan: Plan) -> Compiled:
        """The plan with its books closed, compiled once."""
        if plan.digest not in self.by_reference:
            self.by_reference[plan.digest] = compile_plan(plan)
        return self.by_reference[plan.digest]


def words(key: str) -> str:
    """A total in words."""
    return WORDS.get(key, key.replace(".", " ").replace("_", " "))


def plan_with_input(plan: Plan, ask: Find) -> tuple[Plan, Figure]:
    """The plan with the solved value of an input, and a figure of that value."""
    objective = {"maximize": ask.maximize, "minimize": ask.minimize, "keep": ask.keep}
    best, solution = solved_plan(plan, ask.path, ask.subject_to, **objective)
    value: Value = solution.value if isinstance(solution.value, int | float | str | bool) else str(solution.value)
    title = f"{solution.goal} {ask.path.rpartition('.')[2].replace('_', ' ')}"
    return best, Figure("found", title, value, solution.unit or "1")


# --- tables ---


def moments(plans: Mapping[str, Compiled]) -> AnswerContent:
    """The peak, which is a maximum over moments; what adding up each stock's own maximum would give instead."""
    if len(plans) != 1:
        raise ExpressionError(
            f"moments are those of one plan, not of {len(plans)}", "name one `plan:`, without `cases:`"
        )
    (compiled,) = plans.values()
    role = max(compiled.roles, key=lambda role: role.peak.total)
    rows = role.moments
    present = [part for part in CATEGORIES if any(moment.parts[part] for moment in rows)]
    figures = [
        Figure("peak", f"peak: {role.peak.title}", role.peak.total, "B"),
        Figure("sum_of_maxima", "sum of what each part reaches at some moment",
               sum(max(moment.parts[part] for moment in rows) for part in CATEGORIES), "B"),
    ]  # fmt: skip
    for part in ("weights", "gradients", "optimizer", "activations"):
        least = max(moment.parts[part] for moment in rows) / NEGLIGIBLE
        phases = list(dict.fromkeys(moment.name.split("/")[0] for moment in rows if moment.parts[part] > least))
        figures.append(Figure(f"alive.{part}", f"{ALIVE.get(part, part)} are alive in", ", ".join(phases)))
    columns = (("moment", ""), *((part, "B") for part in present), ("all", "B"))
    table_rows: tuple[Row, ...] = tuple(
        (moment.title, *(moment.parts[part] for part in present), moment.total) for moment in rows
    )
    return AnswerContent(tuple(figures), Grid("What is alive when", columns, table_rows))


def checklist_lines(plans: Mapping[str, Compiled], only: Sequence[str] = ()) -> AnswerContent:
    """Lines of checklists whose names begin with one of `only`, as `plan/line` where there are several plans."""
    columns = (("plan", ""), ("line", ""), ("outcome", "status"), ("figure", ""), ("why", ""))
    lines = [
        (name, check)
        for name, compiled in plans.items()
        for check in compiled.verdict.checks
        if check.name.startswith(tuple(only) or "")
    ]
    single = len(plans) == 1
    figures = (Figure(check.name if single else f"{name}/{check.name}", "", check.status) for name, check in lines)
    rows: list[Row] = [(name, check.title, check.status, check.figure, check.detail) for name, check in lines]
    return AnswerContent(
        tuple(figures), Grid("Lines of the checklist", columns[single:], tuple(row[single:] for row in rows))
    )


# --- checks of a lecture's expectations ---


def checked_spec(spec: str, compiler: Callable[[], Compiled]) -> CheckOutcome:
    """The outcome of checking a lecture, or else the plan that `compiler` compiles."""
    try:
        return checked_lecture(spec) if is_lecture(spec) else check_plan(spec, compiler)
    except SpecError as error:
        return CheckOutcome(spec, problems=error.problems, sources=error.sources)


def missed_at(outcome: Outcome, answer: Answer) -> Problem:
    """An expectation that does not hold, in its place, beside what was found."""
    expected, figure = outcome.expected, answer.figure(outcome.expected.figure)
    asked = f"`{answer.question.name}`: expected {expected.figure} {expected.text}"
    if figure is None:
        names = [candidate.name for candidate in answer.found.figures]
        return Problem(expected.where, f"{asked}, and it has no such figure", nearest(expected.figure, names))
    value = figure.value if isinstance(figure.value, str | bool) else with_unit(figure.value, figure.unit)
    return Problem(expected.where, f"{asked}, found {str(value).lower() if isinstance(value, bool) else value}")


def checked_lecture(spec: str) -> CheckOutcome:
    """A lecture's answers beside what is expected of them, and what the notes claim; raises SpecError."""
    lecture = load_lecture(spec)
    answered = tuple(answers(lecture))
    missed = tuple(
        missed_at(outcome, answer) for answer in answered for outcome in answer.outcomes if not outcome.holds
    )
    by_name = {answer.question.name: answer for answer in answered}
    contradicted = (
        problem
        for claim in lecture.claims
        if claim.question
        for problem in contradictions(claim, by_name[claim.question].question.printed, by_name[claim.question].figures)
    )
    return CheckOutcome(spec, failures=(*missed, *contradicted), headline=f"{len(answered)} questions")
