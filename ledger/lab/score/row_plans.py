"""A row of published facts -> the plan that ran, as a spec, and what was assumed beyond the row.

A row is a plan: its columns first, then what its publication states, then what its stack does where nothing is said.
Columns that are paths of a plan are set last, as `--set` sets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from ledger.lab.score.facts import FACT_COLUMNS, Facts
from ledger.lab.score.row_layout import DEVICES_PER_NODE, row_layout, row_model
from ledger.lab.score.spelled import SkippedError, Software, row_meaning, software_of
from ledger.spec.documents import WRITES_SCORES
from ledger.spec.library import Library
from ledger.spec.load import load_plan, plan_source
from ledger.spec.near import nearest
from ledger.spec.overrides import assignments
from ledger.spec.reader import read


@dataclass(frozen=True)
class RunKind:
    """A kind of run: what is `assumed` of it, and whether it trains adapters.

    `formats`: what a word for the dtype that it computes in means where the kind itself says how weights are stored.
    """

    assumed: str = ""
    adapters: bool = False
    formats: Mapping[str, str] = field(default_factory=dict)


# Kinds of runs that are compiled. QLoRA stores weights in nf4 (Dettmers et al. 2023, arXiv 2305.14314, section 3).
COMPILED_KINDS: Mapping[str, RunKind] = {
    "pretrain": RunKind(),
    "sft": RunKind("fine-tuning of all weights on sequences of full length runs like pre-training"),
    "lora": RunKind(adapters=True),
    "qlora": RunKind(adapters=True, formats={"bf16": "bf16-nf4", "fp16": "fp16-nf4"}),
}
ADAPTERS: Mapping[str, Any] = {"rank": 16, "targets": ["q", "k", "v", "out"]}
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
OPTIMIZER = "optimizer"
FAR = 1.25  # between a step and what the rate of tokens says of it: no rounding, and no other definition of either
SET_BEFORE = ("model", "accelerator", "precision")  # paths that a plan is built with, so that others may go below them


@dataclass(frozen=True)
class RowPlan:
    """The plan of a row as a document and `settings` on top of it, what was assumed, and the software it ran."""

    plan: Mapping[str, Any]
    settings: tuple[str, ...]
    assumed: tuple[str, ...]
    software: Software
    unpriced: str = ""  # why no step time can be predicted

    @property
    def text(self) -> str:
        """The plan as a spec that can be saved and explained, but for its settings."""
        return document_text(self.plan)


def document_text(document: object) -> str:
    """A plan's document as YAML."""
    plain = dict(document) if isinstance(document, Mapping) else document
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120)


def row_plan(row: Facts, library: Library) -> RowPlan:
    """The plan of a row; raises SkippedError with the reason where the row has none."""
    if row.kind not in COMPILED_KINDS:
        kinds = ", ".join(COMPILED_KINDS)
        raise SkippedError(f"kind `{row.kind}` is not compiled; {kinds} are" if row.kind else "no `kind`")
    if row.plan:
        return _plan_from_base(row, library)
    software = software_of(row, library)
    kind = COMPILED_KINDS[row.kind]
    assumed = [kind.assumed] if kind.assumed else []
    _refuse_incomplete(row)
    _refuse_contradictions(row)
    parts = RowParts(row, software, library, assumed)
    layout = row_layout(row, software, library, assumed)
    optimizer, optimizer_settings = parts.optimizer()
    model = row.paths.get("model") or row_model(row, software, library, layout["tensor"], assumed)
    plan = {
        "spec": "ledger/1",
        "plan": f"{row.id} ({row.model_name or 'model'}, {row.source_id or row.source})",
        "accelerator": parts.accelerator(),
        "cluster": parts.cluster(),
        "model": model,
        "precision": parts.precision(),
        "optimizer": optimizer,
        "parallelism": layout,
        "recompute": parts.recompute(),
        "stack": software.stack.name,
        "run": parts.run(layout["data"]),
        **parts.training(),
    }
    later_paths = {path: text for path, text in row.paths.items() if path not in SET_BEFORE}
    stated = {**optimizer_settings, **parts.attention(), **_software_settings(software)}
    settings = (*assignments(stated), *assignments(later_paths))
    return RowPlan(plan, settings, tuple(assumed), software, UNPRICED_DEVICES.get(row.hardware, ""))


def _software_settings(software: Software) -> dict[str, Any]:
    """What a publication states of the software itself: `stack.launch.blocking`, `precision.reduction`.

    A device's workspace for products is software's too: an environment variable sets it.
    """
    parts = ("stack.", "kernels.", "precision.", "accelerator.matmul_workspace")
    return {path: value for path, value in software.plan.items() if path.startswith(parts)}


# Columns as paths of a plan, where a row starts from a plan.
ON_PLAN: Mapping[str, str] = {
    "hardware": "accelerator",
    "n_gpus": "cluster.devices",
    "tp": "parallelism.tensor",
    "pp": "parallelism.pipeline",
    "cp": "parallelism.context",
    "ep": "parallelism.expert",
    "dp": "parallelism.data",
    "interleave": "parallelism.interleave",
    "seq_len": "run.seq_len",
    "micro_batch": "run.micro_batch",
    "global_batch": "run.global_batch",
    "stack": "stack",
}


# Columns that say what a run is called, or what came of it.
BESIDE_PLAN = ("id", "source", "source_id", "kind", "model_name", "notes", "plan", "n_params", "mem_convention")
RESULTS = ("measured_", "derived_", "score_")


def _plan_from_base(row: Facts, library: Library) -> RowPlan:
    """The plan that a row starts from, with what the row says on top of it; what has no path here is read over."""
    source = plan_source(row.plan, None, library)
    stated = {path: row.cells[column] for column, path in ON_PLAN.items() if row.cells.get(column)}
    settings = {**stated, **row.paths}
    plan = load_plan(row.plan, assignments(settings), library=library)
    software = software_of(row, library, plan.stack)
    over = [column for column in row.cells if column in FACT_COLUMNS and column not in (*ON_PLAN, *BESIDE_PLAN)]
    assumed = tuple(
        f"`{column}` is read over beside `plan`: state it as a path"
        for column in over
        if not column.startswith(RESULTS)
    )
    document = {name: inner.plain() for name, inner in read(source.text, source.file).fields.items()}
    return RowPlan(document, assignments(settings), assumed, software)


def _refuse_incomplete(row: Facts) -> None:
    """Raises SkippedError with all that a plan needs and the row does not say."""
    sizes = () if "model" in row.paths else ("layers", "hidden", "heads", "vocab")
    missing = [name for name in ("n_gpus", *sizes, "seq_len", "hardware") if not getattr(row, name)]
    if row.micro_batch is None and row.global_batch is None:
        missing.append("micro_batch")
    if sizes and row.n_experts and row.n_experts > 1:
        missing.extend(name for name in ("top_k", "moe_ffn_hidden") if not getattr(row, name))
    elif sizes and not row.ffn_hidden:
        missing.append("ffn_hidden")
    if missing:
        raise SkippedError(f"not published: {', '.join(missing)}")


def _refuse_contradictions(row: Facts) -> None:
    """Raises SkippedError for a step and a rate that say the same and differ."""
    if row.measured_step_s and row.measured_tokens_per_s_per_gpu and row.global_batch and row.seq_len and row.n_gpus:
        step = row.global_batch * row.seq_len / (row.measured_tokens_per_s_per_gpu * row.n_gpus)
        if not 1 / FAR < step / row.measured_step_s < FAR:
            contradiction = (
                f"`measured_step_s` = {row.measured_step_s:g}, and by `measured_tokens_per_s_per_gpu` it is {step:.4g}"
            )
            raise SkippedError(f"contradicts itself: {contradiction}")


@dataclass(frozen=True)
class RowParts:
    """The parts of one row's plan; each adds to `assumed` what the row leaves open."""

    row: Facts
    software: Software
    library: Library
    assumed: list[str]

    def accelerator(self) -> str:
        """The device in the library that the row's name, or an alias, stands for."""
        name = self.row.paths.get("accelerator") or self.row.hardware
        spelt = self.library.matching_names("accelerator", name)
        stand_in = self.software.devices.get(name) or (NEAREST_DEVICE.get(name) if len(spelt) != 1 else None)
        if stand_in:
            self.assumed.append(f"hardware `{name}` is taken for {stand_in}")
            return stand_in
        if len(spelt) == 1:
            return spelt[0]
        if spelt:
            raise SkippedError(f"hardware `{name}` may be {' or '.join(spelt)}")
        near = nearest(name, list(self.library.names("accelerator")))
        raise SkippedError(f"no accelerator is named `{name}`; {near}")

    def cluster(self) -> dict[str, Any]:
        """The devices and, where the publication states it, the network between their nodes."""
        cluster: dict[str, Any] = {"devices": self.row.n_gpus, "devices_per_node": DEVICES_PER_NODE}
        for path, value in self.software.plan.items():
            part, _, inner = path.partition(".")
            if part == "cluster":
                _put(cluster, inner.split("."), value)
        return cluster

    def precision(self) -> Any:
        """The number formats that the software means by the row's dtype."""
        if stated := self.row.paths.get("precision"):
            return stated
        formats = self.software.stack.defaults.formats
        if not self.row.dtype:
            self.assumed.append("dtype not stated: bf16")
        word = row_meaning("dtype", self.row.dtype or "bf16", self.library).value
        if isinstance(word, Mapping):
            return word["precision"]
        word = COMPILED_KINDS[self.row.kind].formats.get(word, word)
        if word not in formats:
            alternatives = f"{', '.join(formats)} are" if formats else "state it in a column `precision`"
            raise SkippedError(
                f"dtype `{self.row.dtype}` of `{self.software.stack.name}` is not compiled; {alternatives}"
            )
        return formats[word]

    def recompute(self) -> Any:
        """The recomputation that the row states, in the words of the software."""
        policies = {name.lower(): policy for name, policy in self.software.stack.defaults.recompute.items()}
        word = self.row.recompute.lower()
        if not word:
            self.assumed.append("recompute not stated: none")
            return "none"
        return policies[word] if word in policies else row_meaning("recompute", word, self.library).value

    def attention(self) -> dict[str, str]:
        """The kernel of attention's core, where the row says of FlashAttention what is not so of the stack's own."""
        flash, defaults = self.row.flash_attention, self.software.stack.defaults
        if flash is None or flash is (self.software.stack.kernels.attention not in WRITES_SCORES):
            return {}
        return {"kernels.attention": "flash" if flash else defaults.unfused or "math"}

    def optimizer(self) -> tuple[str, dict[str, Any]]:
        """The optimizer, and what its words say of other parts of the plan."""
        usual = self.software.stack.defaults.plan.get(OPTIMIZER, "adamw")
        if OPTIMIZER in self.software.plan or not self.row.optimizer:
            return self.software.plan.get(OPTIMIZER, usual), {}
        if self.row.optimizer in self.library.names(OPTIMIZER):
            return self.row.optimizer, {}
        stated = row_meaning(OPTIMIZER, self.row.optimizer, self.library)
        self.assumed.extend(f"optimizer: `{word}` is read over" for word in stated.unread)
        said = {**stated.value, **stated.added}
        chosen = said.pop(OPTIMIZER)
        return chosen, said

    def training(self) -> dict[str, Any]:
        """Which weights are trained: adapters, where the kind of run has them."""
        if not COMPILED_KINDS[self.row.kind].adapters:
            return {}
        stated = any(path.startswith("train") for path in self.row.paths) or self._stated_adapters()
        if not stated:
            self.assumed.append(f"adapters not stated: rank {ADAPTERS['rank']} on {', '.join(ADAPTERS['targets'])}")
        return {"train": {"lora": self._stated_adapters() or dict(ADAPTERS)}}

    def _stated_adapters(self) -> dict[str, Any]:
        """Adapters that the publication states, over those that its stack has where nothing is said."""
        prefix = "train.lora."
        stated = {**self.software.stack.defaults.plan, **self.software.plan}
        return {path.removeprefix(prefix): value for path, value in stated.items() if path.startswith(prefix)}

    def run(self, data: int) -> dict[str, int]:
        """Batches in sequences; what is left out of them follows from the rest.

        Raises SkippedError where a batch is not that of its parts.
        """
        row = self.row
        product = (row.grad_accum or 0) * (row.micro_batch or 0) * data
        if product and row.global_batch and product != row.global_batch:
            contradiction = f"`global_batch` = {row.global_batch}, and grad_accum x micro_batch x replicas = {product}"
            raise SkippedError(f"contradicts itself: {contradiction}")
        if row.micro_batch is None:
            self.assumed.append("micro_batch not stated: 1")
        micro = row.micro_batch or 1
        batch = row.global_batch or data * micro * (row.grad_accum or 1)
        return {"seq_len": row.seq_len or 1, "micro_batch": micro, "global_batch": batch}


def _put(document: dict[str, Any], steps: list[str], value: Any) -> None:
    """A value at a path of nested mappings, which are made where there are none."""
    *outer, last = steps
    for step in outer:
        document = document.setdefault(step, {})
    document[last] = value
