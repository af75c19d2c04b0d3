"""Sums of an algebra as text: Python that computes them, or formulas as people write them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from ledger.arithmetic.algebra import (
    LARGE,
    LETTER,
    NAME,
    NUMBER,
    PARAMETER,
    Algebra,
    Condition,
    Factor,
    Product,
    Sum,
    invert,
    multiply,
    negative,
    sum_of_terms,
)
from ledger.arithmetic.operations import as_integer

CHOICE, COMPARED, ADDED, MULTIPLIED, ATOM = range(5)  # how tightly a text binds
Text = tuple[str, int]
OPPOSITE = {"less": ">=", "less_equal": ">", "equal": "!="}
COMPARISONS = {"less": "<", "less_equal": "<=", "equal": "=="}


@dataclass(frozen=True)
class FormulaText:
    """Texts of an algebra's sums. `python`: as an interpreter reads them, else as a formula.

    `exact_integers`: of whole numbers, which it divides without a rest. `rank` orders the letters of a product.
    `hints` are sums that have a name wherever they stand by themselves; `used` keeps the names that were written.
    `rewrite`: what becomes of a sum before it is written. `rounded_names`: those of factors that are rounded
    quotients, whose `counts` it keeps where asked.
    """

    algebra: Algebra
    python: bool
    rank: Callable[[str], tuple[int, str]]
    exact_integers: bool = False
    hints: Mapping[Sum, str] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)
    rounded_names: Mapping[int, str] = field(default_factory=dict)
    counts: Counter[int] | None = None
    rewrite: Callable[[Sum], Sum] | None = None
    texts: dict[tuple[bool, int], Text] = field(default_factory=dict, repr=False)  # of factors that were written

    def text(self, terms: Sum) -> str:
        """The text of a sum."""
        return self.summed(terms)[0]

    def exactly(self) -> FormulaText:
        """This writer for sums of whole numbers, which it divides without a rest."""
        return replace(self, exact_integers=True)

    def within(self, terms: Sum, least: int) -> str:
        """The text of a sum, in parentheses where it binds less tightly than its surroundings."""
        return bracketed(self.summed(terms), least)

    def summed(self, terms: Sum) -> Text:
        """A sum: of whole numbers it divides without a rest, and once for each denominator."""
        if not terms:
            return "0", ATOM
        if terms in self.hints:
            return self.named(self.hints[terms])
        if self.rewrite:
            terms = self.rewrite(terms)
        if not self.exact_integers:
            return self.divided(terms)
        return sum_of_texts([self.quotient(above, below) for above, below in self.quotients(terms)])

    def named(self, name: str) -> Text:
        """The text of a name, which is noted as used."""
        self.used[name] = None
        return name, ATOM

    def divided(self, terms: Sum) -> Text:
        """A sum of real numbers, terms that are divided by the same together."""
        texts: list[Text] = []
        for product, number in terms:
            if (
                number < 0
                and any(power < 0 for _, power in product)
                and (shorter := self.lessened(terms, product, number))
            ):
                larger, text = shorter
                terms = tuple(term for term in terms if term[0] not in (product, larger))
                texts.append(text)
        groups: dict[Product, list[tuple[Product, Any]]] = {}
        for product, number in terms:
            groups.setdefault(tuple(factor for factor in product if factor[1] < 0), []).append((product, number))
        return sum_of_texts([*texts, *(self.factored(sum_of_terms(members)) for members in groups.values())])

    def lessened(self, terms: Sum, product: Product, number: Any) -> tuple[Product, Text] | None:
        """The text of an amount less a part of itself: `x*(n - 1)/n` of `x - x/n`."""
        for larger, times in terms:
            ratio = multiply(larger, invert(product))
            if times == -number and len(ratio) == 1 and ratio[0][1] == 1:
                difference = sum_of_texts([self.powered(ratio[0][0], 1), ("-1", ADDED)])
                return larger, self.product(product, times, (difference,))
        return None

    def quotients(self, terms: Sum) -> list[tuple[Sum, Sum]]:
        """The sum as quotients that are whole: one for each denominator, or one in all."""
        groups: dict[tuple[Product, int], list[tuple[Product, Any]]] = {}
        for product, number in terms:
            below = tuple((place, -power) for place, power in product if power < 0)
            parts = number.denominator if isinstance(number, Fraction) else 1
            groups.setdefault((below, parts), []).append((product, number))
        quotients: list[tuple[Sum, Sum]] = []
        for (below, parts), members in groups.items():
            above = sum_of_terms((multiply(product, below), as_integer(number * parts)) for product, number in members)
            quotients.append((above, ((below, parts),)))
        if all(self.algebra.value(above) % self.algebra.value(below) == 0 for above, below in quotients):
            return quotients
        return [self.algebra.fraction(terms)]

    def quotient(self, above: Sum, below: Sum) -> Text:
        """A quotient without a rest."""
        if below == (((), 1),):
            return self.factored(above)
        sign = "//" if self.python else "/"
        return f"{bracketed(self.factored(above), MULTIPLIED)} {sign} {self.within(below, ATOM)}", MULTIPLIED

    def factored(self, terms: Sum) -> Text:
        """A sum with what its terms share before it, as often as that shortens it."""
        if len(terms) == 1:
            return self.product(*terms[0])
        shared, number = self.algebra.common(terms)
        if all(times < 0 for _, times in terms):
            number = -number
        if shared or number not in (1, -1):
            further = sum_of_terms(
                (multiply(product, invert(shared)), as_integer(Fraction(times) / number)) for product, times in terms
            )
            return self.product(shared, number, (self.factored(further),))
        if number == -1:
            return f"-({self.factored(negative(terms))[0]})", ADDED
        counts: dict[int, int] = {}
        for product, _ in terms:
            for place, power in product:
                if power > 0:
                    counts[place] = counts.get(place, 0) + 1
        most = max(counts.values(), default=0)
        if most < 2:
            return sum_of_texts([self.product(*term) for term in self.ordered(terms)])
        best = min((place for place, count in counts.items() if count == most), key=self.order)
        having = tuple(term for term in terms if dict(term[0]).get(best, 0) > 0)
        further = tuple(term for term in terms if term not in having)
        if several := self.counted(best, having, further):
            return several
        return sum_of_texts([self.factored(having), *([self.factored(further)] if further else [])])

    def counted(self, best: int, having: Sum, further: Sum) -> Text | None:
        """A sum that is so many times one of its parts: `(L - 1)*x` of `L*x - x`."""
        part = sum_of_terms((multiply(product, ((best, -1),)), number) for product, number in having)
        if (
            len(part) != len(further)
            or len(part) < 2
            or [product for product, _ in part] != [product for product, _ in further]
        ):
            return None
        ratios = {Fraction(above) / Fraction(below) for (_, below), (_, above) in zip(part, further, strict=True)}
        if len(ratios) > 1 or (ratio := ratios.pop()).denominator != 1:
            return None
        times = sum_of_texts([self.powered(best, 1), (str(int(ratio)), ADDED)])
        shared, number = self.algebra.common(part)
        if not shared and number == 1:
            return self.product((), 1, (times, self.factored(part)))
        inner = sum_of_terms(
            (multiply(product, invert(shared)), as_integer(Fraction(many) / number)) for product, many in part
        )
        return self.product(shared, number, (times, self.factored(inner)))

    def ordered(self, terms: Sum) -> list[tuple[Product, Any]]:
        """Terms in the order in which they are written: what is added first, the longest first."""
        return sorted(terms, key=lambda term: (term[1] < 0, -len(term[0]), [self.order(place) for place, _ in term[0]]))

    def order(self, place: int) -> tuple[int, tuple[int, str]]:
        """Numbers come first, then letters as their table has them, then all else."""
        factor = self.algebra.factors[place]
        kinds = (NUMBER, LETTER, NAME, PARAMETER)
        kind = kinds.index(factor.kind) if factor.kind in kinds else len(kinds)
        return kind, self.rank(factor.name) if factor.kind == LETTER else (place, "")

    def product(self, product: Product, number: Any, more: Sequence[Text] = ()) -> Text:
        """The text of a product: what multiplies, then what divides."""
        sign = "-" if number < 0 else ""
        number = abs(number)
        above_number, below_number = (
            (number.numerator, number.denominator) if isinstance(number, Fraction) else (number, 1)
        )
        above = [(str(above_number), ATOM)] if above_number != 1 else []
        below = [(str(below_number), ATOM)] if below_number != 1 else []
        for place, power in sorted(product, key=lambda factor: self.order(factor[0])):
            (above if power > 0 else below).append(self.powered(place, abs(power)))
        above += more
        upper = (
            "*".join(bracketed(text, MULTIPLIED if len(above) == 1 and not below else ATOM) for text in above) or "1"
        )
        binds = MULTIPLIED if len(above) > 1 or below else above[0][1] if above else ATOM
        if below:
            lower = "*".join(bracketed(text, ATOM) for text in below)
            upper = f"{upper}/{f'({lower})' if len(below) > 1 else lower}"
        return (f"{sign}{upper}", ADDED) if sign else (upper, binds)

    def powered(self, place: int, power: int) -> Text:
        """A factor to a positive power."""
        called = self.rounded_names.get(place)
        if self.counts is not None and self.algebra.factors[place].kind in ("ceil", "floor"):
            self.counts[place] += 1
        text = self.named(called) if called else None
        if text is None and self.counts is None:  # else each is counted wherever it stands
            text = self.texts.get((self.exact_integers, place))
        if text is None:
            text = self.texts[self.exact_integers, place] = self.written(self.algebra.factors[place])
        return text if power == 1 else (f"{bracketed(text, ATOM)}**{power}", ATOM)

    def written(self, factor: Factor) -> Text:
        """The text of a factor, by its kind."""
        match factor.kind:
            case "letter" | "name" | "parameter":
                return self.named(factor.name)
            case "number":
                return number_text(factor.number), ATOM
            case "call":
                return f"{self.named(factor.name)[0]}({', '.join(map(self.text, factor.of))})", ATOM
            case "sum":
                return self.summed(factor.of[0])
            case "ceil" | "floor":
                return self.rounded(factor)
            case "maximum" | "minimum":
                return f"{factor.kind[:3]}({', '.join(map(self.text, factor.of))})", ATOM
            case "where":
                return self.chosen(factor.condition, *factor.of)
            case "pick":
                return self.picked(factor)
            case _:
                return self.function(factor)

    def rounded(self, factor: Factor) -> Text:
        """A quotient rounded up or down."""
        above, below = factor.of
        self = self.exactly()  # noqa: PLW0642
        if not self.python:
            quotient = f"{bracketed(self.factored(above), MULTIPLIED)}/{bracketed(self.factored(below), ATOM)}"
            return f"{factor.kind}({quotient})", ATOM
        lower = bracketed(self.factored(below), ATOM)
        if factor.kind == "floor":
            return f"{bracketed(self.factored(above), MULTIPLIED)}//{lower}", MULTIPLIED
        return f"-(-{bracketed(self.factored(above), ATOM)}//{lower})", ADDED

    def chosen(self, condition: Condition, yes: Sum, no: Sum) -> Text:
        """The text of a choice between two amounts."""
        if not self.python:
            return f"choose({self.condition(condition)}, {self.text(yes)}, {self.text(no)})", ATOM
        return f"{self.within(yes, COMPARED)} if {self.condition(condition)} else {self.within(no, COMPARED)}", CHOICE

    def picked(self, factor: Factor) -> Text:
        """The value whose key is the largest."""
        half = len(factor.of) // 2
        keys, values = map(self.text, factor.of[:half]), map(self.text, factor.of[half:])
        pairs = list(zip(keys, values, strict=True))
        if not self.python:
            return f"of_largest({', '.join(text for pair in pairs for text in pair)})", ATOM
        ranked = ", ".join(f"({key}, {-place}, {value})" for place, (key, value) in enumerate(pairs))
        return f"max({ranked})[2]", ATOM

    def function(self, factor: Factor) -> Text:
        """Any other function of one or two amounts."""
        if factor.kind in COMPARISONS:
            compared = self.condition((factor.kind, *factor.of))
            return (compared, COMPARED) if self.python else (f"choose({compared}, 1, 0)", ATOM)
        of = [self.text(terms) for terms in factor.of]
        match factor.kind:
            case "truncate":
                return f"int({of[0]})" if self.python else f"floor({of[0]})", ATOM
            case "square_root":
                return f"{'math.' if self.python else ''}sqrt({of[0]})", ATOM
            case "logarithm":
                return f"{'math.' if self.python else ''}log({of[0]})", ATOM
            case "absolute":
                return f"abs({of[0]})", ATOM
            case "next_power_of_two":
                if not self.python:
                    return f"power_of_two({of[0]})", ATOM
                return f"1 << ({self.exactly().within(factor.of[0], ADDED)} - 1).bit_length()", COMPARED
            case "share":
                above, below = (self.within(terms, ATOM) for terms in factor.of)
                guarded = f"{above}/{below} if {below} else 0.0", CHOICE
                return guarded if self.python else (f"{above}/{below}", MULTIPLIED)
            case "modulo":
                above, below = (self.within(terms, ATOM) for terms in factor.of)
                return (f"{above} % {below}", MULTIPLIED) if self.python else (f"mod({of[0]}, {of[1]})", ATOM)
        message = f"no text for {factor.kind}"
        raise ValueError(message)

    def condition(self, condition: Condition, *, truth: bool = True) -> str:
        """The text of a comparison, or of its opposite where it is not to be true."""
        name, *parts = condition
        if name == "not":
            return self.condition(parts[0], truth=not truth)
        if not self.python:
            sides = ", ".join(self.condition(part) if name == "both" else self.text(part) for part in parts)
            return f"{name}({sides})" if truth else f"opposite({name}({sides}))"
        if name == "both":
            word = "and" if truth else "or"
            return f" {word} ".join(f"({self.condition(part, truth=truth)})" for part in parts)
        sign = COMPARISONS[name] if truth else OPPOSITE[name]
        left, right = (self.within(part, ADDED) for part in parts)
        return f"{left} {sign} {right}"


def number_text(number: float) -> str:
    """A number as short as it can be written."""
    plain = repr(number)
    if "e" in plain or abs(number) < LARGE:
        return plain
    mantissa, _, power = f"{number:.16e}".partition("e")
    short = f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    return short if float(short) == number and len(short) < len(plain) else plain


def bracketed(text: Text, least: int) -> str:
    """A text, in parentheses where it binds less tightly than its surroundings."""
    return text[0] if text[1] >= least else f"({text[0]})"


def sum_of_texts(parts: Sequence[Text]) -> Text:
    """A sum of texts; one with a minus before it is taken away."""
    if len(parts) == 1:
        return parts[0]
    first, *further = (bracketed(part, ADDED) for part in parts)
    return first + "".join(f" - {part[1:]}" if part.startswith("-") else f" + {part}" for part in further), ADDED
