"""The closed forms of a plan's totals, in the letters of the table of symbols.

A form is a sum over letters, and over what it calls by name: what is held at a moment, what kernels take, other totals.
It holds for every plan whose sizes meet its conditions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import count

from ledger.arithmetic.algebra import (
    CALL,
    LETTER,
    NAME,
    ONE,
    PARAMETER,
    PICK,
    ZERO,
    Algebra,
    Condition,
    Factor,
    Sum,
    conditioned,
    constant,
    invert,
    multiply,
    negative,
    sum_of_terms,
)
from ledger.arithmetic.formula_text import FormulaText
from ledger.arithmetic.tracing import CONSTANT, INPUT, Traced, needed
from ledger.arithmetic.values import Amount
from ledger.books.compiled import Compiled
from ledger.books.lettered import PARAMETER as PARAMETER_INPUT
from ledger.books.lettered import SIZE, VALUE, FilledMoment, PricedCall, lettered_service, lettered_totals, same_terms
from ledger.books.results import Number
from ledger.model.causes import ROOT
from ledger.model.dims import RANK

COUNTED = ("parameters", "flops", "saved", "kv_cache", "comm", "traffic", "checkpoint.bytes", "memory", "napkin")
LAYERS = "L"
PACE = "pace.matmul"  # which a run of the rules has where it has all of them
FEW_LAYERS = 6  # of each kind: the first, the last, those beside them, and those between
DEGREES = ("dp", "tp", "pp", "cp", "ep", "rp")
RESERVED = frozenset(("lambda", "in", "is", "if", "or", "and", "not", "for", "max", "min", "abs", "int", "math"))
MOST_CHOICES = 400  # moments and their steps that are held against each other
RUNNING = "bytes of what runs there, of its operations the one that needs most"
COMPARED = ("less", "less_equal", "equal", "not", "both")  # terms that are conditions
WORD = re.compile(r"\W+")


@dataclass(frozen=True)
class Definition:
    """What a form calls by a name: `arguments` of a function, or none. `terms` with a note each are written in lines.

    `numbers` are the fitted numbers of a price. `comment` says what it is, or of which accounts.
    """

    name: str
    terms: tuple[tuple[Sum, str], ...]
    comment: str = ""
    arguments: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    is_integer: bool = False
    algebra: Algebra | None = None


@dataclass(frozen=True)
class RunnerUp:
    """A candidate of a maximum: what it is called, its title, and its value."""

    name: str
    title: str
    value: Number


@dataclass(frozen=True)
class ClosedForm:
    """A total's form: its `definitions` in the order in which they are needed, then its `result`.

    `letters` are its arguments with the plan's values. `candidates`: of a maximum, the largest first.
    `conditions` are those under which it holds.
    """

    total: str
    title: str
    value: Number
    is_integer: bool
    result: Sum
    definitions: tuple[Definition, ...]
    letters: Mapping[str, Number]
    conditions: tuple[str, ...]
    candidates: tuple[RunnerUp, ...]
    rounded: Mapping[int, str]
    forms: ClosedForms = field(repr=False)

    @property
    def service(self) -> bool:
        """Whether the forms are those of a plan that serves."""
        return self.forms.lettered.plan.serve is not None

    def written(self, *, python: bool) -> tuple[list[tuple[Definition, tuple[str, ...]]], str]:
        """The text of each definition, term by term, and that of the result."""
        lines = []
        for definition in self.definitions:
            writer = self.forms.writer(definition, python=python, rounded=self.rounded)
            lines.append((definition, tuple(writer.text(terms) for terms, _ in definition.terms)))
        last = self.forms.writer(None, python=python, whole=self.is_integer, rounded=self.rounded)
        return lines, last.text(self.result)


def rank(name: str) -> tuple[int, str]:
    """The place of a letter in the table of symbols."""
    return RANK.get(name.partition("_")[0], len(RANK)), name


class ClosedForms:
    """The forms of one compiled plan; each is made when it is asked for."""

    def __init__(self, compiled: Compiled, *, paces: bool = False) -> None:
        serves = compiled.plan.serve is not None
        self.lettered = lettered_service(compiled) if serves else lettered_totals(compiled.plan, paces=paces)
        self.table: dict[str, Definition] = {}
        self.hints: dict[Sum, str] = {}
        self.prices: dict[object, Definition] = {}
        self.taken: dict[str, object] = {}
        self.passes: set[str] = set()
        self.rewritten: dict[Sum, Sum] = {}

    @cached_property
    def algebra(self) -> Algebra:
        """The normal form of all terms; letters that are 1 are left out."""
        lettered = self.lettered
        calls = {name: (lambda name=name, call=call: self.priced(name, call)) for name, call in lettered.calls.items()}
        names, ones = dict(self._names()), {name: ONE for name, value in self.fixed.items() if value == 1}
        return Algebra(lettered.graph, lettered.trace.setting, names=names, calls=calls, inputs=ones)

    @cached_property
    def fixed(self) -> dict[str, Number]:
        """The letters that have one value wherever the forms hold: degrees that are 1, say."""
        terms, values = self.lettered.graph.terms, dict[str, Number]()
        for place, truth in {**self.lettered.counted, **self.lettered.timed}.items():
            name, *operands = terms[place]
            sides = [terms[operand] for operand in operands] if name in ("equal", "less", "less_equal") else []
            if [side[0] for side in sides] == [INPUT, CONSTANT] and name == "equal" and truth:
                values[sides[0][1]] = sides[1][2]
            if [side[0] for side in sides] == [CONSTANT, INPUT] and name == "less" and not truth and sides[0][2] == 1:
                values[sides[1][1]] = 1
        return values

    @property
    def layer_letters(self) -> tuple[str, ...]:
        """The letters that count layers."""
        return tuple(name for name in self.lettered.letters if name.partition("_")[0] == LAYERS)

    @cached_property
    def free(self) -> dict[str, int]:
        """Letters of layers that may have other values, with the least: the rules give the same terms there.

        Few layers are tried, or one more: what is between has the same moments.
        """
        lettered = self.lettered
        layers = {name: int(lettered.trace.setting[name]) for name in self.layer_letters}

        def alike(counts: Mapping[str, int]) -> bool:
            traced = lettered_totals(lettered.plan, graph=lettered.graph, values=counts, paces=PACE in lettered.totals)
            return same_terms(lettered, traced)

        if lettered.step is None or not layers:
            return {}
        fewer = {name: min(value, FEW_LAYERS) for name, value in layers.items()}
        if fewer != layers and alike(fewer):
            return fewer
        return layers if alike({name: value + 1 for name, value in layers.items()}) else {}

    def _names(self) -> Iterator[tuple[int, str]]:
        """Terms that a form calls by a name: other totals, the parts of the step, and the passes of units."""
        lettered = self.lettered
        seen: set[int] = set()

        def named(amount: Amount, *words: str) -> Iterator[tuple[int, str]]:
            if isinstance(amount, Traced) and amount.place not in seen:
                seen.add(amount.place)
                yield amount.place, self.unique("_".join(word for word in words if word), amount.place)

        for name, amount in lettered.in_flight:
            yield from named(amount, name)
        for key, amount in lettered.totals.items():
            if not key.startswith("memory.") or key == "memory.peak":
                yield from named(amount, WORD.sub("_", key))
        for stage in lettered.stages:
            role = stage.role.name if len(lettered.stages) > 1 else ""
            for (direction, unit), unit_pass in stage.passes.items():
                for place, called in named(unit_pass.device, unit, direction, role):
                    self.passes.add(called)
                    yield place, called
                yield from named(unit_pass.launch, unit, direction, "launch", role)
                yield from named(unit_pass.slowdown, unit, direction, "slowdown", role)
                for kind, seconds in unit_pass.exposed.items():
                    yield from named(seconds, unit, direction, kind, role)
            yield from named(stage.micro_batch, "micro_batch", role)

    def unique(self, name: str, owner: object) -> str:
        """A name that nothing else has, and no letter."""
        name = WORD.sub("_", name).strip("_")
        name = f"n{name}" if name[:1].isdigit() else name
        for number in count(1):
            called = name if number == 1 else f"{name}_{number}"
            if called in self.lettered.letters or called in RESERVED:
                continue
            if self.taken.setdefault(called, owner) == owner:
                return called
        raise AssertionError

    # --- prices of kernels and transfers ---

    def priced(self, name: str, call: PricedCall) -> Sum:
        """What a kernel takes: a sum where its form comes to one, else a call of the form."""
        definition = self.price(call)
        inner = definition.algebra or self.algebra
        ((terms, _),) = definition.terms
        if (substituted := self.applied(inner, terms, call)) is not None and not any(
            self.algebra.factors[place].kind == "maximum" for product, _ in substituted for place, _ in product
        ):
            return substituted
        sizes = tuple(self.algebra.of(call.sizes[size].place) for size in definition.arguments)
        self.table.setdefault(definition.name, definition)
        seconds = self.algebra.factor(Factor(CALL, sizes, definition.name, self.lettered.trace.setting[name]))
        called = self.unique("t_" + call.accounts[0].partition(" ")[0].rpartition("/")[2], name)
        self.table[called] = Definition(called, ((seconds, ""),), accounts_text(call.accounts))
        return self.algebra.defined(called, seconds)

    def price(self, call: PricedCall) -> Definition:
        """The form that prices a call, once for all that have it; what follows from other sizes is no argument."""
        follows = tuple(self.following(call))
        key = call.seconds.place, tuple(call.sizes), follows
        if key not in self.prices:
            graph = self.lettered.graph
            used = [graph.terms[place] for place in needed(graph, [call.seconds.place])]
            named = {name: name for kind, name, *_ in used if kind == INPUT and name.startswith(PARAMETER_INPUT)}
            inner, terms = self.own_algebra(call, named, follows)
            written = FormulaText(inner, True, rank)
            written.text(terms)
            called = short_names([name for name in named if name in written.used])
            inner, terms = self.own_algebra(call, called, follows)
            inside = inner.letters(terms)
            written = FormulaText(inner, True, rank)
            written.text(terms)
            numbers = {
                factor.name: factor.value
                for factor in inner.factors
                if factor.kind == PARAMETER and factor.name in written.used
            }
            title = self.unique(WORD.sub("_", call.name), key)
            arguments = tuple(size for size in call.sizes if size in inside)
            self.prices[key] = Definition(title, ((terms, ""),), call.name, arguments, numbers, algebra=inner)
        return self.prices[key]

    def following(self, call: PricedCall) -> Iterator[str]:
        """Sizes of a product that follow from its others: its FLOPs, and its bytes if all moves once."""
        sums = {name: self.algebra.of(size.place) for name, size in call.sizes.items()}
        if not {"m", "n", "k", "flops", "bytes"} <= sums.keys():
            return
        for name, terms in self.of_product(self.algebra, sums).items():
            if sums[name] == terms:
                yield name

    @staticmethod
    def of_product(algebra: Algebra, sums: Mapping[str, Sum]) -> dict[str, Sum]:
        """FLOPs of products of m by k with k by n, and the bytes of three matrices of two bytes a number."""
        m, n, k, batch = sums["m"], sums["n"], sums["k"], sums.get("batch", ONE)
        times = algebra.product_of
        sides = (times(m, k), times(k, n), times(m, n))
        matrices = sum_of_terms(term for side in sides for term in side)
        return {"flops": times(constant(2), batch, m, n, k), "bytes": times(constant(2), batch, matrices)}

    def own_algebra(self, call: PricedCall, called: Mapping[str, str], follows: Sequence[str]) -> tuple[Algebra, Sum]:
        """A form over the sizes of a call as letters, with names for its numbers."""
        setting = {**self.lettered.trace.setting, **call.parameters}
        inner = Algebra(self.lettered.graph, setting, decides=True, sized=frozenset(call.sizes))
        sizes = {
            size: inner.factor(Factor(LETTER, name=size, value=amount.sample)) for size, amount in call.sizes.items()
        }
        if follows:
            sizes |= {name: terms for name, terms in self.of_product(inner, sizes).items() if name in follows}
        numbers = {
            name: inner.factor(Factor(PARAMETER, name=called.get(name, name), value=value))
            for name, value in call.parameters.items()
        }
        ones = {name: ONE for name, value in self.fixed.items() if value == 1}
        inner.inputs = {**ones, **{f"{SIZE}{size}": terms for size, terms in sizes.items()}, **numbers}
        return inner, inner.of(call.seconds.place)

    def applied(self, inner: Algebra, terms: Sum, call: PricedCall) -> Sum | None:
        """A form with the sizes of a call in it and its numbers by name; None of one that is no simple sum."""
        algebra, products = self.algebra, list[tuple[Sum, ...]]()
        for product, number in terms:
            factors: list[Sum] = [constant(number)]
            for place, power in product:
                factor = inner.factors[place]
                if factor.kind == LETTER and power > 0 and factor.name in call.sizes:
                    factors += [algebra.of(call.sizes[factor.name].place)] * power
                elif factor.kind == PARAMETER:
                    factors.append(((((algebra.place(self.shared_number(call, factor)), power),), 1),))
                elif factor.kind == "number":
                    factors.append(((((algebra.place(factor), power),), 1),))
                elif factor.kind == "maximum" and power == 1:
                    parts = [self.applied(inner, part, call) for part in factor.of]
                    if None in parts:
                        return None
                    factors.append(algebra.extreme("maximum", [part for part in parts if part is not None]))
                else:
                    return None
            products.append(tuple(factors))
        return sum_of_terms(term for factors in products for term in algebra.product_of(*factors))

    def shared_number(self, call: PricedCall, factor: Factor) -> Factor:
        """A number of a price that a sum has: one of the device, or that of a kernel by the kernel's name."""
        device = factor.name in ("bandwidth", "vector") or factor.name.startswith("peak_")
        name = factor.name if device else f"{WORD.sub('_', call.name)}_{factor.name}"
        called = self.unique(name, ("number", factor.value))
        self.table.setdefault(called, Definition(called, (), numbers={called: factor.value}))
        return Factor(PARAMETER, name=called, value=factor.value)

    # --- moments ---

    @cached_property
    def candidates(self) -> tuple[tuple[str, str, Sum], ...]:
        """The moments of which any may be the fullest, by name, title and bytes.

        What runs within a moment is of several operations the one that needs most; moments share what differs there.
        """
        algebra = self.algebra
        moment_choices = [
            (moment, choice)
            for moment in self.lettered.moments
            for choice in expanded(
                algebra,
                {
                    category: algebra.of(amount.place) if isinstance(amount, Traced) else constant(amount)
                    for category, amount in moment.parts.items()
                },
            )
        ]
        widest = algebra.widest_of(tuple(added(parts) for _, parts in moment_choices))
        moments: dict[int, tuple[FilledMoment, list[dict[str, Sum]]]] = {}
        for at in widest:
            moment, parts = moment_choices[at]
            moments.setdefault(id(moment), (moment, []))[1].append(parts)
        self._name_categories([parts for _, choices in moments.values() for parts in choices])
        several = len({moment.role for moment in self.lettered.moments}) > 1
        listed = []
        for moment, steps in moments.values():
            title = f"{moment.role}: {moment.title}" if several else moment.title
            name = f"{moment.role}, {moment.title}" if several else moment.title
            common = {key: self.least([parts[key] for parts in steps]) for key in steps[0]}
            total = added(common)
            lines = [(terms, "" if terms in self.hints else key) for key, terms in common.items() if terms]
            if len(steps) > 1:
                remainders = [sum_of_terms((*added(parts), *negative(total))) for parts in steps]
                running = algebra.extreme("maximum", remainders)
                phase, unit = moment.title.partition(",")[0], moment.title.rpartition(" ")[2]
                self.hint(running, f"{phase} {unit} runs", ((running, ""),), RUNNING)
                lines.append((running, ""))
                total = sum_of_terms((*total, *running))
            listed.append((self.hint(total, name, tuple(lines), title), title, total))
        return tuple(listed)

    def _name_categories(self, choices: Sequence[Mapping[str, Sum]]) -> None:
        """Names what all moments hold alike by its category."""
        for category in choices[0] if choices else ():
            sums = {parts[category] for parts in choices}
            if len(sums) == 1 and not self.algebra.is_simple(only := next(iter(sums))):
                self.hint(only, category, ((only, ""),), f"bytes of {category}")

    def least(self, sums: Sequence[Sum]) -> Sum:
        """What several sums have in common: of each product the smallest number, or nothing."""
        tables = [dict(terms) for terms in sums]
        return sum_of_terms(
            (product, min(table.get(product, 0) for table in tables))
            for product in dict.fromkeys(p for t in tables for p in t)
        )

    def hint(self, terms: Sum, name: str, lines: tuple[tuple[Sum, str], ...], comment: str) -> str:
        """The name that a sum has wherever it stands by itself."""
        if terms not in self.hints:
            called = self.unique(name, terms)
            self.hints[terms] = called
            self.table[called] = Definition(called, lines, comment, is_integer=True)
        return self.hints[terms]

    # --- forms ---

    def form(self, total: str) -> ClosedForm:
        """The form of a total; KeyError for one that the plan has not."""
        amount = self.lettered.totals[total]
        algebra = self.algebra
        candidates: tuple[RunnerUp, ...] = ()
        if total.startswith("memory."):
            moments = self.candidates
            if total == "memory.peak":
                candidates = tuple(
                    sorted(
                        (RunnerUp(name, title, algebra.value(terms)) for name, title, terms in moments),
                        key=lambda runner_up: -runner_up.value,
                    )
                )
        if total == "memory.peak":
            result = algebra.extreme("maximum", [terms for _, _, terms in self.candidates])
        elif isinstance(amount, Traced):
            result = algebra.of(amount.place)
            if (
                (only := algebra.only_factor(result))
                and only.name == self.algebra.names.get(amount.place)
                and only.name
            ):
                result = algebra.definitions[only.name]
        else:
            result = algebra.number(amount)
        if total.startswith("time."):
            result = self.recognised(result)
        value = amount.sample if isinstance(amount, Traced) else amount
        whole = isinstance(value, int)
        definitions, rounded = self.with_rounded(result, whole=whole)
        uses = set().union(algebra.letters(result), *(self.letters_of(definition) for definition in definitions))
        letters = {name: self.lettered.trace.setting[name] for name in self.lettered.letters if name in uses}
        return ClosedForm(
            total, self.lettered.plan.title, value, whole, result, definitions, letters,
            tuple(self.conditions(total, letters, definitions)), candidates, rounded, self,
        )  # fmt: skip

    def recognised(self, terms: Sum) -> Sum:
        """A sum with the names of passes in the place of what they are made of."""
        names = sorted(
            self.passes & self.algebra.definitions.keys(), key=lambda name: -len(self.algebra.definitions[name])
        )
        for name in names:
            terms = self.with_name(terms, name, self.algebra.definitions[name], least=1.0)
        return terms

    def with_weights(self, terms: Sum) -> Sum:
        """A sum with names for the weights of a layer that a device has."""
        if terms not in self.rewritten:
            rewritten = terms
            for name, inside in self.weights.items():
                for _ in range(3):
                    rewritten = self.with_name(rewritten, name, inside, least=0.75)
            self.rewritten[terms] = rewritten
        return self.rewritten[terms]

    @cached_property
    def weights(self) -> dict[str, Sum]:
        """Elements of weights of one layer that a device has, by name, the longest first."""
        sums: dict[str, Sum] = {}
        for name, amount in self.lettered.held_weights:
            terms = self.algebra.of(amount.place) if isinstance(amount, Traced) else ZERO
            if len(terms) > 1 and terms not in sums.values():
                called = self.unique(f"{name}_weights", terms)
                sums[called] = terms
                comment = f"elements that a device has of {'a layer of ' if name != ROOT else ''}{name}"
                self.table[called] = Definition(called, ((terms, ""),), comment, is_integer=True)
        return dict(sorted(sums.items(), key=lambda item: -len(item[1])))

    def with_name(self, terms: Sum, name: str, inside: Sum, *, least: float) -> Sum:
        """A sum with a name in the place of what it stands for, if so large a part of its terms leaves the sum."""
        if len(inside) > len(terms):
            return terms
        algebra, numbers = self.algebra, dict(terms)
        first = inside[0][0]
        for product in numbers:
            ratio = multiply(product, invert(first))
            if any(algebra.factors[place].kind not in (LETTER, PARAMETER, "number") for place, _ in ratio):
                continue
            scaled = [(multiply(term, ratio), factor) for term, factor in inside]
            shares = [Fraction(numbers.get(term, 0)) / Fraction(factor) for term, factor in scaled]
            times = min(shares) if min(shares) > 0 else max(shares)
            if min(shares) * max(shares) <= 0 or sum(share == times for share in shares) < least * len(shares):
                if not (least == 1.0 and min(shares) >= 1):
                    continue
                times = Fraction(1)
            number = times.numerator if times.denominator == 1 else times
            for term, factor in scaled:
                numbers[term] = numbers[term] - number * factor
            place = algebra.place(Factor(NAME, name=name, value=algebra.value(inside)))
            return sum_of_terms((*numbers.items(), (multiply(ratio, ((place, 1),)), number)))
        return terms

    def letters_of(self, definition: Definition) -> set[str]:
        """The letters of a definition, its arguments aside."""
        algebra = definition.algebra or self.algebra
        letters = set().union(*(algebra.letters(terms) for terms, _ in definition.terms)) if definition.terms else set()
        return letters - set(definition.arguments)

    def writer(
        self,
        definition: Definition | None,
        *,
        python: bool,
        whole: bool = False,
        rounded: Mapping[int, str] | None = None,
    ) -> FormulaText:
        """Writes the sums of a definition."""
        if definition is not None and definition.algebra is not None:
            return FormulaText(definition.algebra, python, rank)
        hints, rounded = self.hints, rounded or {}
        if definition is not None:
            hints = {terms: name for terms, name in self.hints.items() if name != definition.name}
            rounded = {place: name for place, name in rounded.items() if name != definition.name}
            whole = definition.is_integer or self.is_whole(definition)
        rewrite = None if definition is not None and definition.name in self.weights else self.with_weights
        return FormulaText(self.algebra, python, rank, whole, hints, rounded_names=rounded, rewrite=rewrite)

    def with_rounded(self, result: Sum, *, whole: bool) -> tuple[tuple[Definition, ...], Mapping[int, str]]:
        """The definitions of a form, and names for rounded quotients that it has more than once."""
        counts: Counter[int] = Counter()
        for definition in (None, *self.needed(result, whole=whole)):
            if definition is None or definition.algebra is None:
                writer = replace(self.writer(definition, python=True, whole=whole), counts=counts)
                for terms in [result] if definition is None else [terms for terms, _ in definition.terms]:
                    writer.text(terms)
        rounded: dict[int, str] = {}
        for place, times in counts.items():
            if times > 1:
                factor = self.algebra.factors[place]
                above = "".join(
                    sorted((name for name in self.algebra.letters(factor.of[0]) if name not in DEGREES), key=rank)
                )
                called = rounded[place] = self.unique(f"{above or 'whole'}_share", factor)
                quotient: Sum = ((((place, 1),), 1),)
                self.table[called] = Definition(called, ((quotient, ""),), is_integer=True)
        return self.needed(result, whole=whole, rounded=rounded), rounded

    def is_whole(self, definition: Definition) -> bool:
        """Whether a definition is a whole number."""
        places = {name: place for place, name in self.algebra.names.items()}
        if (place := places.get(definition.name)) is None:
            return definition.name.rpartition("_x")[2].isdigit()
        return isinstance(Traced(self.lettered.trace, place).sample, int)

    def needed(self, result: Sum, *, whole: bool, rounded: Mapping[int, str] | None = None) -> tuple[Definition, ...]:
        """The definitions that a form needs, each after those that it calls itself."""
        definitions: dict[str, Definition] = {}

        def visit(name: str) -> None:
            if name in definitions or (definition := self.definition(name)) is None:
                return
            writer = self.writer(definition, python=True, rounded=rounded)
            for terms, _ in definition.terms:
                writer.text(terms)
            for used in writer.used:
                if used != name and used not in definition.arguments:
                    visit(used)
            definitions[name] = definition

        writer = self.writer(None, python=True, whole=whole, rounded=rounded)
        writer.text(result)
        for name in writer.used:
            visit(name)
        return tuple(definitions.values())

    def definition(self, name: str) -> Definition | None:
        """What a name stands for; None of a letter."""
        if name in self.table:
            return self.table[name]
        if name in self.algebra.definitions:
            return Definition(name, ((self.algebra.definitions[name], ""),))
        return None

    # --- conditions ---

    def conditions(self, total: str, letters: Mapping[str, Number], definitions: Sequence[Definition]) -> Iterator[str]:
        """What must hold of the letters of a form, and of those that are left out of it."""
        if ones := [name for name in self.lettered.letters if self.fixed.get(name) == 1]:
            yield " = ".join([*ones, "1"])
        free = {} if set(letters).isdisjoint(self.layer_letters) else self.free
        for name, value in self.fixed.items():
            if value != 1 and name in letters and name not in free:
                yield f"{name} == {value}"
        yield from (f"{name} >= {least}" for name, least in free.items() if name in letters)
        settled = set(self.fixed) | set(free)
        texts: dict[str, None] = {}
        for algebra, condition, truth in self.taken_for_granted(total, definitions):
            about = set().union(*(algebra.letters(terms) for terms in conditioned(condition)), ())
            if about & set(letters) and not about <= settled and algebra.settled(condition) is None:
                texts[FormulaText(algebra, True, rank).condition(condition, truth=truth)] = None
        for text in texts:
            if not (text.endswith(" != 1") and f"1 < {text.removesuffix(' != 1')}" in texts):
                yield text

    def taken_for_granted(
        self, total: str, definitions: Sequence[Definition]
    ) -> Iterator[tuple[Algebra, Condition, bool]]:
        """The conditions under which the rules were run, and those of the forms of prices, with their truth."""
        guards = dict(self.lettered.counted) | ({} if total.startswith(COUNTED) else dict(self.lettered.timed))
        for place, truth in guards.items():
            condition, _ = self.algebra.condition(place)
            compared = self.lettered.graph.terms[place][0] in COMPARED
            yield self.algebra, self.algebra.simplified(condition), truth if compared else not truth
        for definition in definitions:
            if (inner := definition.algebra) is not None:
                yield from (
                    (inner, inner.simplified(condition), truth) for condition, truth in inner.conditions.items()
                )


def added(parts: Mapping[str, Sum]) -> Sum:
    """The sum of sums by name."""
    return sum_of_terms(term for terms in parts.values() for term in terms)


def accounts_text(accounts: Sequence[str]) -> str:
    """The accounts of a price, the first few by name."""
    more = f", and {len(accounts) - 3} more" if len(accounts) > 3 else ""
    return ", ".join(accounts[:3]) + more


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Names of a form's numbers: what follows the colon, with a figure where several are called so."""
    called_by_name: dict[str, str] = {}
    for name in names:
        word = name.removeprefix(PARAMETER_INPUT).partition(VALUE)[0]
        first, _, last = word.partition(":")
        called = first if not last else f"peak_{last}" if first == "peak" else last
        number = sum(earlier == called or earlier.startswith(f"{called}_") for earlier in called_by_name.values())
        called_by_name[name] = f"{called}_{number + 1}" if number else called
    return called_by_name


def expanded(algebra: Algebra, parts: Mapping[str, Sum]) -> list[dict[str, Sum]]:
    """Sums by name with each choice made in every way: those that may be the largest."""
    pending, finished = [dict(parts)], list[dict[str, Sum]]()
    while pending:
        current = pending.pop()
        choice = next((factor for terms in current.values() for factor in choices(algebra, terms)), None)
        if choice is None:
            finished.append(current)
            continue
        size = len(choice.of) // 2 if choice.kind == PICK else len(choice.of)
        keys = choice.of[:size]
        pending += [
            {name: chosen(algebra, terms, choice, keys, at) for name, terms in current.items()} for at in range(size)
        ]
        if len(pending) + len(finished) > MOST_CHOICES:
            return [dict(parts)]
    return finished


def choices(algebra: Algebra, terms: Sum) -> Iterator[Factor]:
    """The choices that a sum adds."""
    for product, number in terms:
        if number == 1 and len(product) == 1 and product[0][1] == 1:
            factor = algebra.factors[product[0][0]]
            if factor.kind in (PICK, "maximum"):
                yield factor


def chosen(algebra: Algebra, terms: Sum, choice: Factor, keys: Sequence[Sum], at: int) -> Sum:
    """A sum in which a choice is made."""
    sums: list[Sum] = []
    for product, number in terms:
        if number == 1 and len(product) == 1 and product[0][1] == 1:
            factor = algebra.factors[product[0][0]]
            alike = factor.kind == PICK and len(factor.of) == 2 * len(keys) and factor.of[: len(keys)] == tuple(keys)
            if factor == choice or alike:
                sums.append(factor.of[len(keys) + at] if factor.kind == PICK else factor.of[at])
                continue
        sums.append(((product, number),))
    return sum_of_terms(term for summand in sums for term in summand)


class PlanForms:
    """The closed forms of a compiled plan's totals, by their names; what they share is made once."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled

    def __getitem__(self, total: str) -> ClosedForm | None:
        """The form of a total; None where no letters reach: of a bare count, of solved rates, of what is no total."""
        if self.compiled.plan.model.bare or total not in self.compiled.totals:
            return None
        forms = self.with_paces if total.startswith("pace.") else self.without_paces
        return forms.form(total) if total in forms.lettered.totals else None

    @cached_property
    def without_paces(self) -> ClosedForms:
        """The forms of all totals but the shares of a step, which take longer."""
        return ClosedForms(self.compiled)

    @cached_property
    def with_paces(self) -> ClosedForms:
        """The forms of all totals, and of how much each price counts for in the step."""
        return ClosedForms(self.compiled, paces=True)
