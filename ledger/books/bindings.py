"""The values of the symbols in one role of one plan, and where in the spec each comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sympy

from ledger.books.evaluate import Exact
from ledger.books.results import Symbol
from ledger.model.dims import BY_NAME, LETTERS, symbol
from ledger.model.dims import own as own_dim
from ledger.model.images import STEM
from ledger.model.recompute import hosted, redone, segment
from ledger.model.schedule import Role, micro_batches, schedule
from ledger.model.tape import rank_dim
from ledger.spec.documents import causal_keys
from ledger.spec.loss_chunks import CHUNKED_LOSSES, loss_parts
from ledger.spec.parallelism import AXES
from ledger.spec.plan import Group, Model, Plan

OWN = "size `{}` of a part of its author's own"
LIMITS = {"window", "chunk"}  # sizes of what a token sees, which is no more than there is


def bindings(plan: Plan, role: Role) -> dict[sympy.Symbol, Exact]:
    """Every symbol a formula of this role may use."""
    return {sign: value for sign, value, _, _ in _rows(plan, role)}


def described(plan: Plan, role: Role) -> dict[str, Symbol]:
    """The same with meaning and spec path, by printed name."""
    return {
        sign.name: Symbol(sign.name, BY_NAME[name].meaning if name in BY_NAME else OWN.format(name), value, path)
        for sign, value, name, path in _rows(plan, role)
    }


def _rows(plan: Plan, role: Role) -> Iterator[tuple[sympy.Symbol, Exact, str, str]]:
    degrees = plan.parallelism
    shared: dict[str, Exact] = {
        "batch": plan.run.micro_batch,
        "seq": plan.run.seq_len,
        **({"source_seq": plan.run.source_len} if plan.model.encoder_groups else {}),
        **{axis: getattr(degrees, axis) for axis in AXES},
        "imbalance": plan.assumptions.expert_imbalance,
        "replicate": degrees.replicate,
        "chunks": degrees.interleave,
        "micro_batches": micro_batches(plan),
        "in_flight": role.in_flight,
        **_parts(plan),
        "waiting": role.waiting,
        "sends": role.sends,
        "returns": role.returns,
        "ways": schedule(degrees).ways,
        **_model_sizes(plan.model),
    }
    for name, value in shared.items():
        yield symbol(name), value, name, BY_NAME[name].path
    yield from _ranks(plan)
    for index, group in enumerate(plan.model.groups):
        suffix = group.name if len(plan.model.groups) > 1 else ""
        flying = {"in_flight": role.held(index)} if suffix else {}
        own = {"layers": role.layers[index], **flying, **_counted(plan, role, index), **_layer_sizes(group)}
        if plan.run.documents:
            own["document"] = causal_keys(plan.run.documents, plan.run.seq_len, group.attention.window)
        for limit in own.keys() & LIMITS:
            own[limit] = min(own[limit], plan.run.seq_len)
        for name, value in own.items():
            yield symbol(name, suffix), value, name, BY_NAME[name].path.format(group=group.name)
        for part, custom in group.written.items():
            for name, size in custom.dims:
                yield own_dim(name, suffix).symbol, size, name, f"model.layers.{group.name}.{part}.dims.{name}"
    for name, size in plan.model.stem.dims if plan.model.stem else ():
        yield own_dim(name, STEM).symbol, size, name, f"model.stem.dims.{name}"


def _ranks(plan: Plan) -> Iterator[tuple[sympy.Symbol, Exact, str, str]]:
    """The ranks of adapters: one for all, or one for each target."""
    if (lora := plan.train.lora) is None:
        return
    for target in dict.fromkeys(lora.targets) if isinstance(lora.rank, Mapping) else lora.targets[:1]:
        of = f".{target}" if isinstance(lora.rank, Mapping) else ""
        yield rank_dim(lora, target).symbol, lora.rank_of(target), "rank", f"{BY_NAME['rank'].path}{of}"


def model_sizes(model: Model) -> dict[sympy.Symbol, Exact]:
    """The symbols of a model's own sizes, which are the same whatever its layout is."""
    found = {symbol(name): value for name, value in _model_sizes(model).items()}
    for group in model.groups:
        suffix = group.name if len(model.groups) > 1 else ""
        found |= {symbol(name, suffix): value for name, value in _layer_sizes(group).items()}
        for custom in group.written.values():
            found |= {own_dim(name, suffix).symbol: size for name, size in custom.dims}
    found |= {own_dim(name, STEM).symbol: size for name, size in (model.stem.dims if model.stem else ())}
    return found


def _parts(plan: Plan) -> dict[str, Exact]:
    """Where the loss goes part by part, how many parts there are, and their tokens."""
    if plan.kernels.loss not in CHUNKED_LOSSES:
        return {}
    parts = loss_parts(plan.kernels, plan.model, plan.run, plan.parallelism)
    return {"loss_chunks": parts.count, "loss_rows": parts.rows}


def _counted(plan: Plan, role: Role, index: int) -> dict[str, Exact]:
    """Where a policy counts layers: how many of a group's are run again, or how many at once, or leave to the host."""
    chunks, found = plan.parallelism.interleave, dict[str, Exact]()
    if plan.recompute.policy == "layers":
        found["redone"] = redone(plan.recompute, role.layers, chunks)[index]
    if plan.recompute.policy == "segment":
        found["segment"] = segment(plan.recompute, role.layers[index], chunks)
    if plan.parallelism.offload.layers:
        found["hosted"] = hosted(plan.parallelism.offload.layers, role.layers, chunks)[index]
    return found


def _layer_sizes(group: Group) -> dict[str, Exact]:
    """The sizes of the table of symbols that this kind of layer has: attributes of its parts, by the symbol's name."""
    sizes = {row.name: getattr(getattr(group, row.part), row.name, None) for row in LETTERS if row.part}
    return {name: size for name, size in sizes.items() if size}


def _model_sizes(model: Model) -> dict[str, Exact]:
    if model.bare:
        return {"parameters": model.parameters or 0}
    found: dict[str, Exact] = {"d_model": model.d_model}
    if model.image:
        image = model.image
        found |= {"image_height": image.height, "image_width": image.width, "image_channels": image.channels}
        found |= {"patch": image.patch} if image.patch else {}
        found["classes"] = model.classes
    else:
        found["vocab"] = model.vocab
    if model.sound:
        found |= {"bands": model.sound.bands, "frames": model.sound.frames}
    if model.predictions:
        found["predictions"] = model.predictions
    if model.learned_positions:
        found["positions"] = model.learned_positions
    if model.token_types:
        found["token_types"] = model.token_types
    return found
