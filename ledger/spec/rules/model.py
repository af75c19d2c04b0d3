"""Rules on the model, and on the sequences it is trained with."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.architecture import MOST_LAYERS
from ledger.spec.places import Places, divisors
from ledger.spec.plan import Accelerator, Model, Parallelism, Precision, Run, Serve, Stack
from ledger.spec.problems import Problem


def layers_are_not_too_many(model: Model, at: Places) -> Iterator[Problem]:
    """All groups together have no more layers than one group may have."""
    layers = sum(group.repeat for group in model.groups)
    if layers > MOST_LAYERS:
        yield Problem(at("model.layers"), f"the model has {layers} layers", f"at most {MOST_LAYERS} in all groups")


def heads_share_keys(model: Model, at: Places) -> Iterator[Problem]:
    """Every key-value head serves the same number of query heads."""
    for group in model.groups:
        heads, kv_heads = group.attention.heads, group.attention.kv_heads
        if kv_heads and heads % kv_heads:
            message = f"heads = {heads} is no multiple of kv_heads = {kv_heads}"
            field = f"model.layers.{group.name}.attention.kv_heads"
            yield Problem(at(field), message, divisors(heads))


def rotary_is_even(model: Model, at: Places) -> Iterator[Problem]:
    """Rotary positions turn pairs of numbers."""
    for group in model.groups:
        if group.attention.rope_head_dim % 2:
            message = f"rope_head_dim = {group.attention.rope_head_dim} is no even number"
            place = at(f"model.layers.{group.name}.attention.rope_head_dim")
            yield Problem(place, message, "pairs of numbers are rotated")
        rotated = group.attention.rotary * group.attention.head_dim
        if rotated.denominator != 1 or rotated % 2:
            message = (
                f"rotary = {float(group.attention.rotary)} of head_dim = {group.attention.head_dim} is no even number"
            )
            yield Problem(at(f"model.layers.{group.name}.attention.rotary"), message, "pairs of numbers are rotated")


def groups_have_names_of_their_own(model: Model, at: Places) -> Iterator[Problem]:
    """Accounts begin with the group's name."""
    names = [group.name for group in model.groups]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(at(f"model.layers.{name}"), f"two groups are named `{name}`", "give each group its own name")


def groups_take_turns(model: Model, at: Places) -> Iterator[Problem]:
    """A pattern names groups that are there, and uses up the layers of each."""
    if not model.order:
        return
    place = at("model.order" if "model.order" in at.origins else "model.alternating")
    names = [group.name for group in model.groups]
    unknown = [name for name in dict.fromkeys(model.order) if name not in names]
    if unknown:
        message = f"no group is named {' or '.join(f'`{name}`' for name in unknown)}"
        yield Problem(place, message, f"groups are {', '.join(names)}")
        return
    layers = sum(group.repeat for group in model.groups)
    taken = [model.order[layer % len(model.order)] for layer in range(layers)]
    repeats = {group.name: group.repeat for group in model.groups}
    dealt = {name: taken.count(name) for name in names}
    if dealt != repeats:
        written = " and ".join(str(count) for count in repeats.values())
        if "model.order" not in at.origins:
            message = f"alternating groups repeat {written} times"
            yield Problem(place, message, "groups that take turns repeat equally often")
            return
        wanted = ", ".join(f"`{name}` {count}" for name, count in dealt.items())
        message = f"{layers} layers in this order do not repeat their groups {written} times"
        yield Problem(place, message, f"in this order: {wanted}")


def bare_models_have_no_layers(model: Model, at: Places) -> Iterator[Problem]:
    """A parameter count stands in place of sizes, not beside them."""
    beside = [key for key in ("d_model", "layers", "vocab") if f"model.{key}" in at.origins]
    if model.bare and beside:
        message = f"`parameters` beside {', '.join(f'`{key}`' for key in beside)}: the sizes say how many there are"
        yield Problem(at("model.parameters"), message, "leave `parameters` out; `expect:` can assert it")


def gate_and_up_are_there(model: Model, at: Places) -> Iterator[Problem]:
    """One projection for gate and up is of a gated feed-forward part."""
    for group in model.groups:
        path = f"model.layers.{group.name}.mlp.fused_gate_up"
        if group.mlp.fused_gate_up and group.mlp.kind != "gated":
            yield Problem(at(path), f"`{group.name}` has no gate: its mlp is {group.mlp.kind}", "`kind: gated`")


def transform_is_whole(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What stands between layers and head is held whole by every device."""
    if model.head_transform and parallelism.tensor > 1:
        message = f"tensor = {parallelism.tensor} splits the head, and not the projection before it"
        yield Problem(at("parallelism.tensor"), message, "`tensor: 1`, or a model without `head.transform`")


def sequences_are_stated(model: Model, at: Places) -> Iterator[Problem]:
    """Only a bare model can do without sequences."""
    if not model.bare and "run" in at.origins:
        for key in ("seq_len", "micro_batch", "global_batch"):
            if model.image and key == "seq_len":  # which follows from the image
                continue
            if f"run.{key}" not in at.origins:
                yield Problem(at("run"), f"`run` lacks `{key}`", f"`{key}:` a whole number")


def positions_reach(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A learned position table has a row for every token of a sequence."""
    if not model.image and 0 < model.learned_positions < run.seq_len:
        message = f"seq_len = {run.seq_len}, but the model has {model.learned_positions} learned positions"
        yield Problem(at("run.seq_len"), message, f"at most `seq_len: {model.learned_positions}`")


def sequences_are_longer_than_the_model(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A model may be trained beyond the length it was made for, but seldom is."""
    if 0 < model.max_seq_len < run.seq_len:
        message = f"seq_len = {run.seq_len}, but the model was made for {model.max_seq_len}"
        yield Problem(at("run.seq_len"), message, "rotary positions must be rescaled for it")


READ = 8  # values of 16 bits that a matmul kernel reads at once: 16 bytes
PADDED = 64  # to which vocabularies are padded (karpathy/nanoGPT: 50257 to 50304; Megatron-LM pads to 128)


def heads_begin_at_whole_reads(  # noqa: PLR0913 - a rule names the parts it reads
    model: Model,
    accelerator: Accelerator,
    stack: Stack,
    serve: Serve | None,
    precision: Precision,
    parallelism: Parallelism,
    at: Places,
) -> Iterator[Problem]:
    """Rows of a head that begin at less than 16 bytes are multiplied by slower kernels; a compiler pads them.

    Measured on an H200: 4 to 6 times as long at 2 bytes, 2.5 times at 4 and 8 (specs/evidence, h200-sxm-2026-11-27).
    """
    columns = model.vocab // parallelism.tensor
    narrow = precision.compute in ("bf16", "fp16") and columns % READ
    if serve or not narrow or model.bare or stack.compiled or accelerator.kind != "gpu":
        return
    whole = PADDED * parallelism.tensor
    padded = -(-model.vocab // whole) * whole
    message = (
        f"the head has {columns} columns on a device, no multiple of {READ}: its matmuls take longer than is predicted"
    )
    yield Problem(at("model.vocab"), message, f"pad it, as in `--set model.vocab={padded}`")
