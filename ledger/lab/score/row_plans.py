"""A row of published facts -> the plan that ran, as a spec, and what was assumed beyond the row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from ledger.lab.score.architectures import ARCHITECTURES
from ledger.lab.score.facts import Facts
from ledger.lab.score.sources import ALLOCATED, DRIVER, RESERVED, Software, software
from ledger.spec.library import Library
from ledger.spec.near import nearest

UNKNOWN = Software(stack="pytorch-fsdp2-2025", compiled="pytorch-fsdp2-compile-2025", why="no publication is named")
CONVENTIONS = {"alloc": ALLOCATED, "driver": DRIVER, "smi": DRIVER}  # words of a column -> what was measured
KINDS = {"pretrain": "", "sft": "fine-tuning of all weights on sequences of full length runs like pre-training"}
# A column of layouts: the stage of ZeRO that each word stands for.
SHARDED = {"none": 0, "ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp2": 3, "hsdp": 3}
# Names that say too little or too much, as the part that most clusters have, or that is closest.
ALIKE = {
    "A100": "a100-sxm-80gb",
    "H100": "h100-sxm",
    "B200-powerlimited": "b200",
    "B200-class (184 GiB; part not named)": "b200",
}
# Devices of which too little is known for a price.
UNPRICED = {"B200-powerlimited": "the power limit of these devices is not published, so their step is not predicted"}
FORMATS = {"bf16": "bf16-autocast", "fp16": "fp16-mixed", "fp32": "fp32"}
PER_NODE = 8  # devices of a node where the data sheet says nothing else


class SkippedError(Exception):
    """A row that no plan can be made of, with the reason."""


@dataclass(frozen=True)
class RowPlan:
    """The plan of a row as a document, with what was assumed beyond the row, and the software it ran."""

    plan: Mapping[str, Any]
    assumed: tuple[str, ...]
    software: Software
    unpriced: str = ""  # why no step time can be predicted

    @property
    def text(self) -> str:
        """The plan as a spec that can be saved and explained."""
        return document_text(self.plan)


def document_text(document: object) -> str:
    """A plan's document as YAML."""
    plain = dict(document) if isinstance(document, Mapping) else document
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)


def row_plan(row: Facts, library: Library) -> RowPlan:
    """The plan of a row; raises SkippedError with the reason where the row has none."""
    if row.kind not in KINDS:
        raise SkippedError(f"kind `{row.kind}` is not compiled; `pretrain` and `sft` are" if row.kind else "no `kind`")
    found = software(row)
    made = found or _own(row, library)
    assumed = [KINDS[row.kind]] if KINDS[row.kind] else []
    if row.stack:
        made = replace(made, stack=row.stack, compiled=row.stack)
    elif found is None:
        assumed.append(
            f"software of `{row.source_id or row.source}` is not known: {UNKNOWN.stack}, or name it in `stack`"
        )
    _complete(row)
    parts = RowParts(row, made, library, assumed)
    layout = parts.parallelism()
    plan = {
        "spec": "ledger/1",
        "plan": f"{row.id} ({row.model_name or 'model'}, {row.source_id or row.source})",
        "accelerator": parts.accelerator(),
        "cluster": parts.cluster(),
        "model": parts.model(layout["tensor"]),
        "precision": parts.precision(),
        "optimizer": made.optimizer,
        "parallelism": layout,
        "recompute": parts.recompute(),
        "stack": parts.stack(),
        "run": parts.run(layout["data"]),
    }
    return RowPlan(plan, tuple(assumed), made, UNPRICED.get(row.hardware, ""))


def _own(row: Facts, library: Library) -> Software:
    """The software of a run that no known publication describes: what the row's words say of it."""
    convention = next((said for word, said in CONVENTIONS.items() if word in row.mem_convention.lower()), RESERVED)
    optimizer = row.optimizer if row.optimizer in library.names("optimizer") else UNKNOWN.optimizer
    return replace(UNKNOWN, memory=convention, optimizer=optimizer)


def _complete(row: Facts) -> None:
    needed = ("n_gpus", "layers", "hidden", "heads", "vocab", "seq_len", "hardware")
    missing = [name for name in needed if not getattr(row, name)]
    if row.micro_batch is None and row.global_batch is None:
        missing.append("micro_batch")
    if row.n_experts and row.n_experts > 1:
        missing.extend(name for name in ("top_k", "moe_ffn_hidden") if not getattr(row, name))
    elif not row.ffn_hidden:
        missing.append("ffn_hidden")
    if missing:
        raise SkippedError(f"not published: {', '.join(missing)}")


@dataclass(frozen=True)
class RowParts:
    """The parts of one row's plan; each adds to `assumed` what the row leaves open."""

    row: Facts
    software: Software
    library: Library
    assumed: list[str]

    def accelerator(self) -> str:
        """The device in the library that the row's name, or an alias, stands for."""
        given = self.row.hardware
        if given in self.software.devices:
            self.assumed.append(f"hardware `{given}` is taken for {self.software.devices[given]}")
            return self.software.devices[given]
        names = self.library.spelt("accelerator", given)
        if len(names) == 1:
            return names[0]
        if given in ALIKE:
            self.assumed.append(f"hardware `{given}` is taken for {ALIKE[given]}")
            return ALIKE[given]
        if names:
            raise SkippedError(f"hardware `{given}` may be {' or '.join(names)}")
        near = nearest(given, list(self.library.names("accelerator")))
        raise SkippedError(f"no accelerator is named `{given}`; {near}")

    def cluster(self) -> dict[str, Any]:
        """The devices and, where the publication states it, the network between their nodes."""
        found: dict[str, Any] = {"devices": self.row.n_gpus, "devices_per_node": PER_NODE}
        rate = next((rate for word, rate in self.software.networks.items() if word in self.row.hardware), None)
        return {**found, "scaleout": {"bandwidth": rate, "source": self.software.why}} if rate else found

    def parallelism(self) -> dict[str, Any]:
        """The mesh; what a row leaves out is 1, and data is the rest."""
        row = self.row
        tensor, pipeline, context = row.tp or 1, row.pp or 1, row.cp or 1
        data, rest = divmod(row.n_gpus or 1, tensor * pipeline * context)
        if rest:
            raise SkippedError(f"{row.n_gpus} devices are no multiple of tp x pp x cp = {tensor * pipeline * context}")
        if row.dp not in (None, data):
            raise SkippedError(f"dp x tp x pp x cp = {row.dp * tensor * pipeline * context}, but n_gpus = {row.n_gpus}")
        if row.interleave is None and pipeline > 1:
            self.assumed.append("interleave not stated: 1")
        words = row.data_parallel_kind.split()
        stage = SHARDED.get(words[0] if words else "none")
        if stage is None:
            raise SkippedError(f"data_parallel_kind `{row.data_parallel_kind}` is not known")
        found: dict[str, Any] = {"data": data, "tensor": tensor, "pipeline": pipeline, "context": context}
        found["zero"] = stage if data * context > 1 else 0
        if words[:1] == ["hsdp"] and data > PER_NODE:
            self.assumed.append("hybrid sharding: one copy a node")
            found["replicate"] = data // PER_NODE
        found["interleave"] = row.interleave or 1
        found.update(self._stages(pipeline, pipeline * (row.interleave or 1)))
        found["sequence"] = self._sequence(tensor)
        if context > 1:
            found["context_exchange"] = self.software.exchange
        if row.ep and row.ep > 1:
            found["expert"] = row.ep
        return found

    def _stages(self, pipeline: int, chunks: int) -> dict[str, Any]:
        """How many layers each stage holds, where they are not all alike."""
        layers = self.row.layers or 1
        if self.software.balanced and pipeline > 1:
            return {"stages": list(by_compute(self.row, pipeline))}
        if layers % chunks and not (layers + 2) % chunks:
            self.assumed.append("embedding and head count as a layer each")
            return {"ends": "layer"}
        if layers % chunks:
            each, rest = divmod(layers, chunks)
            self.assumed.append(f"{layers} layers over {chunks} stages: the last {rest} hold one more")
            return {"stages": [each] * (chunks - rest) + [each + 1] * rest}
        return {}

    def _sequence(self, tensor: int) -> str:
        if tensor == 1:
            return "off"
        stated = self.row.sequence_parallel
        if stated is None:
            stated = self.software.sequence_parallel
        if stated is None:
            self.assumed.append("sequence parallelism not stated: on")
        if stated is False:
            return "off"
        # what is quantised is kept as it was gathered
        return self.software.sequence if self.row.dtype in ("", *FORMATS) else "save_gathered"

    def model(self, tensor: int) -> dict[str, Any]:
        """The decoder; a vocabulary that tensor parallelism cannot split is padded as frameworks do."""
        row = self.row
        heads, hidden, vocab = row.heads or 1, row.hidden or 1, row.vocab or 1
        if vocab % tensor:
            vocab = math.ceil(vocab / (128 * tensor)) * 128 * tensor
            self.assumed.append(f"vocabulary padded from {row.vocab} to {vocab}")
        if row.head_dim is None and hidden % heads:
            raise SkippedError(f"hidden = {hidden} is no multiple of heads = {heads}, and no head_dim is published")
        sizes = {"heads": heads, "kv_heads": row.kv_heads or heads, "head_dim": row.head_dim or hidden // heads}
        style = ARCHITECTURES[self.software.architecture if row.gated_mlp is False else "llama"](row)
        group = {
            "group": "decoder",
            "repeat": row.layers,
            "attention": {**sizes, **style.pop("attention"), **self.software.attention},
            "mlp": {**style.pop("mlp"), **self._width()},
        }
        return {
            "model": row.model_name or "published model",
            "source": row.source or row.source_id or row.id,
            "d_model": hidden,
            "vocab": vocab,
            **style,
            "layers": [group],
        }

    def _width(self) -> dict[str, Any]:
        row = self.row
        if row.n_experts and row.n_experts > 1:
            return {"kind": "experts", "experts": row.n_experts, "top_k": row.top_k, "d_ff": row.moe_ffn_hidden}
        return {"d_ff": row.ffn_hidden}

    def precision(self) -> Any:
        """The number formats that the software means by the row's dtype."""
        given = self.row.dtype or "bf16"
        if not self.row.dtype:
            self.assumed.append("dtype not stated: bf16")
        known = {**FORMATS, **self.software.precisions}
        if given not in known:
            raise SkippedError(f"dtype `{given}` of this software is not compiled; {', '.join(known)} are")
        return known[given]

    def recompute(self) -> Any:
        """What is recomputed, in the words of the software."""
        given = self.row.recompute
        if not given:
            self.assumed.append("recompute not stated: none")
        known = {"": "none", "none": "none", "full": "full", "selective": "selective", **self.software.recompute}
        if given not in known:
            raise SkippedError(f"recompute `{given}` is not compiled")
        return known[given]

    def stack(self) -> Any:
        """The software stack, that of torch.compile where the row says so."""
        if self.row.torch_compile and self.software.compiled:
            return self.software.compiled
        return self.software.stack

    def run(self, data: int) -> dict[str, int]:
        """Batches in sequences; what is left out of them follows from the rest."""
        row = self.row
        micro = row.micro_batch
        if micro is None:
            micro = 1
            self.assumed.append("micro_batch not stated: 1")
        whole = row.global_batch or data * micro * (row.grad_accum or 1)
        return {"seq_len": row.seq_len or 1, "micro_batch": micro, "global_batch": whole}


def by_compute(row: Facts, pipeline: int) -> Iterator[int]:
    """Layers of each stage as nanotron cuts a model: one is full once it has its share of the matmuls, head included.

    nanotron/models/base.py (build_model) and models/llama.py (get_block_compute_costs).
    """
    hidden, layers = row.hidden or 1, row.layers or 1
    layer = 4 * hidden * hidden + 3 * hidden * (row.ffn_hidden or 1)
    whole = layers * layer + hidden * (row.vocab or 1)
    placed = 0
    for stage in range(1, pipeline):
        held = min(layers, -(-stage * whole // (pipeline * layer))) - placed
        placed += held
        yield held
    yield layers - placed
