"""The ledger's figures of a plan, under the names that PyTorch's figures have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import CompiledRole, Whole, compile_roles, whole
from ledger.books.entries import Entry, Lifetime
from ledger.books.memory.steps import outlives_unit as is_standing
from ledger.books.resources import stock
from ledger.books.results import Moment
from ledger.model.causes import ENDS, LOSS, OUTPUT
from ledger.model.layout import WHOLE
from ledger.model.operations import Operation
from ledger.model.schedule import Role, roles
from ledger.model.tensors import REMEMBERED, Tensor
from ledger.model.units import Builder, units
from ledger.spec.kernel_classes import ATTENTION, MATMUL
from ledger.spec.plan import Plan

Figures = dict[str, int]
PASSES = ("forward", "backward")


def parameters(compiled: Compiled) -> Figures:
    """Parameters of the model."""
    keys = ("parameters",) if compiled.plan.train.kind == "all" else ("parameters", "parameters.trainable")
    return {key: int(compiled.totals[key]) for key in keys}


def flops(compiled: Compiled) -> Figures:
    """FLOPs of one unsharded micro-batch as FlopCounterMode counts them: by pass and kind, and what is recomputed."""
    plan = compiled.plan
    unsharded = whole(plan)
    figures = dict.fromkeys((f"flops.{phase}.{kind}" for phase in PASSES for kind in ("matmul", "attention")), 0)
    for unit in unsharded.units:
        for phase in PASSES:
            rebuilt = unit.saving.again if phase == "backward" else ()  # parts of a loss, whatever the policy
            for operation in (*rebuilt, *getattr(unit, phase)):
                counted = operation.in_all(lambda run: run.counted())
                figures[f"flops.{phase}.{_kind(operation)}"] += int(unsharded.value(unit.count * counted))
    return {**figures, "flops.recompute": _recomputed_flops(plan, unsharded)}


def _kind(operation: Operation) -> str:
    return ATTENTION if operation.kernel.family == ATTENTION else MATMUL


def _recomputed_flops(plan: Plan, unsharded: Whole) -> int:
    """FLOPs that checkpointing adds to the backward pass of the unsharded model."""
    build = Builder(plan.model, plan.precision, WHOLE, plan.kernels, plan.recompute, plan.train)
    layers = [unit for unit in units(build, all_layers_role(plan)) if unit.name not in ENDS]
    again = ((unit.count, operation) for unit in layers for operation in unit.saving.again)
    return int(sum(unsharded.value(count * operation.counted()) for count, operation in again))


def all_layers_role(plan: Plan) -> Role:
    """The role of a device that holds every layer."""
    counts = tuple(group.repeat for group in plan.model.groups)
    return Role("all", (0,), 1, counts, first=True, last=True, in_flight=Fraction(1))


def saved(compiled: Compiled) -> Figures:
    """Bytes that autograd packs for one unsharded micro-batch without recomputation: a layer of each group, and all."""
    figures = {key: int(value) for key, value in compiled.totals.items() if key.startswith("saved.")}
    return {key: value for key, value in figures.items() if not key.endswith(".first")}  # no layer is judged apart


def memory(compiled: Compiled) -> Figures:
    """Bytes one device holds at each moment of a step; the plan's devices all play one role."""
    (book,) = compile_roles(compiled.plan, roles(compiled.plan))
    (role,) = compiled.roles
    return {"after forward": after_forward(book), **moments(book, role.moments)}


def stock_bytes(book: CompiledRole, kind: str) -> int:
    """Bytes of one kind of stock that a device of a role holds all the time: `weights`, `gradients`, `master`."""
    alive = (entry for entry, _ in _live_stocks(book, book.timeline.names) if entry.resource == stock(kind))
    return sum(int(book.value(entry.amount * entry.times)) for entry in alive)


def parameters_held(book: CompiledRole, size: int) -> int:
    """Parameters of a device of a role, which keeps them in `size` bytes each; copies in other formats are none."""
    alive = (entry for entry, _ in _live_stocks(book, book.timeline.names) if entry.resource == stock("weights"))
    parameters = (entry for entry in alive if str(entry.account).endswith((".weight", ".bias")))
    return sum(int(book.value(entry.amount * entry.times)) for entry in parameters) // size


def saved_layers(book: CompiledRole) -> Figures:
    """Bytes that a layer of each group of a role saves in one micro-batch, under the plan's recomputation."""
    return {
        unit.name: int(sum(book.value(tensor.bytes()) for tensor in unit.saving.saved if _is_saved(tensor)))
        for unit in book.program.units
        if unit.name not in ENDS
    }


def _is_saved(tensor: Tensor) -> bool:
    """Whether a layer saves a tensor of its own, though it may keep it until its next pass."""
    return tensor.role == REMEMBERED or not is_standing(tensor)


def moments(book: CompiledRole, role_moments: Sequence[Moment]) -> Figures:
    """Bytes that a device of one role holds all the time, and at each moment."""
    static = _lasting_bytes(book, *book.timeline.names) - stock_bytes(book, "gradients")
    return {"static": static, **_judge_moments(book, role_moments)}


def _judge_moments(book: CompiledRole, role_moments: Sequence[Moment]) -> Figures:
    """The moments under the judge's names: in between, the fullest of several."""
    named: Figures = {}
    mixed = _mixed_group_names(book, [moment.name for moment in role_moments])
    for moment in role_moments:
        phase, *place = moment.name.split("/")
        name = mixed.get(moment.name, moment.name)
        if name == moment.name and len(place) > 1 and place[1] != "end":
            name = "/".join((phase, place[0], "start" if (phase, place[1]) == ("forward", "1") else "inner"))
        named[name] = max(named.get(name, 0), moment.total)
    return named


def _mixed_group_names(book: CompiledRole, names: Sequence[str]) -> dict[str, str]:
    """Names of moments by their place among those of the whole group, where its layers are not all one unit.

    Forward has one layer of each unit, the last, so that of those in between the fullest may not be there.
    """
    groups = {unit.name: unit.group for unit in book.program.units if unit.name not in ENDS}
    several = {group for group in groups.values() if list(groups.values()).count(group) > 1}
    visits: dict[tuple[str, str], list[str]] = {}
    for name in names:
        phase, *place = name.split("/")
        if place and groups.get(place[0]) in several:
            visits.setdefault((phase, groups[place[0]]), []).append(name)
    renamed: dict[str, str] = {}
    for (phase, group), visited in visits.items():
        if phase == "forward":
            renamed[visited[-1]] = f"{phase}/{group}"
            continue
        renamed |= dict.fromkeys(visited, f"{phase}/{group}/inner")
        renamed |= {visited[-1]: f"{phase}/{group}/end", visited[0]: f"{phase}/{group}"}
    return renamed


def _lasting_bytes(book: CompiledRole, *moments: str) -> int:
    """Bytes of what is alive at all of these moments."""
    return sum(int(book.value(entry.amount * entry.times)) for entry, _ in _live_stocks(book, moments))


def _live_stocks(book: CompiledRole, moments: Sequence[str]) -> Iterator[tuple[Entry, Lifetime]]:
    """The stocks that are alive at all of these moments, with when they are."""
    indices = [book.timeline.names.index(name) for name in moments]
    for entry in book.entries:
        when = entry.when
        if isinstance(when, Lifetime) and when.first <= min(indices) and max(indices) <= when.last:
            yield entry, when


def after_forward(book: CompiledRole) -> int:
    """Bytes alive when forward is over: what the loss saves, and all that is there before and after it."""
    loss = [unit for unit in book.program.units if unit.name in (OUTPUT, LOSS)][-1]
    saved = (tensor for tensor in loss.saving.saved if not is_standing(tensor))
    loss_bytes = sum(book.value(tensor.bytes()) for tensor in saved)
    forward, backward = f"forward/{loss.name}", f"backward/{loss.name}"
    return _lasting_bytes(book, forward, backward) + int(loss_bytes) + _regathered_bytes(book, forward, backward)


def _regathered_bytes(book: CompiledRole, *moments: str) -> int:
    """Bytes of whole weights that one moment after another lists anew."""
    listed = [
        {
            entry.account: int(book.value(entry.amount * entry.times))
            for entry, when in _live_stocks(book, [moment])
            if entry.resource == stock("unsharded") and when.first == when.last
        }
        for moment in moments
    ]
    return sum(size for account, size in listed[0].items() if all(account in accounts for accounts in listed))


def collectives(compiled: Compiled, role: str = "") -> Figures:
    """Count and bytes of each collective by axis and pass, of one role or all; what is recomputed runs in backward."""
    figures: Figures = {}
    for account in compiled.accounts:
        if account.resource.kind == "comm" and role in ("", account.role):
            phase = "backward" if account.when == "recompute" else account.when
            for name, amount in (("count", account.times), ("bytes", int(account.times * account.amount))):
                key = f"{account.resource.name}.{phase}.{name}"
                figures[key] = figures.get(key, 0) + amount
    return figures
