"""Terms of a trace's graph in a normal form: sums of products of letters and of what sums and products cannot say.

A `Sum` maps products to their coefficients, a product maps factors to their powers. Equal amounts have equal sums, so
like terms add up, and one amount can be seen never to exceed another one. Inputs stand for positive numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd, lcm, prod
from random import Random
from typing import Any, TypeAlias

from ledger.arithmetic.operations import OPERATIONS, Number, as_integer
from ledger.arithmetic.tracing import CONSTANT, INPUT, Graph

Product: TypeAlias = tuple[tuple[int, int], ...]  # factors by their places, with the power of each
Sum: TypeAlias = tuple[tuple[Product, Any], ...]  # products with coefficients, which are exact
Condition: TypeAlias = tuple[Any, ...]  # the name of a comparison and its sums; or "not" and "both" of conditions
ZERO: Sum = ()
ONE: Sum = (((), 1),)
SAMPLES = 8  # drawn numbers at which sums are held against each other before that is proved
ROUNDING = 1e-9
LARGE = 1e6  # whole numbers from here on that are no counts stay as they were written
EXPANDED = 4_000  # products of two sums that are multiplied out
NUMBER, PARAMETER, LETTER, NAME = "number", "parameter", "letter", "name"
CALL, SUM, PICK = "call", "sum", "pick"
NOT_NEGATIVE = {NUMBER, PARAMETER, LETTER, NAME, CALL}
NOT_NEGATIVE |= {"ceil", "floor", "modulo", "square_root", "absolute", "next_power_of_two"}


@dataclass(frozen=True)
class Factor:
    """A part of a product: a `kind`, its sums (`of`), a `name` or a number, and its value at the setting.

    Kinds are `letter`, `name` (of a definition), `number` (that is not whole), `parameter` (a number with a name),
    `call` (of a form by its name), `sum` (a sum that is left together), `ceil` and `floor` of a quotient, `maximum`,
    `minimum`, `where` with a `condition`, `pick` (the value whose key is largest: keys, then values), and functions of
    one or two sums.
    """

    kind: str
    of: tuple[Sum, ...] = ()
    name: str = ""
    value: Any = field(default=None, compare=False)
    number: Any = None
    condition: Condition = ()


def constant(number: Number) -> Sum:
    """A sum that is a whole number or a fraction."""
    return (((), number),) if number else ZERO


def sum_of_terms(terms: Iterable[tuple[Product, Number]]) -> Sum:
    """A sum of these terms, like ones together."""
    numbers: dict[Product, Number] = {}
    for product, number in terms:
        numbers[product] = numbers.get(product, 0) + number
    return tuple(sorted((product, as_integer(number)) for product, number in numbers.items() if number))


def negative(terms: Sum) -> Sum:
    """The sum with the other sign."""
    return tuple((product, -number) for product, number in terms)


def multiply(left: Product, right: Product) -> Product:
    """The product of two products: powers of a factor add up."""
    powers = dict(left)
    for factor, power in right:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted((factor, power) for factor, power in powers.items() if power))


def invert(product: Product) -> Product:
    """One over a product."""
    return tuple((factor, -power) for factor, power in product)


@dataclass
class Algebra:
    """Sums of the terms of a graph, whose values at the `setting` say which of two sums is the larger.

    `names`: terms that stand for themselves by a name; what each is, is in `definitions` once it is asked for.
    `inputs` are sums in the place of inputs, `calls` what makes those of inputs that stand for forms.
    `decides`: choices between terms without `sized` letters are those of the setting, and `conditions` says so.
    """

    graph: Graph
    setting: Mapping[str, Number]
    names: Mapping[int, str] = field(default_factory=dict)
    calls: Mapping[str, Callable[[], Sum]] = field(default_factory=dict)
    decides: bool = False
    inputs: Mapping[str, Sum] = field(default_factory=dict)
    sized: frozenset[str] = frozenset()
    factors: list[Factor] = field(default_factory=list)
    places: dict[Factor, int] = field(default_factory=dict)
    sums: dict[int, Sum] = field(default_factory=dict)
    values: dict[Sum, Any] = field(default_factory=dict)
    positive: dict[int, bool] = field(default_factory=dict)
    drawn: dict[int, list[float]] = field(default_factory=dict)
    widest: dict[tuple[Sum, ...], tuple[int, ...]] = field(default_factory=dict)
    definitions: dict[str, Sum] = field(default_factory=dict)
    conditions: dict[Condition, bool] = field(default_factory=dict)

    # --- factors and their values ---

    def factor(self, factor: Factor) -> Sum:
        """The sum whose one term is this factor."""
        return ((((self.place(factor), 1),), 1),)

    def place(self, factor: Factor) -> int:
        """The place of a factor among `factors`, to which it is added where it is new."""
        place = self.places.get(factor)
        if place is None:
            place = self.places[factor] = len(self.factors)
            self.factors.append(factor)
        return place

    def value(self, terms: Sum) -> Any:
        """A sum at the setting, exact where all of its factors are."""
        computed = self.values.get(terms)
        if computed is not None:
            return computed
        total: Any = 0
        for product, number in terms:
            above, below = (number, 1) if not isinstance(number, Fraction) else (number.numerator, number.denominator)
            for place, power in product:
                value = self.factors[place].value
                above, below = (above * value**power, below) if power > 0 else (above, below * value**-power)
            total = total + OPERATIONS["divide"].exact(above, below)
        self.values[terms] = total
        return total

    def is_exact(self, terms: Sum) -> bool:
        """Whether no rounded number is in it."""
        return not isinstance(self.value(terms), float)

    def is_whole(self, terms: Sum) -> bool:
        """Whether it is a whole number whatever whole numbers its letters are."""
        return all(
            not isinstance(number, Fraction)
            and all(power > 0 and isinstance(self.factors[place].value, int) for place, power in product)
            for product, number in terms
        )

    def never_negative(self, terms: Sum) -> bool:
        """Whether it is seen to be no less than 0: each term that is taken away is part of one that is added.

        Letters are 1 at least, so that `L*x - x` and `1 - 1/cp` are not negative.
        """
        if not all(self._is_positive(place) for product, _ in terms for place, _ in product):
            return False
        room = {product: number for product, number in terms if number > 0}
        letters = sorted({place for product in room for place, _ in product if self._is_letter(self.factors[place])})
        for product, number in terms:
            missing = -number
            for place in letters if missing > 0 else ():
                larger = multiply(product, ((place, 1),))
                if available := room.get(larger, 0):
                    used = min(missing, available)
                    room[larger] = available - used
                    missing -= used
                if not missing:
                    break
            if missing > 0:
                return False
        return True

    @staticmethod
    def _is_letter(factor: Factor) -> bool:
        """Whether a factor is a letter, or a name that begins with one: it is 1 at least."""
        return factor.kind == LETTER or (factor.kind == NAME and factor.name.partition("_")[0].isupper())

    def _has_positive_coefficients(self, terms: Sum) -> bool:
        return all(number > 0 and all(self._is_positive(place) for place, _ in product) for product, number in terms)

    def _is_positive(self, place: int) -> bool:
        positive = self.positive.get(place)
        if positive is None:
            positive = self.positive[place] = self._is_seen_positive(self.factors[place])
        return positive

    def _is_seen_positive(self, factor: Factor) -> bool:
        if factor.kind in NOT_NEGATIVE:
            return True
        if factor.kind == "maximum":
            return any(self._has_positive_coefficients(terms) for terms in factor.of)
        values = factor.of[len(factor.of) // 2 :] if factor.kind == PICK else factor.of
        return factor.kind in (SUM, "minimum", "truncate", "where", PICK) and all(
            map(self._has_positive_coefficients, values)
        )

    # --- sums of terms ---

    def of(self, place: int) -> Sum:
        """The sum that a term of the graph is."""
        waiting = [place]
        while waiting:
            current = waiting[-1]
            if current in self.sums:
                waiting.pop()
                continue
            name, *operands = self.graph.terms[current]
            missing = [] if name in (INPUT, CONSTANT, "where") else [term for term in operands if term not in self.sums]
            if missing and not self._is_condition(name):
                waiting += [term for term in missing if not self._is_condition(self.graph.terms[term][0])]
                if waiting[-1] != current:
                    continue
            waiting.pop()
            result = self._sum_of_term(current)
            if (called := self.names.get(current)) and not self.is_simple(result):
                result = self.named(called, result)
            self.sums[current] = result
        return self.sums[place]

    def is_simple(self, terms: Sum) -> bool:
        """Whether a sum is a number, a letter or a name, perhaps so many times, and needs no name of its own."""
        return not terms or (
            len(terms) == 1
            and sum(abs(power) for _, power in terms[0][0]) <= 1
            and all(self.factors[place].kind in (NUMBER, PARAMETER, LETTER, NAME) for place, _ in terms[0][0])
        )

    def named(self, name: str, terms: Sum) -> Sum:
        """The name of a sum, in its place; of exact parts of a whole number, so many times what it stands for."""
        if not self.is_exact(terms):
            return self.defined(name, terms)
        above, below = self.fraction(terms)
        if below == ONE:
            return self.defined(name, terms)
        if below[0][0]:
            return self.defined(name, terms) if isinstance(self.value(terms), int) else terms
        times = below[0][1]
        return self._divide(self.defined(f"{name}_x{times}", above), below)

    def defined(self, name: str, terms: Sum) -> Sum:
        """The factor that stands for a sum by a name, whose definition is kept."""
        self.definitions[name] = terms
        return self.factor(Factor(NAME, name=name, value=self.value(terms)))

    @staticmethod
    def _is_condition(name: str) -> bool:
        return name in ("less", "less_equal", "equal", "not", "both")

    def _sum_of_term(self, place: int) -> Sum:
        name, *operands = self.graph.terms[place]
        if name == INPUT:
            return self._input(operands[0])
        if name == CONSTANT:
            return self.number(operands[1])
        if name == "where":
            return self._where(place, operands)
        sums = tuple(map(self.of, operands))
        rule = getattr(self, f"_{name}", None)
        return rule(*sums) if rule else self._function(*sums, name=name)

    def _input(self, name: str) -> Sum:
        if name in self.inputs:
            return self.inputs[name]
        if name in self.calls:
            return self.calls[name]()
        return self.factor(Factor(LETTER, name=name, value=self.setting[name]))

    def number(self, number: Number) -> Sum:
        """A number; one that is not whole is a factor, so that it stays as it was written."""
        if isinstance(number, bool) or not isinstance(number, float):
            return constant(as_integer(number))
        if number == int(number) and abs(number) < LARGE:
            return constant(int(number))
        if number < 0:
            return negative(self.number(-number))
        return self.factor(Factor(NUMBER, number=number, value=number))

    def _add(self, left: Sum, right: Sum) -> Sum:
        return self._join_picks(sum_of_terms((*left, *right)))

    def _subtract(self, left: Sum, right: Sum) -> Sum:
        return sum_of_terms((*left, *negative(right)))

    def _multiply(self, left: Sum, right: Sum) -> Sum:
        if len(left) > 1 and len(right) > 1:
            exact = self.is_exact(left) and self.is_exact(right)
            if not exact or len(left) * len(right) > EXPANDED:
                left, right = self.together(left), self.together(right)
        return sum_of_terms(
            (multiply(first, second), number * times) for first, number in left for second, times in right
        )

    def product_of(self, *sums: Sum) -> Sum:
        """The product of several sums."""
        result = ONE
        for terms in sums:
            result = self._multiply(result, terms)
        return result

    def together(self, terms: Sum) -> Sum:
        """A sum of one factor, inside which the terms are left together."""
        if len(terms) < 2:
            return terms
        return self.factor(Factor(SUM, (terms,), value=self.value(terms)))

    def _divide(self, above: Sum, below: Sum) -> Sum:
        if above == below and above:
            return ONE
        if len(below) > 1 and self.is_exact(below):  # what is left together is whole
            below, over = self.fraction(below)
            above = self._multiply(above, over)
        ((product, number),) = self.together(below)
        return sum_of_terms(
            (multiply(dividend, invert(product)), Fraction(times) / Fraction(number)) for dividend, times in above
        )

    _true_divide = _divide

    def _share(self, above: Sum, below: Sum) -> Sum:
        if below and self.never_negative(below):
            return self._divide(above, below)
        return self._function(above, below, name="share")

    def _power(self, base: Sum, exponent: Sum) -> Sum:
        times = self.value(exponent)
        factor = base if self.is_exact(base) and len(base) * abs(times) < 8 else self.together(base)
        result = ONE
        for _ in range(abs(times)):
            result = self._multiply(result, factor)
        return result if times >= 0 else self._divide(ONE, result)

    def fraction(self, terms: Sum) -> tuple[Sum, Sum]:
        """A sum of whole powers over one product: numerator and denominator, both whole."""
        powers: dict[int, int] = {}
        below = 1
        for product, number in terms:
            below = lcm(below, number.denominator if isinstance(number, Fraction) else 1)
            for place, power in product:
                if power < 0:
                    powers[place] = max(powers.get(place, 0), -power)
        denominator = tuple(sorted(powers.items()))
        above = sum_of_terms(
            (multiply(product, denominator), as_integer(Fraction(number) * below)) for product, number in terms
        )
        return above, ((denominator, below),)

    def common(self, terms: Sum) -> tuple[Product, int]:
        """The product and the number that all terms of a sum with whole coefficients are multiples of."""
        shared = dict(terms[0][0]) if terms else {}
        number = 0
        for product, times in terms:
            powers = dict(product)
            shared = {place: min(power, powers[place]) for place, power in shared.items() if place in powers}
            number = gcd(number, int(times)) if not isinstance(times, Fraction) else 1
        return tuple(sorted((place, power) for place, power in shared.items() if power)), number or 1

    def _quotient(self, above: Sum, below: Sum) -> tuple[Sum, Sum]:
        """A quotient with whole numerator and denominator that share no factor."""
        upper, over = self.fraction(above)
        lower, under = self.fraction(below)
        upper, lower = self._multiply(upper, under), self._multiply(lower, over)
        first, second = self.common(upper), self.common(lower)
        shared = tuple((p, min(power, dict(second[0])[p])) for p, power in first[0] if p in dict(second[0]))
        number = gcd(first[1], second[1])

        def reduced(terms: Sum) -> Sum:
            return sum_of_terms(
                (multiply(product, invert(shared)), as_integer(Fraction(times, number))) for product, times in terms
            )

        return reduced(upper), reduced(lower)

    def _ceil_divide(self, above: Sum, below: Sum) -> Sum:
        return self._round_quotient("ceil", above, below)

    def _floor_divide(self, above: Sum, below: Sum) -> Sum:
        return self._round_quotient("floor", above, below)

    def _round_quotient(self, kind: str, above: Sum, below: Sum) -> Sum:
        if not above:
            return ZERO
        upper, lower = self._quotient(above, below)
        if len(lower) == 1 and lower[0] == ((), 1) and self.is_whole(upper):
            return upper
        exact = OPERATIONS[f"{kind}_divide"].exact(self.value(upper), self.value(lower))
        if len(upper) == len(lower) == 1 and not upper[0][0] and not lower[0][0]:
            return constant(exact)
        return self.factor(Factor(kind, (upper, lower), value=exact))

    def _modulo(self, above: Sum, below: Sum) -> Sum:
        upper, lower = self._quotient(above, below) if above else (ZERO, ONE)
        if lower == ONE and self.is_whole(upper):
            return ZERO
        return self._function(above, below, name="modulo")

    def _floor(self, terms: Sum) -> Sum:
        return self._truncate(terms)  # no amount is negative

    def _truncate(self, terms: Sum) -> Sum:
        value = self.value(terms)
        if isinstance(value, int):
            return terms
        if isinstance(value, float):
            return self._function(terms, name="truncate")
        return self._round_quotient("floor", terms, ONE)

    def _function(self, *of: Sum, name: str) -> Sum:
        values = [self.value(terms) for terms in of]
        value = OPERATIONS[name].exact(*values)
        if all(not terms or terms == (((), terms[0][1]),) for terms in of):
            return self.number(value)
        return self.factor(Factor(name, of, value=value))

    def _maximum(self, *of: Sum) -> Sum:
        return self.extreme("maximum", of)

    def _minimum(self, *of: Sum) -> Sum:
        return self.extreme("minimum", of)

    def extreme(self, kind: str, of: Sequence[Sum]) -> Sum:
        """The largest or smallest of several sums, without those that are seen never to be it."""
        flat: dict[Sum, None] = {}
        for terms in of:
            factor = self.only_factor(terms)
            flat.update(dict.fromkeys(factor.of if factor and factor.kind == kind else (terms,)))
        sign = 1 if kind == "maximum" else -1
        listed = tuple(flat)
        if sign > 0 and len(listed) > 2 and all(map(self.is_exact, listed)):
            candidates = [listed[at] for at in self.widest_of(listed)]
        else:
            candidates = []
            for terms in listed:
                if not any(self._exceeds(candidate, terms, sign) for candidate in candidates):
                    candidates = [
                        candidate for candidate in candidates if not self._exceeds(terms, candidate, sign)
                    ] + [terms]
        values = [self.value(terms) for terms in candidates]
        value = max(values) if sign > 0 else min(values)
        if self.decides and not any(self.sized & self.letters(terms) for terms in candidates):
            best = candidates[values.index(value)]
            for terms in candidates:
                if terms != best:
                    self.conditions[("less", best, terms) if sign > 0 else ("less", terms, best)] = False
            return best
        return candidates[0] if len(candidates) == 1 else self.factor(Factor(kind, tuple(candidates), value=value))

    def _exceeds(self, left: Sum, right: Sum, sign: int) -> bool:
        if left == right:
            return True
        if (self.value(left) - self.value(right)) * sign < 0:
            return False
        if sign < 0:
            left, right = right, left
        if self.never_negative(sum_of_terms((*left, *negative(right)))):
            return True
        if self.is_exact(left):
            return False
        if (largest := self.only_factor(right)) and largest.kind == "maximum":
            return all(self._exceeds(left, part, 1) for part in largest.of)
        smaller = self.in_numbers(right)
        return any(
            all(number >= 0 for _, number in sum_of_terms((*larger, *negative(smaller))))
            for larger in self._choices(left)
        )

    def _choices(self, terms: Sum) -> Iterator[Sum]:
        """The sum in plain numbers, with either part of the first largest of several that it adds."""
        for product, number in terms:
            if number == 1 and len(product) == 1 and product[0][1] == 1:
                factor = self.factors[product[0][0]]
                if factor.kind == "maximum":
                    further = tuple(term for term in terms if term != (product, number))
                    for part in factor.of:
                        yield from self._choices(sum_of_terms((*further, *part)))
                    return
        yield self.in_numbers(terms)

    def in_numbers(self, terms: Sum) -> Sum:
        """The sum with numbers for what stands for numbers, and without sums that are left together."""
        expanded: list[tuple[Product, Number]] = []
        for product, number in terms:
            parts: Sum = (((), number),)
            for place, power in product:
                factor = self.factors[place]
                if factor.kind in (NUMBER, PARAMETER):
                    parts = tuple((part, times * factor.value**power) for part, times in parts)
                elif factor.kind == SUM and power == 1:
                    inner = self.in_numbers(factor.of[0])
                    parts = tuple((multiply(part, inner_part), a * b) for part, a in parts for inner_part, b in inner)
                else:
                    parts = tuple((multiply(part, ((place, power),)), times) for part, times in parts)
            expanded += parts
        return sum_of_terms(expanded)

    def only_factor(self, terms: Sum) -> Factor | None:
        """The factor that a sum is, if it is one and no more."""
        if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and terms[0][0][0][1] == 1:
            return self.factors[terms[0][0][0][0]]
        return None

    # --- choices ---

    def condition(self, place: int) -> tuple[Condition, bool]:
        """A condition, and whether it holds at the setting; of any other term, whether it is not 0."""
        name, *operands = self.graph.terms[place]
        if name == "not":
            condition, truth = self.condition(operands[0])
            return ("not", condition), not truth
        if name == "both":
            (left, left_holds), (right, right_holds) = map(self.condition, operands)
            return ("both", left, right), left_holds and right_holds
        if name in ("less", "less_equal", "equal"):
            sums = tuple(map(self.of, operands))
            return (name, *sums), bool(OPERATIONS[name].exact(*map(self.value, sums)))
        terms = self.of(place)
        return ("equal", terms, ZERO), self.value(terms) == 0

    def _where(self, place: int, operands: Sequence[int]) -> Sum:
        chosen, yes, no = operands
        if picked := self._pick(place):
            return picked
        name, *compared = self.graph.terms[chosen]
        if name == "less" and compared == [no, yes]:
            keys, current = [yes], no
            while self._is_larger_of(current):
                _, _, yes, current = self.graph.terms[current]
                keys.append(yes)
            return self.extreme("maximum", [self.of(key) for key in (current, *reversed(keys))])
        condition, truth = self.condition(chosen)
        if name not in ("less", "less_equal", "equal", "not", "both"):  # a number, of which it is asked whether it is 0
            condition, truth = ("not", condition), not truth
        if self.of(yes) == self.of(no):
            return self.of(yes)
        if (settled := self.settled(condition)) is not None:
            return self.of(yes if settled else no)
        if self.decides and not self._depends_on_sized(condition):
            self.conditions[condition] = truth
            return self.of(yes if truth else no)
        sums = self.of(yes), self.of(no)
        value = self.value(sums[0] if truth else sums[1])
        return self.factor(Factor("where", sums, value=value, condition=condition))

    def _is_larger_of(self, place: int) -> bool:
        """Whether a term is the larger of two, as a choice."""
        name, *operands = self.graph.terms[place]
        if name != "where" or place in self.sums or place in self.names:
            return False
        chosen, yes, no = operands
        return self.graph.terms[chosen] == ("less", no, yes)

    def settled(self, condition: Condition) -> bool | None:
        """Whether a condition is true or false of all letters; None where that is not seen."""
        name, *parts = condition
        if name == "not":
            opposite = self.settled(parts[0])
            return None if opposite is None else not opposite
        if name == "both":
            truths = [self.settled(part) for part in parts]
            return False if False in truths else True if truths == [True, True] else None
        left, right = parts
        if left == right:
            return bool(name != "less")
        more, less = sum_of_terms((*right, *negative(left))), sum_of_terms((*left, *negative(right)))
        above, below = (self.never_negative(sum_of_terms((*difference, ((), -1)))) for difference in (more, less))
        if name == "equal":
            return False if above or below else None
        if above or (name == "less_equal" and self.never_negative(more)):
            return True
        return False if below or (name == "less" and self.never_negative(less)) else None

    def simplified(self, condition: Condition) -> Condition:
        """A comparison without what both of its sides are divided by, or multiples of."""
        name, *parts = condition
        if name in ("not", "both"):
            return (name, *map(self.simplified, parts))
        left, right = parts
        _, below = self.fraction(sum_of_terms((*left, *(((product, number) for product, number in right)))))
        if (below[0][0] and not self.never_negative(below)) or not (left or right):
            return condition
        left, right = self._multiply(left, below), self._multiply(right, below)
        if not all(isinstance(number, int) for _, number in (*left, *right)):
            return condition
        shared, number = self.common((*left, *right))
        if not self.never_negative(((shared, 1),)):
            shared = ()
        left, right = (
            sum_of_terms((multiply(product, invert(shared)), times // number) for product, times in terms)
            for terms in (left, right)
        )
        if all(times <= 0 for _, times in (*left, *right)):
            left, right = negative(right), negative(left)
        return name, left, right

    def _depends_on_sized(self, condition: Condition) -> bool:
        """Whether a condition is about what a form is given, not only about letters."""
        return any(
            self._depends_on_sized(part) if isinstance(part[0], str) else bool(self.sized & self.letters(part))
            for part in condition[1:]
            if part
        )

    def letters(self, terms: Sum) -> set[str]:
        """The letters that a sum is of."""
        letters: set[str] = set()
        waiting, seen = [terms], set[int]()
        while waiting:
            for product, _ in waiting.pop():
                for place, _ in product:
                    if place in seen:
                        continue
                    seen.add(place)
                    factor = self.factors[place]
                    if factor.kind == LETTER:
                        letters.add(factor.name)
                    elif factor.kind == NAME:
                        waiting.append(self.definitions[factor.name])
                    waiting += [*factor.of, *conditioned(factor.condition)]
        return letters

    def _pick(self, place: int) -> Sum | None:
        """The value whose key is the largest, where a term is a choice by the place of that key."""
        values: dict[int, int] = {}
        argument: int | None = None
        current = place
        while True:
            name, *operands = self.graph.terms[current]
            if name != "where":
                break
            compared = self.graph.terms[operands[0]]
            if compared[0] != "equal" or self.graph.terms[compared[2]][0] != CONSTANT:
                break
            if argument not in (None, compared[1]):
                break
            argument = compared[1]
            values.setdefault(self.graph.terms[compared[2]][2], operands[1])
            current = operands[2]
        if argument is None or (keys := self._keys(argument)) is None:
            return None
        return self.pick([self.of(key) for key in keys.values()], [self.of(values.get(at, current)) for at in keys])

    def _keys(self, place: int) -> dict[int, int] | None:
        """The keys of which a term is the place of the largest, by their places."""
        keys: dict[int, int] = {}
        current = place
        while self.graph.terms[current][0] == "where":
            _, chosen, index, otherwise = self.graph.terms[current]
            compared = self.graph.terms[chosen]
            if compared[0] != "less" or self.graph.terms[index][0] != CONSTANT:
                return None
            keys[self.graph.terms[index][2]] = compared[2]
            best, current = compared[1], otherwise
        if not keys or self.graph.terms[current][0] != CONSTANT:
            return None
        keys[self.graph.terms[current][2]] = best
        return dict(reversed(keys.items()))

    def pick(self, keys: Sequence[Sum], values: Sequence[Sum]) -> Sum:
        """The value whose key is the largest, the first of them; that key itself where values are keys."""
        places = self.widest_of(tuple(keys))
        keys, values = [keys[at] for at in places], [values[at] for at in places]
        if all(value == values[0] for value in values):
            return values[0]
        if tuple(keys) == tuple(values):
            return self.extreme("maximum", keys)
        numbers = [self.value(key) for key in keys]
        chosen = values[numbers.index(max(numbers))]
        if self.decides and not any(self.sized & self.letters(key) for key in keys):
            best = keys[numbers.index(max(numbers))]
            for key in keys:
                if key != best:
                    self.conditions["less", best, key] = False
            return chosen
        return self.factor(Factor(PICK, (*keys, *values), value=self.value(chosen)))

    def widest_of(self, keys: tuple[Sum, ...]) -> tuple[int, ...]:
        """The places of keys of which any may be the largest; of equal ones the first."""
        if keys not in self.widest:
            samples = [self.sampled(key) for key in keys]
            order = sorted(range(len(keys)), key=lambda at: (-self.value(keys[at]), at))
            widest: list[int] = []
            for at in order:
                if not any(
                    keys[larger] == keys[at]
                    or (
                        all(
                            more >= less * (1 - ROUNDING)
                            for more, less in zip(samples[larger], samples[at], strict=True)
                        )
                        and self._exceeds(keys[larger], keys[at], 1)
                    )
                    for larger in widest
                ):
                    widest.append(at)
            self.widest[keys] = tuple(sorted(widest))
        return self.widest[keys]

    def sampled(self, terms: Sum) -> list[float]:
        """The sum at numbers drawn for its factors, several times: what exceeds another one does so at all of them."""
        for place in {place for product, _ in terms for place, _ in product} - self.drawn.keys():
            draw = Random(place)  # noqa: S311 - no secret
            self.drawn[place] = [10 ** draw.uniform(0, 5) for _ in range(SAMPLES)]
        return [
            sum(
                float(number) * prod(self.drawn[place][at] ** power for place, power in product)
                for product, number in terms
            )
            for at in range(SAMPLES)
        ]

    def _join_picks(self, terms: Sum) -> Sum:
        """A sum whose choices by the same keys are made together."""
        alike: dict[tuple[Sum, ...], list[tuple[Product, Number]]] = {}
        for product, number in terms:
            for place, power in product:
                factor = self.factors[place]
                if factor.kind == PICK and power == 1:
                    alike.setdefault(factor.of[: len(factor.of) // 2], []).append((product, number))
        for keys, members in alike.items():
            if len(members) < 2:
                continue
            values = []
            for at in range(len(keys)):
                value: Sum = ZERO
                for product, number in members:
                    cofactors = tuple(
                        (place, power)
                        for place, power in product
                        if self.factors[place].kind != PICK or self.factors[place].of[: len(keys)] != keys
                    )
                    (picked,) = (
                        self.factors[p]
                        for p, _ in product
                        if self.factors[p].kind == PICK and self.factors[p].of[: len(keys)] == keys
                    )
                    value = sum_of_terms((*value, *self._multiply(picked.of[len(keys) + at], ((cofactors, number),))))
                values.append(value)
            further = sum_of_terms(term for term in terms if term not in members)
            return self._add(further, self.pick(keys, values))
        return terms


def conditioned(condition: Condition) -> list[Sum]:
    """The sums that a condition is about."""
    sums: list[Sum] = []
    for part in condition[1:]:
        if part and isinstance(part[0], str):
            sums += conditioned(part)
        else:
            sums.append(part)
    return sums
