"""The table of symbols: every letter that a formula may use, its meaning, and the spec path its value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import sympy


@dataclass(frozen=True)
class Dim:
    """A named dimension: `symbol` stands for its whole size, before any layout splits it."""

    name: str
    symbol: sympy.Symbol
    suffix: str = ""  # of the layer group that its symbol belongs to


@dataclass(frozen=True)
class Letter:
    """One row of the table of symbols. `{group}` in `path` is the name of a layer group."""

    name: str
    letter: str
    meaning: str
    path: str


LETTERS = (
    Letter("batch", "B", "sequences in a micro-batch on one device", "run.micro_batch"),
    Letter("seq", "S", "tokens in a sequence", "run.seq_len"),
    Letter("key", "S", "tokens in a sequence", "run.seq_len"),
    Letter("d_model", "D", "width of the residual stream", "model.d_model"),
    Letter("heads", "H", "query heads of a layer", "model.layers.{group}.attention.heads"),
    Letter("kv_heads", "K", "key and value heads of a layer", "model.layers.{group}.attention.kv_heads"),
    Letter("head_dim", "E", "width of one head", "model.layers.{group}.attention.head_dim"),
    Letter("v_head_dim", "Ev", "width of the values of one head", "model.layers.{group}.attention.v_head_dim"),
    Letter("nope_head_dim", "En", "part of a head without positions", "model.layers.{group}.attention.nope_head_dim"),
    Letter("rope_head_dim", "Er", "rotated part of a head", "model.layers.{group}.attention.rope_head_dim"),
    Letter("q_rank", "Cq", "width of the latent of the queries", "model.layers.{group}.attention.q_rank"),
    Letter("kv_rank", "C", "width of the latent of keys and values", "model.layers.{group}.attention.kv_rank"),
    Letter("rotary_dim", "R", "width of the rotated part of one head", "model.layers.{group}.attention.rotary"),
    Letter("d_ff", "F", "width of the feed-forward layer", "model.layers.{group}.mlp.d_ff"),
    Letter("shared_d_ff", "Fs", "width of the shared experts of a layer", "model.layers.{group}.mlp.shared.d_ff"),
    Letter("experts", "X", "experts of a layer", "model.layers.{group}.mlp.experts"),
    Letter("routes", "X", "experts of a layer", "model.layers.{group}.mlp.experts"),
    Letter("top_k", "T", "experts that one token uses", "model.layers.{group}.mlp.top_k"),
    Letter(
        "capacity_factor", "cf", "room of an expert over its even share", "model.layers.{group}.mlp.capacity_factor"
    ),
    Letter("vocab", "V", "rows of the vocabulary", "model.vocab"),
    Letter("positions", "P", "rows of the learned position table", "model.embedding.learned_positions"),
    Letter("parameters", "N", "parameters of the model", "model.parameters"),
    Letter("window", "W", "tokens a query may look back", "model.layers.{group}.attention.window"),
    Letter("chunk", "U", "tokens of a chunk that attention does not leave", "model.layers.{group}.attention.chunk"),
    Letter("layers", "L", "layers on one device", "model.layers.{group}.repeat"),
    Letter("predictions", "Y", "further tokens that the model predicts", "model.multi_token.depth"),
    Letter("rank", "r", "rank of low-rank adapters", "train.lora.rank"),
    Letter("redone", "Lr", "layers on one device that are recomputed", "recompute.layers"),
    Letter("segment", "Ls", "layers that are rebuilt together", "recompute.segment"),
    Letter(
        "hosted", "Lh", "layers on one device whose activations wait in host memory", "parallelism.offload.activations"
    ),
    Letter("loss_chunks", "Cl", "parts of a sequence that the loss takes one by one", "kernels.loss_chunks"),
    Letter("data", "dp", "data-parallel degree", "parallelism.data"),
    Letter("tensor", "tp", "tensor-parallel degree", "parallelism.tensor"),
    Letter("pipeline", "pp", "pipeline stages", "parallelism.pipeline"),
    Letter("context", "cp", "context-parallel degree", "parallelism.context"),
    Letter("expert", "ep", "expert-parallel degree, within data x context", "parallelism.expert"),
    Letter("replicate", "rp", "copies that hybrid sharding keeps, within data x context", "parallelism.replicate"),
    Letter("imbalance", "im", "tokens of the busiest device over the average", "assumptions.expert_imbalance"),
    Letter("micro_batches", "M", "micro-batches of a step on one device", "run.global_batch"),
    Letter("chunks", "v", "chunks of layers on one device", "parallelism.interleave"),
    Letter("in_flight", "A", "micro-batches whose activations one device holds", "parallelism.pipeline"),
    Letter("waiting", "Q", "micro-batches whose weight gradients wait on one device", "parallelism.schedule"),
    Letter("sends", "Sf", "results of a micro-batch that a device sends to another stage", "parallelism.pipeline"),
    Letter("returns", "Sb", "gradients of a micro-batch that a device sends to another stage", "parallelism.pipeline"),
    Letter("ways", "w2", "ends at which micro-batches enter a pipeline", "parallelism.schedule"),
)
BY_NAME = {row.name: row for row in LETTERS}
COUNTED = {"redone", "segment", "hosted", "in_flight"}  # of the layers of one group, though the path names no group
PER_GROUP = frozenset(row.name for row in LETTERS if "{group}" in row.path) | COUNTED
# Printing order of the factors of a product: the order of the table. A suffix sorts with its letter.
RANK = {row.letter: rank for rank, row in enumerate(LETTERS)}


@cache
def symbol(name: str, suffix: str = "") -> sympy.Symbol:
    """The symbol of a row of the table; `suffix` tells the layer groups of one model apart (`F_dense`)."""
    letter = BY_NAME[name].letter
    return sympy.Symbol(f"{letter}_{suffix}" if suffix and name in PER_GROUP else letter, positive=True, integer=True)


def own(name: str, suffix: str = "") -> Dim:
    """The named dimension of a component's own, whose symbol goes by its name."""
    return Dim(name, sympy.Symbol(f"{name}_{suffix}" if suffix else name, positive=True, integer=True), suffix)


def dim(name: str, suffix: str = "") -> Dim:
    """The named dimension of a row of the table."""
    return Dim(name, symbol(name, suffix), suffix)


def listed(names: str) -> tuple[str, ...]:
    """The names of dims in a text, as einsums have them: `batch seq d_model`."""
    return tuple(names.split())
