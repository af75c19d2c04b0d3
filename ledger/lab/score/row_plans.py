"""A row of published facts -> the plan that ran, as a spec, and what was assumed beyond the row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from ledger.lab.score.architectures import ARCHITECTURES
from ledger.lab.score.facts import Facts
from ledger.lab.score.row_layout import DEVICES_PER_NODE, PRECISIONS, SkippedError, row_layout
from ledger.lab.score.sources import ALLOCATED, DRIVER, RESERVED, Software, software_of
from ledger.spec.library import Library
from ledger.spec.near import nearest

UNKNOWN_SOFTWARE = Software(
    stack="pytorch-fsdp2-2025", compiled="pytorch-fsdp2-compile-2025", why="no publication is named"
)
MEMORY_WORDS = {"alloc": ALLOCATED, "driver": DRIVER, "smi": DRIVER}  # words of a column -> what was measured
# Kinds of runs that are compiled, and what is assumed of each.
COMPILED_KINDS = {
    "pretrain": "",
    "sft": "fine-tuning of all weights on sequences of full length runs like pre-training",
}
# Names that say too little or too much, as the part that most clusters have, or that is closest.
NEAREST_DEVICE = {
    "A100": "a100-sxm-80gb",
    "H100": "h100-sxm",
    "B200-powerlimited": "b200",
    "B200-class (184 GiB; part not named)": "b200",
}
# Devices of which too little is known for a price.
UNPRICED_DEVICES = {
    "B200-powerlimited": "the power limit of these devices is not published, so their step is not predicted"
}


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
    if row.kind not in COMPILED_KINDS:
        raise SkippedError(f"kind `{row.kind}` is not compiled; `pretrain` and `sft` are" if row.kind else "no `kind`")
    published = software_of(row)
    software = published or _unpublished_software(row, library)
    assumed = [COMPILED_KINDS[row.kind]] if COMPILED_KINDS[row.kind] else []
    if row.stack:
        software = replace(software, stack=row.stack, compiled=row.stack)
    elif published is None:
        who = row.source_id or row.source
        assumed.append(f"software of `{who}` is not known: {UNKNOWN_SOFTWARE.stack}, or name it in `stack`")
    _refuse_incomplete(row)
    parts = RowParts(row, software, library, assumed)
    layout = row_layout(row, software, assumed)
    plan = {
        "spec": "ledger/1",
        "plan": f"{row.id} ({row.model_name or 'model'}, {row.source_id or row.source})",
        "accelerator": parts.accelerator(),
        "cluster": parts.cluster(),
        "model": parts.model(layout["tensor"]),
        "precision": parts.precision(),
        "optimizer": software.optimizer,
        "parallelism": layout,
        "recompute": parts.recompute(),
        "stack": software.compiled if row.torch_compile and software.compiled else software.stack,
        "run": parts.run(layout["data"]),
    }
    return RowPlan(plan, tuple(assumed), software, UNPRICED_DEVICES.get(row.hardware, ""))


def _unpublished_software(row: Facts, library: Library) -> Software:
    """The software of a run that no known publication describes: what the row's words say of it."""
    convention = next((said for word, said in MEMORY_WORDS.items() if word in row.mem_convention.lower()), RESERVED)
    optimizer = row.optimizer if row.optimizer in library.names("optimizer") else UNKNOWN_SOFTWARE.optimizer
    return replace(UNKNOWN_SOFTWARE, memory=convention, optimizer=optimizer)


def _refuse_incomplete(row: Facts) -> None:
    """Raises SkippedError with all that a plan needs and the row does not say."""
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
        spelt = self.library.spelt("accelerator", given)
        taken = self.software.devices.get(given) or (NEAREST_DEVICE.get(given) if len(spelt) != 1 else None)
        if taken:
            self.assumed.append(f"hardware `{given}` is taken for {taken}")
            return taken
        if len(spelt) == 1:
            return spelt[0]
        if spelt:
            raise SkippedError(f"hardware `{given}` may be {' or '.join(spelt)}")
        near = nearest(given, list(self.library.names("accelerator")))
        raise SkippedError(f"no accelerator is named `{given}`; {near}")

    def cluster(self) -> dict[str, Any]:
        """The devices and, where the publication states it, the network between their nodes."""
        cluster: dict[str, Any] = {"devices": self.row.n_gpus, "devices_per_node": DEVICES_PER_NODE}
        rate = next((rate for word, rate in self.software.networks.items() if word in self.row.hardware), None)
        return {**cluster, "scaleout": {"bandwidth": rate, "source": self.software.why}} if rate else cluster

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
        """Width of the feed-forward part, or of its experts."""
        row = self.row
        if row.n_experts and row.n_experts > 1:
            return {"kind": "experts", "experts": row.n_experts, "top_k": row.top_k, "d_ff": row.moe_ffn_hidden}
        return {"d_ff": row.ffn_hidden}

    def precision(self) -> Any:
        """The number formats that the software means by the row's dtype."""
        dtype = self.row.dtype or "bf16"
        if not self.row.dtype:
            self.assumed.append("dtype not stated: bf16")
        formats = {**PRECISIONS, **self.software.precisions}
        if dtype not in formats:
            raise SkippedError(f"dtype `{dtype}` of this software is not compiled; {', '.join(formats)} are")
        return formats[dtype]

    def recompute(self) -> Any:
        """What is recomputed, in the words of the software."""
        word = self.row.recompute
        if not word:
            self.assumed.append("recompute not stated: none")
        policies = {"": "none", "none": "none", "full": "full", "selective": "selective", **self.software.recompute}
        if word not in policies:
            raise SkippedError(f"recompute `{word}` is not compiled")
        return policies[word]

    def run(self, data: int) -> dict[str, int]:
        """Batches in sequences; what is left out of them follows from the rest."""
        row = self.row
        if row.micro_batch is None:
            self.assumed.append("micro_batch not stated: 1")
        micro = row.micro_batch or 1
        batch = row.global_batch or data * micro * (row.grad_accum or 1)
        return {"seq_len": row.seq_len or 1, "micro_batch": micro, "global_batch": batch}
