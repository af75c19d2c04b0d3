"""Updates that number formats lose: half the spacing at a weight or a state beside the step that an optimizer takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ledger.books.results import Check
from ledger.model.dtypes import BLOCKS, DTYPES
from ledger.model.encodings import half_spacing, relative_half_spacing
from ledger.model.formats import trained_parts
from ledger.model.optimizers import dtype_of, rule_of_class
from ledger.spec.optimizer import NEAREST, Optimizer
from ledger.spec.plan import Plan

# Of the learning rate: the RMS of AdamW's update (Liu et al. 2025, arXiv 2502.16982, section 2.2), which stands in
# where a rule states none.
STEP = Fraction(1, 5)
LAST = Fraction(1, 10)  # of its peak: the learning rate in the end (Touvron et al. 2023, arXiv 2307.09288, section 2.2)
INITIAL = 0.02  # the deviation of GPT-2's weights (openai/gpt-2, src/model.py, conv1d), where no width is known
WIDE = ("fp64", "fp32", "tf32")  # tf32 is kept in the 32 bits of fp32
RULED_AS = {"embedding": "ends", "head": "ends", "norms": "vectors"}  # parts of a model that are no matrices of layers
SCALED = {"e2m1": "nvfp4"}  # a recipe's format, with its scales as one of blocks; others are as exact as mxfp8


def lost_updates(plan: Plan) -> Iterator[Check]:
    """Warnings of weights, and of states, whose format loses updates that are rounded to the nearest value."""
    parts = trained_parts(plan)
    rules = {part: rule_of_class(plan.optimizer, RULED_AS.get(part, "matrices")) for part in parts}
    lost = [
        kept for part in parts if rules[part].rounding == NEAREST and (kept := _kept(plan, part, rules[part])).loses
    ]
    if lost:
        yield _weights_check(plan, lost)
    averages = [row for rule in {rule.name: rule for rule in rules.values()}.values() for row in _averages(plan, rule)]
    if averages:
        yield _averages_check(averages)


# --- weights ---


@dataclass(frozen=True)
class KeptPart:
    """A trained part of a model, the format that its updates are rounded to, and the magnitude of its weights.

    `last_step`: of an update by `rule` at the end of training.
    """

    part: str
    rule: Optimizer
    dtype: str
    magnitude: Fraction
    magnitude_text: str
    last_step: Fraction

    @property
    def half_spacing(self) -> Fraction:
        """What an update must reach to change a weight of that magnitude."""
        return half_spacing(self.dtype, self.magnitude)

    @property
    def loses(self) -> bool:
        """Whether updates at the end of training leave such a weight as it is."""
        return self.dtype not in WIDE and self.last_step < self.half_spacing


def _kept(plan: Plan, part: str, rule: Optimizer) -> KeptPart:
    """A trained part as it is kept between steps: in the master copy where there is one."""
    precision, width = plan.precision, plan.model.d_model
    dtype = precision.master or getattr(precision.weights, part) or precision.weights.base
    recipe = precision.matmul
    if recipe and recipe.weights == "only" and part == "base" and not precision.master:
        dtype = SCALED.get(recipe.format, "mxfp8")
    if part == "norms":
        magnitude, text = 1.0, "1"
    elif width:
        magnitude, text = 1 / math.sqrt(width), f"1/sqrt({width}) = {1 / math.sqrt(width):.3g}"
    else:
        magnitude, text = INITIAL, f"{INITIAL}"
    last_step = LAST * _step_of(rule) * Fraction(plan.assumptions.learning_rate)
    return KeptPart(part, rule, dtype, Fraction(magnitude), text, last_step)


def _step_of(rule: Optimizer) -> Fraction:
    """A rule's step over the learning rate; AdamW's where it states none."""
    return STEP if rule.step is None else Fraction(str(rule.step))


def _step_words(rule: Optimizer) -> str:
    """A rule's step beside the learning rate, in words."""
    if rule.step is None:
        unknown = f"a step of {rule.title} is no fixed share of the learning rate, and so is not known"
        return f"{unknown}; one of AdamW's size is about {float(STEP)} of it"
    share = "the learning rate itself" if rule.step == 1 else f"about {rule.step:g} of the learning rate"
    return f"a step of {rule.title} is {share}"


def _weights_check(plan: Plan, lost: list[KeptPart]) -> Check:
    first, rate = lost[0], plan.assumptions.learning_rate
    half = float(first.half_spacing)
    largest = ", each the largest of its block," if first.dtype in BLOCKS else ""
    assumed = "" if "assumptions.learning_rate" in plan.origins else " (assumed)"
    apart = f"weights of about {first.magnitude_text}{largest} are {2 * half:.3g} apart in {first.dtype}, and a step "
    apart += f"below half of that is rounded to nothing ({_share(first.dtype)} of a weight)"
    step = f"{_step_words(first.rule)}: {float(_step_of(first.rule)) * rate:.2g} at its peak of {rate:g}{assumed}, "
    step += f"{float(first.last_step):.2g} at the tenth in the end"
    parts = [apart, step]
    others: dict[str, list[str]] = {}
    for kept in lost[1:]:
        others.setdefault(f"in {kept.dtype} below {float(kept.half_spacing):.2g}", []).append(kept.part)
    if others:
        limits = (f"of {' and '.join(names)} {limit}" for limit, names in others.items())
        parts.append(f"likewise updates {', '.join(limits)}")
    subject = {"base": "weights", "head": "the head", "embedding": "the embedding"}.get(first.part, first.part)
    master = "the master copy of " if plan.precision.master else ""
    title = f"Updates lost by {master}{subject} in {first.dtype}"
    return Check("precision.updates", title, "warn", f"below {half:.2g}", "; ".join(parts))


def _share(dtype: str) -> str:
    """Half the spacing of a format over the value, as powers of two."""
    return " to ".join(f"2^{round(math.log2(share))}" for share in relative_half_spacing(dtype))


# --- states ---


@dataclass(frozen=True)
class Average:
    """A state of an optimizer that a step leaves `decay` of, in a format that is too coarse for what it takes away."""

    rule: str
    name: str
    dtype: str
    decay: float

    @property
    def words(self) -> str:
        """The state in words: `the second moment of AdamW`."""
        return f"the {self.name.replace('_', ' ')} of {self.rule}"


def _averages(plan: Plan, rule: Optimizer) -> Iterator[Average]:
    """States of a rule that lose changes of 1 - decay; blocks with scales of their own are made for narrow formats."""
    for name, state in rule.states.items():
        dtype = dtype_of(state.dtype, plan.precision)
        if state.decay is None or state.scales or state.rounding != NEAREST or not DTYPES[dtype].exponent_bits:
            continue
        if dtype not in WIDE and 1 - Fraction(state.decay) < relative_half_spacing(dtype)[1]:
            yield Average(rule.title, name, dtype, state.decay)


def _averages_check(averages: list[Average]) -> Check:
    first = averages[0]
    least, most = (f"{float(share):.2g}" for share in relative_half_spacing(first.dtype))
    step = "all of it is left by a step, which only adds to it"
    if first.decay < 1:
        step = f"{first.decay:g} of it is left by a step, which takes {1 - first.decay:.2g} of it away"
    step += f"; half the spacing of {first.dtype} is {least} to {most} of a value ({_share(first.dtype)})"
    parts = [f"{step}, and a change below that is rounded to nothing"]
    if averages[1:]:
        others = (f"{row.words} in {row.dtype}, of which {row.decay:g} is left" for row in averages[1:])
        parts.append(f"likewise {', '.join(others)}")
    title = f"Changes lost by {first.words} in {first.dtype}"
    return Check("precision.averages", title, "warn", f"below {most} of it", "; ".join(parts))
