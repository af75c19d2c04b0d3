"""The values of the symbols in one role of one plan, and where in the spec each comes from."""

from __future__ import annotations

from collections.abc import Iterator

import sympy

from ledger.books.evaluate import Exact
from ledger.books.results import Symbol
from ledger.model.dims import BY_NAME, symbol
from ledger.model.schedule import Role, micro_batches
from ledger.spec.plan import Model, Plan


def bindings(plan: Plan, role: Role) -> dict[sympy.Symbol, Exact]:
    """Every symbol a formula of this role may use."""
    return {sign: value for sign, value, _, _ in _rows(plan, role)}


def described(plan: Plan, role: Role) -> dict[str, Symbol]:
    """The same with meaning and spec path, by printed name."""
    return {
        sign.name: Symbol(sign.name, BY_NAME[name].meaning, value, path)
        for sign, value, name, path in _rows(plan, role)
    }


def _rows(plan: Plan, role: Role) -> Iterator[tuple[sympy.Symbol, Exact, str, str]]:
    degrees = plan.parallelism
    shared: dict[str, Exact] = {
        "batch": plan.run.micro_batch,
        "seq": plan.run.seq_len,
        "data": degrees.data,
        "tensor": degrees.tensor,
        "pipeline": degrees.pipeline,
        "context": degrees.context,
        "chunks": degrees.interleave,
        "micro_batches": micro_batches(plan),
        "in_flight": role.in_flight,
        **_model_sizes(plan.model),
    }
    for name, value in shared.items():
        yield symbol(name), value, name, BY_NAME[name].path
    for index, group in enumerate(plan.model.groups):
        suffix = group.name if len(plan.model.groups) > 1 else ""
        attention = group.attention
        own: dict[str, Exact] = {
            "layers": role.layers[index],
            "heads": attention.heads,
            "kv_heads": attention.kv_heads,
            "head_dim": attention.head_dim,
            "d_ff": group.mlp.d_ff,
        }
        if attention.rotary:
            own["rotary_dim"] = int(attention.rotary * attention.head_dim)
        if attention.window:
            own["window"] = min(attention.window, plan.run.seq_len)
        for name, value in own.items():
            yield symbol(name, suffix), value, name, BY_NAME[name].path.format(group=group.name)


def _model_sizes(model: Model) -> dict[str, Exact]:
    if model.bare:
        return {"parameters": model.parameters or 0}
    found: dict[str, Exact] = {"d_model": model.d_model, "vocab": model.vocab}
    if model.learned_positions:
        found["positions"] = model.learned_positions
    return found
