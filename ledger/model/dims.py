"""The table of symbols: every letter that a formula may use, its meaning, and the spec path its value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import sympy

from ledger.spec.parallelism import AXES


@dataclass(frozen=True)
class Dim:
    """A named dimension: `symbol` stands for its whole size, before any layout splits it."""

    name: str
    symbol: sympy.Symbol
    suffix: str = ""  # of the layer group that its symbol belongs to


@dataclass(frozen=True)
class Letter:
    """A row of the table of symbols; `path` has `{group}` for a layer group, `part` is the part of a layer it sizes."""

    name: str
    letter: str
    meaning: str
    path: str
    part: str = ""


def _letter(part: str, name: str, letter: str, meaning: str, field: str = "") -> Letter:
    """A size of a part of a layer; `field`: what specs call it, if not by its name."""
    return Letter(name, letter, meaning, f"model.layers.{{group}}.{part}.{field or name}", part)


LETTERS = (
    Letter("batch", "B", "sequences in a micro-batch on one device", "run.micro_batch"),
    Letter("seq", "S", "tokens in a sequence", "run.seq_len"),
    Letter("key", "S", "tokens in a sequence", "run.seq_len"),
    Letter("source_seq", "Ss", "tokens of the source that an encoder reads before a sequence", "run.source_len"),
    Letter("d_model", "D", "width of the residual stream", "model.d_model"),
    _letter("attention", "heads", "H", "query heads of a layer"),
    _letter("attention", "kv_heads", "K", "key and value heads of a layer"),
    _letter("attention", "head_dim", "E", "width of one head"),
    _letter("attention", "v_head_dim", "Ev", "width of the values of one head"),
    _letter("attention", "nope_head_dim", "En", "part of a head without positions"),
    _letter("attention", "rope_head_dim", "Er", "rotated part of a head"),
    _letter("attention", "q_rank", "Cq", "width of the latent of the queries"),
    _letter("attention", "kv_rank", "C", "width of the latent of keys and values"),
    _letter("attention", "rotary_dim", "R", "width of the rotated part of one head", "rotary"),
    _letter("attention", "state_size", "Ns", "width of the state of one head", "state.size"),
    _letter(
        "attention", "state_groups", "Gs", "groups of heads that share B and C, or keys and queries", "state.groups"
    ),
    _letter("attention", "scan_chunk", "Us", "tokens of a chunk of a scan", "state.chunk"),
    _letter("attention", "convolution", "Kc", "tokens that the convolution before a scan sees", "state.convolution"),
    _letter("attention", "relative_buckets", "Rb", "rows of the table of biases by distance"),
    _letter("mlp", "d_ff", "F", "width of the feed-forward layer"),
    _letter("mlp", "shared_d_ff", "Fs", "width of the shared experts of a layer", "shared.d_ff"),
    _letter("mlp", "experts", "X", "experts of a layer"),
    _letter("mlp", "routes", "X", "experts of a layer", "experts"),
    _letter("mlp", "top_k", "T", "experts that one token uses"),
    _letter("mlp", "capacity_factor", "cf", "room of an expert over its even share"),
    Letter("vocab", "V", "rows of the vocabulary", "model.vocab"),
    Letter("positions", "P", "rows of the learned position table", "model.embedding.learned_positions"),
    Letter("token_types", "Pt", "rows of the table of token types", "model.embedding.types"),
    Letter("image_height", "Yi", "pixels of an image from top to bottom", "model.image.height"),
    Letter("image_width", "Xi", "pixels of an image from left to right", "model.image.width"),
    Letter("image_channels", "Ci", "numbers of a pixel", "model.image.channels"),
    Letter("patch", "Pi", "pixels along an edge of a patch", "model.image.patch"),
    Letter("bands", "Bm", "bands of a spectrogram", "model.sound.bands"),
    Letter("frames", "Sm", "frames of a spectrogram", "model.sound.frames"),
    Letter("classes", "Nc", "classes that a head tells apart", "model.head.classes"),
    Letter("parameters", "N", "parameters of the model", "model.parameters"),
    _letter("attention", "window", "W", "tokens a query may look back"),
    _letter("attention", "chunk", "U", "tokens of a chunk that attention does not leave"),
    Letter("attended", "Z", "tokens that a query of a serving pass attends to, on average", "serve.prompt"),
    Letter("read", "Zr", "tokens of a sequence that a serving pass reads from the cache", "serve.prompt"),
    Letter(
        "hit", "Xh", "experts of a layer that the tokens of a serving pass reach", "model.layers.{group}.mlp.experts"
    ),
    Letter("document", "Sd", "keys that a query of a packed document sees, doubled, less one", "run.documents"),
    Letter("layers", "L", "layers on one device", "model.layers.{group}.repeat"),
    Letter("predictions", "Y", "further tokens that the model predicts", "model.multi_token.depth"),
    Letter("rank", "r", "rank of low-rank adapters", "train.lora.rank"),
    Letter("redone", "Lr", "layers on one device that are recomputed", "recompute.layers"),
    Letter("segment", "Ls", "layers that are rebuilt together", "recompute.segment"),
    Letter(
        "hosted", "Lh", "layers on one device whose activations wait in host memory", "parallelism.offload.activations"
    ),
    Letter("loss_chunks", "Cl", "parts that the loss takes one by one", "kernels.loss_chunks"),
    Letter("loss_rows", "Ct", "tokens of a micro-batch on one device in a part of the loss", "kernels.loss_chunks"),
    *(Letter(name, axis.letter, axis.meaning, f"parallelism.{name}") for name, axis in AXES.items()),
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
# Of the layers of one group.
COUNTED = {"layers", "redone", "segment", "hosted", "in_flight", "attended", "read", "hit", "document"}
PER_GROUP = frozenset(row.name for row in LETTERS if row.part) | COUNTED
# Printing order of the factors of a product: the order of the table. A suffix sorts with its letter.
RANK = {row.letter: rank for rank, row in enumerate(LETTERS)}


@cache
def symbol(name: str, suffix: str = "") -> sympy.Symbol:
    """The symbol of a row of the table; `suffix` tells the layer groups of one model apart (`F_dense`)."""
    letter = BY_NAME[name].letter
    return sympy.Symbol(f"{letter}_{suffix}" if suffix and name in PER_GROUP else letter, positive=True, integer=True)


def component_dim(name: str, suffix: str = "") -> Dim:
    """The named dimension of a component's own, whose symbol goes by its name."""
    return Dim(name, sympy.Symbol(f"{name}_{suffix}" if suffix else name, positive=True, integer=True), suffix)


def dim(name: str, suffix: str = "") -> Dim:
    """The named dimension of a row of the table."""
    return Dim(name, symbol(name, suffix), suffix)


def listed(names: str) -> tuple[str, ...]:
    """The names of dims in a text, as einsums have them: `batch seq d_model`."""
    return tuple(names.split())
