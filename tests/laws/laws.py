"""Laws that a valid plan keeps under a change of it: each yields what breaks it, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from random import Random
from typing import Any

import numpy as np

from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import CompiledRole
from ledger.books.compiler import compile_plan, compile_totals
from ledger.books.totals import static
from ledger.model import dtypes
from ledger.model.formats import trained_dtype
from ledger.report import live, live_script
from ledger.search.part_choice import solve
from ledger.search.pricing import pieces, price_piece
from ledger.search.space import LAYOUT, space_of
from ledger.spec.load import load_plan
from ledger.spec.overrides import assignments
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
from tests.lawful import FILLING, broken_laws
from tests.laws.random_plans import Drawn, text_of
from tests.report.live_pages import BYTES, EXACT, FLOATS, node

CLOSE = 1e-9  # of sums of floats in another order
LARGEST = 2**53  # of the whole numbers that a float64 holds
STATIC = (*(f"memory.static.{part}" for part in ("weights", "master", "gradients", "optimizer")), "memory.paged")
OF_TOKENS = ("flops.run", "time.run", "napkin.flops.run", "napkin.time.run")  # what is in proportion to the tokens
OF_THE_JOB = ("flops.forward", "flops.backward", "flops.recompute", "flops.model", "flops.step", "flops.run")
Law = Callable[[Drawn, Compiled, Random], Iterator[str]]


def compiled(drawn: Drawn) -> Compiled | None:
    """What a plan comes to; None where the rules have something against it."""
    try:
        plan = load_plan(text_of(drawn))
    except SpecError:
        return None
    return compile_plan(plan)


def totals_of(drawn: Drawn) -> Mapping[str, Any] | None:
    """The totals of a plan alone; None where the rules have something against it."""
    try:
        return compile_totals(load_plan(text_of(drawn)))
    except SpecError:
        return None


def changed(drawn: Drawn, **parts: Mapping[str, Any]) -> Drawn:
    """A plan with some values of its parts replaced."""
    return {**drawn, **{part: {**drawn[part], **values} for part, values in parts.items()}}


def are_equal(one: Any, other: Any) -> bool:
    """Whether two totals are the same: whole numbers to the last digit."""
    if isinstance(one, Real) and isinstance(other, Real):
        return one == other or math.isclose(one, other, rel_tol=CLOSE)
    return bool(one == other)


def bounds_are_in_order(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """Floor <= roofline <= step <= serial; nothing is below zero or not finite."""
    yield from broken_laws(base.totals, filling=drawn["parallelism"].get("schedule") in FILLING)


def parts_are_the_peak(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """What a device holds at its peak is the sum of the parts of that moment."""
    for role in base.roles:
        if sum(role.peak.parts.values()) != role.peak.total:
            yield f"parts of {role.name} sum to {sum(role.peak.parts.values())}, its peak is {role.peak.total}"


def order_is_nothing(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """Keys in another order are the same plan."""
    other = load_plan(text_of(shuffled(drawn, random)))
    if other.digest != base.plan.digest:
        yield "another order of keys is another plan"


def shuffled(value: Any, random: Random) -> Any:
    """The same with the keys of every mapping in another order."""
    if not isinstance(value, dict):
        return value
    keys = list(value)
    random.shuffle(keys)
    return {key: shuffled(value[key], random) for key in keys}


def tokens_take_time(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """Twice the tokens take twice the time and FLOPs of a run, and change no step, whatever the order of keys."""
    tokens = 2 * base.plan.run.tokens
    twice = totals_of(shuffled(changed(drawn, run={"tokens": f"{tokens} tokens"}), random))
    if twice is None:
        yield "a plan of twice the tokens is refused"
        return
    for key, value in base.totals.items():
        factor = 2 if key in OF_TOKENS else 1
        of_run = ("run" in key or "calendar" in key or "napkin" in key or "chinchilla" in key) and factor == 1
        is_there = key in twice and isinstance(value, Real)  # paces are of the compiled plan alone
        if not of_run and is_there and not are_equal(factor * value, twice[key]):
            yield f"{key}: {value} becomes {twice[key]} with twice the tokens"


def devices_share_work(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """Twice the devices, each with half of the sequences, compute the same FLOPs."""
    mesh = drawn["parallelism"]
    devices = drawn["cluster"]["devices"]
    twice = totals_of(changed(drawn, cluster={"devices": 2 * devices}, parallelism={"data": 2 * mesh["data"]}))
    for key in OF_THE_JOB if twice else ():
        if not are_equal(base.totals[key], twice[key]):  # type: ignore[union-attr]
            yield f"{key}: {base.totals[key]} becomes {twice[key]} on twice the devices"  # type: ignore[union-attr]


def a_checkpoint_is_what_is_trained(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """A checkpoint is what one device of the unsharded plan holds of all that is trained; a layout changes nothing."""
    run = {"micro_batch": 1, "global_batch": 1}
    alone = compiled({**changed(drawn, cluster={"devices": 1}, run=run), "parallelism": {}, "recompute": "none"})
    if alone is None:
        return
    saved, precision, held = base.totals["checkpoint.bytes"], base.plan.precision, alone.totals
    if saved != held["checkpoint.bytes"]:
        yield f"a checkpoint of {saved} B is one of {held['checkpoint.bytes']} B on one device"
    trained = held["parameters.trainable"]
    if precision.master:
        copies = held["memory.static.master"]
    elif trained == held["parameters"] and not precision.matmul:  # of whose weights there may be further copies
        copies = held["memory.static.weights"]
    else:
        copies = trained * dtypes.size(trained_dtype(base.plan))
    states = held["memory.static.optimizer"] + held.get("memory.paged", 0)
    if saved != copies + states:
        yield f"a checkpoint of {saved} B, and {copies} B of weights with {states} B of states are trained"
    if not {*base.plan.parallelism.offload.kinds} - {"activations"} and "memory.paged" not in held:
        together = sum(book.role.devices * _trained_bytes(base.plan, book) for book in base.books)
        if together < saved:
            yield f"all devices hold {together} B of what is trained, and save {saved} B"


def _trained_bytes(plan: Plan, book: CompiledRole) -> Any:
    """What a device of a role holds of master copies, or of all weights where there are none, and of states."""
    held = dict(static(plan, book))
    copies = held["memory.static.master" if plan.precision.master else "memory.static.weights"]
    return copies + held["memory.static.optimizer"]


def sharding_saves(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """A stage of ZeRO more holds no more of weights, gradients and states that are there all the time.

    Paged states count, where they are: a share that is too small to page moves to the device.
    """
    stage = drawn["parallelism"]["zero"]
    more = totals_of(changed(drawn, parallelism={"zero": stage + 1})) if stage < 3 else None
    if more is not None:
        before, after = (sum(one.get(key, 0) for key in STATIC) for one in (base.totals, more))
        if after > before:
            yield f"{before} B of states become {after} B with ZeRO {stage + 1} instead of {stage}"


def an_answer_is_the_last(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """The longest sequence that `solve` finds fits, and one that is longer does not, or is no plan."""
    try:
        value = solve(base.plan, ("run.seq_len",), ()).value
    except SpecError:  # of a plan that fits with no sequence, as its memory does not depend on it
        if base.verdict.fits:
            yield "a plan that fits has no longest sequence"
        return
    if not isinstance(value, int):
        return
    step = max(1, drawn["parallelism"]["tensor"]) * 2 * drawn["parallelism"]["context"]
    held = compiled(changed(drawn, run={"seq_len": value}))
    if held is None or not held.verdict.fits:
        yield f"a sequence of {value} is the answer, and does not fit"
    for longer in (value + step, value + 2 * step, 2 * value):
        beyond = compiled(changed(drawn, run={"seq_len": longer}))
        if beyond is not None and beyond.verdict.fits:
            yield f"a sequence of {value} is the answer, and {longer} fits"


def arrays_agree(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """Layouts of the plan's degrees, priced as arrays, are what the compiler says of each."""
    space = space_of(base.plan, fixed(drawn, base.plan))
    keys = tuple(base.totals)
    blocks = [block for piece in pieces(space) for block in price_piece(piece, ("time.step",))]
    rows = [(block, row) for block in blocks for row in range(len(block))]
    layouts = [block.layout(row) for block, row in random.sample(rows, min(2, len(rows)))]
    for layout in layouts:
        alone = space_of(base.plan, {key: [value] for key, value in layout.items() if key in LAYOUT})
        (block,) = (block for piece in pieces(alone) for block in price_piece(piece, keys))
        exact = compile_plan(load_plan(text_of(drawn), assignments(layout))).totals
        for key in keys:
            found = float(block.totals[key][0])
            if key not in exact:
                if not np.isnan(found):
                    yield f"{key}: {found} as an array of {layout}, and nothing by the compiler"
            elif not math.isclose(found, float(exact[key]), rel_tol=CLOSE, abs_tol=CLOSE if "pace" in key else 0.0):
                yield f"{key}: {exact[key]}, and {found} as an array, of {layout}"


def fixed(drawn: Drawn, plan: Plan) -> dict[str, list[Any]]:
    """A space of few layouts: degrees and sizes are those of the plan."""
    mesh = plan.parallelism
    axes = ("tensor", "context", "expert", "pipeline", "interleave", "zero", "replicate")
    degrees = {f"parallelism.{axis}": [getattr(mesh, axis)] for axis in axes}
    return {
        **degrees,
        "parallelism.offload": [None],
        "recompute": [drawn["recompute"]],
        "run.micro_batch": [plan.run.micro_batch],
    }


def page_agrees(drawn: Drawn, base: Compiled, random: Random) -> Iterator[str]:
    """What the panel of a report computes in JavaScript is what the compiler says."""
    page = live.page_of(base.plan)
    if page is None:
        return
    script = f'"use strict";\n{live_script.calculator(page)}\n'
    told = node(f"{script}console.log(JSON.stringify(evaluate(PLAN.own)));")["totals"]
    for key in BYTES:
        if told[key] != base.totals[key]:
            yield f"{key}: {base.totals[key]}, and {told[key]} in the page"
    for key in FLOATS:
        if key in base.totals and not math.isclose(told[key], float(base.totals[key]), rel_tol=EXACT):
            yield f"{key}: {base.totals[key]}, and {told[key]} in the page"


# Each law, and of how many plans one is held to it: solving, arrays and pages take seconds.
LAWS: Mapping[Law, int] = {
    bounds_are_in_order: 1,
    parts_are_the_peak: 1,
    order_is_nothing: 1,
    tokens_take_time: 3,
    devices_share_work: 1,
    a_checkpoint_is_what_is_trained: 1,
    sharding_saves: 1,
    page_agrees: 25,
    an_answer_is_the_last: 50,
    arrays_agree: 200,
}
