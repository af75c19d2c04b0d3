"""The values of the symbols in one role of one plan, and where in the spec each comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sympy

from ledger.books.evaluate import Exact
from ledger.books.results import Symbol
from ledger.model.dims import BY_NAME, LETTERS, symbol
from ledger.model.dims import component_dim as own_dim
from ledger.model.images import STEM
from ledger.model.recompute import hosted_layers, recomputed_layers, segment
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
    return {sign: value for sign, value, _, _ in _symbol_rows(plan, role)}


def described(plan: Plan, role: Role) -> dict[str, Symbol]:
    """Every symbol a formula of this role may use, with its meaning and spec path, by printed name."""
    return {
        sign.name: Symbol(sign.name, BY_NAME[name].meaning if name in BY_NAME else OWN.format(name), value, path)
        for sign, value, name, path in _symbol_rows(plan, role)
    }


def _symbol_rows(plan: Plan, role: Role) -> Iterator[tuple[sympy.Symbol, Exact, str, str]]:
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
        **_loss_sizes(plan),
        "waiting": role.deferred_w_passes,
        "sends": role.sends,
        "returns": role.returns,
        "ways": schedule(degrees).pipeline_ends,
        **_model_sizes(plan.model),
    }
    for name, value in shared.items():
        yield symbol(name), value, name, BY_NAME[name].path
    yield from _adapter_ranks(plan)
    for index, group in enumerate(plan.model.groups):
        suffix = group.name if len(plan.model.groups) > 1 else ""
        flying = {"in_flight": role.in_flight_of_group(index)} if suffix else {}
        sizes = {"layers": role.layers[index], **flying, **_layer_counts(plan, role, index), **_layer_sizes(group)}
        if plan.run.documents:
            sizes["document"] = causal_keys(plan.run.documents, plan.run.seq_len, group.attention.window)
        for limit in sizes.keys() & LIMITS:
            sizes[limit] = min(sizes[limit], plan.run.seq_len)
        for name, value in sizes.items():
            yield symbol(name, suffix), value, name, BY_NAME[name].path.format(group=group.name)
        for part, custom in group.written.items():
            for name, size in custom.dims:
                yield own_dim(name, suffix).symbol, size, name, f"model.layers.{group.name}.{part}.dims.{name}"
    for name, size in plan.model.stem.dims if plan.model.stem else ():
        yield own_dim(name, STEM).symbol, size, name, f"model.stem.dims.{name}"


def _adapter_ranks(plan: Plan) -> Iterator[tuple[sympy.Symbol, Exact, str, str]]:
    """The ranks of adapters: one for all, or one for each target."""
    if (lora := plan.train.lora) is None:
        return
    for target in dict.fromkeys(lora.targets) if isinstance(lora.rank, Mapping) else lora.targets[:1]:
        target_path = f".{target}" if isinstance(lora.rank, Mapping) else ""
        yield rank_dim(lora, target).symbol, lora.rank_of(target), "rank", f"{BY_NAME['rank'].path}{target_path}"


def model_sizes(model: Model) -> dict[sympy.Symbol, Exact]:
    """The symbols of a model's own sizes, which are the same whatever its layout is."""
    sizes = {symbol(name): value for name, value in _model_sizes(model).items()}
    for group in model.groups:
        suffix = group.name if len(model.groups) > 1 else ""
        sizes |= {symbol(name, suffix): value for name, value in _layer_sizes(group).items()}
        for custom in group.written.values():
            sizes |= {own_dim(name, suffix).symbol: size for name, size in custom.dims}
    sizes |= {own_dim(name, STEM).symbol: size for name, size in (model.stem.dims if model.stem else ())}
    return sizes


def _loss_sizes(plan: Plan) -> dict[str, Exact]:
    """Where the loss goes part by part, how many parts there are, and their tokens."""
    if plan.kernels.loss not in CHUNKED_LOSSES:
        return {}
    parts = loss_parts(plan.kernels, plan.model, plan.run, plan.parallelism)
    return {"loss_chunks": parts.count, "loss_rows": parts.rows}


def _layer_counts(plan: Plan, role: Role, index: int) -> dict[str, Exact]:
    """Where a policy counts layers: how many of a group's are run again, or how many at once, or leave to the host."""
    chunks, counts = plan.parallelism.interleave, dict[str, Exact]()
    if plan.recompute.policy == "layers":
        counts["redone"] = recomputed_layers(plan.recompute, role.layers, chunks)[index]
    if plan.recompute.policy == "segment":
        counts["segment"] = segment(plan.recompute, role.layers[index], chunks)
    if plan.parallelism.offload.layers:
        counts["hosted"] = hosted_layers(plan.parallelism.offload.layers, role.layers, chunks)[index]
    return counts


def _layer_sizes(group: Group) -> dict[str, Exact]:
    """The sizes of the table of symbols that this kind of layer has: attributes of its parts, by the symbol's name."""
    sizes = {row.name: getattr(getattr(group, row.part), row.name, None) for row in LETTERS if row.part}
    return {name: size for name, size in sizes.items() if size}


def _model_sizes(model: Model) -> dict[str, Exact]:
    if model.bare:
        return {"parameters": model.parameters or 0}
    sizes: dict[str, Exact] = {"d_model": model.d_model}
    if model.image:
        image = model.image
        sizes |= {"image_height": image.height, "image_width": image.width, "image_channels": image.channels}
        sizes |= {"patch": image.patch} if image.patch else {}
        sizes["classes"] = model.classes
    else:
        sizes["vocab"] = model.vocab
    if model.sound:
        sizes |= {"bands": model.sound.bands, "frames": model.sound.frames}
    if model.predictions:
        sizes["predictions"] = model.predictions
    if model.learned_positions:
        sizes["positions"] = model.learned_positions
    if model.token_types:
        sizes["token_types"] = model.token_types
    return sizes
