"""Published serving results predicted: a row becomes a plan that serves, and its figures stand beside the measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ledger.books.serving.batch import at_data_sheet, saturated, static_batch
from ledger.books.serving.memory import room
from ledger.books.serving.passes import served_roles
from ledger.books.serving.steady import Service
from ledger.evidence.tables import TableRow
from ledger.lab.score.facts import Facts, UnreadableError
from ledger.lab.score.row_layout import DEVICES_PER_NODE, row_model
from ledger.lab.score.row_plans import NEAREST_DEVICE, SET_BEFORE, RowPlan
from ledger.lab.score.rows import ScoreRow
from ledger.lab.score.served import (
    COUNTED_GRADES,
    TIME_PER_TOKEN,
    TOKENS_PER_SECOND,
    TTFT,
    ServedScore,
    ServingFacts,
    measured_figures,
    serving_facts,
)
from ledger.lab.score.spelled import SkippedError, Software, UnknownWordError, meaning, software_of
from ledger.spec.library import Library
from ledger.spec.load import load_accelerator, load_plan
from ledger.spec.near import nearest
from ledger.spec.overrides import assignments
from ledger.spec.problems import SpecError
from ledger.spec.stages import as_even

STATIC = "static"


@dataclass(frozen=True)
class ServedPlans:
    """The library and the overrides that every row of a table is read with."""

    library: Library
    overrides: tuple[str, ...] = ()

    def service(self, made: RowPlan) -> Service:
        """The service of a row's plan; raises SpecError."""
        plan = load_plan(made.text, (*made.settings, *self.overrides), library=self.library)
        return Service(plan, served_roles(plan))


def predict_served(rows: Iterable[TableRow], library: Library, overrides: tuple[str, ...] = ()) -> Iterator[ScoreRow]:
    """Every row in its order; `overrides` change every plan alike."""
    plans = ServedPlans(library, overrides)
    for row in rows:
        yield _predict_row(row, plans)


def _predict_row(row: TableRow, plans: ServedPlans) -> ScoreRow:
    group = row.text("source_id") or row.text("source")
    blank = ScoreRow(row.text("id"), row.text("source") or group, group)
    try:
        typed = serving_facts(row)
        made = serving_plan(typed, plans.library)
        service = plans.service(made)
        served = _score(typed, service)
    except (SkippedError, UnreadableError) as error:
        return replace(blank, skipped=str(error))
    except SpecError as error:
        return replace(blank, skipped="; ".join(problem.message for problem in error.problems))
    return replace(
        blank,
        served=served,
        assumed=made.assumed,
        uncounted="" if served.counts else f"graded {typed.grade} (`score`)",
        stack=made.software.stack.name,
        device=service.plan.accelerator.name,
    )


def _score(row: ServingFacts, service: Service) -> ServedScore:
    """The figures of a row; raises SkippedError where nothing was measured, or no sequence finds memory."""
    measured = measured_figures(row)
    if not measured:
        raise SkippedError("nothing of it was measured that is scored")
    chosen = room(service) if needs_room(row) else 0
    if needs_room(row) and not chosen:
        raise SkippedError("no sequence finds memory beside the weights")
    sequences = row.concurrency or float(chosen)
    predicted = figures(row, service, sequences)
    floor = figures(row, at_data_sheet(service), sequences)
    counts = row.grade is None or row.grade in COUNTED_GRADES
    return ServedScore(predicted, measured, floor, counts, sequences)


def needs_room(row: ServingFacts) -> bool:
    """Whether the engine took as many sequences as it could."""
    return row.concurrency is None and (row.batching in HEAPS or row.request_rate == float("inf"))


def figures(row: ServingFacts, service: Service, sequences: float) -> Mapping[str, float]:
    """The figures of a row: of a batch that begins as one, or of a service with so many sequences in flight."""
    if row.batching == STATIC or sequences == 1:
        batch = static_batch(service, max(1, round(sequences)))
        return {
            TTFT: batch.first_token,
            TIME_PER_TOKEN: batch.time_per_token,
            TOKENS_PER_SECOND: batch.tokens_per_second,
        }
    if needs_room(row):
        full = saturated(service, sequences)
        return {TIME_PER_TOKEN: full.time_per_token, TOKENS_PER_SECOND: full.tokens_per_second}
    steady = service.at(sequences) if sequences else service.stated
    answer = float(service.serve.output.mean - 1) * steady.time_per_token
    first = max(service.ttft, steady.residence - answer)
    return {TTFT: first, TIME_PER_TOKEN: steady.time_per_token, TOKENS_PER_SECOND: steady.tokens_per_second}


def served_plan(row: TableRow, library: Library) -> RowPlan:
    """The plan of a row; raises SkippedError and UnreadableError."""
    return serving_plan(serving_facts(row), library)


# --- serving plans ---

WIDE = ("bf16", "fp16", "fp32")  # formats that products multiply without scales
BASES: Mapping[str, str] = {"bf16": "bf16-pure", "fp16": "fp16-pure", "fp32": "fp32"}
SIZES = ("layers", "hidden", "ffn_hidden", "heads", "vocab")
HEAPS = ("offline",)  # ways of batching in which the engine takes as many sequences as it can


@dataclass(frozen=True)
class ServingRow:
    """The parts of one row's plan; each adds to `assumed` what the row leaves open."""

    row: ServingFacts
    software: Software
    library: Library
    assumed: list[str]

    def accelerator(self) -> str:
        """The device in the library that the row's name, or an alias, stands for."""
        name = self.row.paths.get("accelerator") or self.row.hardware
        spelt = self.library.matching_names("accelerator", name)
        stand_in = NEAREST_DEVICE.get(name) if len(spelt) != 1 else None
        if stand_in:
            self.assumed.append(f"hardware `{name}` is taken for {stand_in}")
            return stand_in
        if len(spelt) == 1:
            return spelt[0]
        near = nearest(name, list(self.library.names("accelerator")))
        raise SkippedError(f"no accelerator is named `{name}`; {near}")

    def layout(self) -> dict[str, Any]:
        """Degrees: what a row leaves out is 1, and data is the rest, unless experts have devices of their own."""
        row = self.row
        tensor, pipeline = row.tp or 1, row.pp or 1
        data, remainder = divmod(row.n_gpus or 1, tensor * pipeline)
        if remainder:
            raise SkippedError(f"{row.n_gpus} devices are no multiple of tp x pp = {tensor * pipeline}")
        if row.dp not in (None, data):
            raise SkippedError(f"dp x tp x pp = {row.dp * tensor * pipeline}, but n_gpus = {row.n_gpus}")
        layout: dict[str, Any] = {"data": data, "tensor": tensor, "pipeline": pipeline}
        if row.layers and row.layers % pipeline:
            layout["stages"] = as_even(row.layers, pipeline)
            self.assumed.append(f"{row.layers} layers over {pipeline} stages: {', '.join(map(str, layout['stages']))}")
        return {**layout, "expert": row.ep} if row.ep and 1 < row.ep <= data else layout

    def model(self, tensor: int) -> Any:
        """The model of the row's columns, or of its name where they do not say what its layers are."""
        row = self.row
        named = row.model_name.lower().replace(" ", "-").replace("_", "-")  # as files of the library are called
        if named in self.library.names("model") and not all(getattr(row, name) for name in SIZES):
            return named
        missing = [name for name in SIZES if not getattr(row, name)]
        if missing:
            raise SkippedError(f"not published: {', '.join(missing)}, and no model is named `{row.model_name}`")
        return row_model(as_facts(row), self.software, self.library, tensor, self.assumed)

    def precision(self) -> dict[str, Any]:
        """Formats of weights, of products and of the cache; embedding, norms and head stay wide."""
        row = self.row
        weights = self._format("dtype_weights", row.dtype_weights or "bf16")
        compute = self._format("dtype_compute", row.dtype_compute or (row.dtype_weights if weights in WIDE else "fp16"))
        wide = compute if compute in WIDE else "fp16"
        cache = self._format("dtype_cache", row.dtype_cache) if row.dtype_cache else wide
        if row.dtype_weights.startswith("q"):
            self.assumed.append(f"weights in `{row.dtype_weights}` are taken for {weights}")
        parts = dict.fromkeys(("norms", "embedding", "head"), wide)
        matrices = weights if weights in WIDE else {"base": weights, **parts}
        return {"base": BASES[wide], "weights": matrices, "compute": compute, "activations": wide, "cache": cache}

    def serve(self) -> dict[str, Any]:
        """Lengths, and sequences in flight or requests that arrive."""
        row = self.row
        prompt, output = row.prompt_len, row.output_len
        if not prompt or not output:
            raise SkippedError("not published: prompt_len, output_len")
        served: dict[str, Any] = {"prompt": f"{round(prompt)} tokens", "output": f"{round(output)} tokens"}
        tokens = self.software.stack.engine.tokens
        served["chunk"] = f"{min(tokens or round(prompt), round(prompt))} tokens"
        if row.concurrency:
            return {**served, "concurrency": round(row.concurrency)}
        if row.request_rate and row.request_rate < float("inf"):
            return {**served, "arrival_rate": f"{row.request_rate} requests/s"}
        if row.batching in HEAPS or row.request_rate:
            return {**served, "concurrency": 1}  # until the engine's own largest one is known
        self.assumed.append("concurrency not stated: 1")
        return {**served, "concurrency": 1}

    def _format(self, column: str, text: str) -> str:
        try:
            return str(meaning("dtype_served", text, self.library).value)
        except UnknownWordError as error:
            raise SkippedError(str(error).replace("dtype_served", column)) from error


def serving_plan(row: ServingFacts, library: Library) -> RowPlan:
    """The plan of a row; raises SkippedError where its columns contradict each other or leave out what a plan needs."""
    software = served_software(row, library)
    assumed: list[str] = []
    parts = ServingRow(row, software, library, assumed)
    layout = parts.layout()
    plan: dict[str, Any] = {
        "spec": "ledger/1",
        "plan": f"{row.id} ({row.model_name or 'model'}, {row.source_id or row.source})",
        "accelerator": parts.accelerator(),
        "cluster": {"devices": row.n_gpus, "devices_per_node": min(DEVICES_PER_NODE, row.n_gpus or 1)},
        "model": row.paths.get("model") or parts.model(layout["tensor"]),
        "precision": row.paths.get("precision") or parts.precision(),
        "parallelism": layout,
        "stack": software.stack.name,
        "serve": parts.serve(),
    }
    architecture = load_accelerator(plan["accelerator"], library=library).architecture
    if software.stack.kernels.attention == "flash3" and architecture != "hopper":
        plan["kernels"] = {"attention": "flash"}  # what engines take where the third version does not run
    later_paths = {path: text for path, text in row.paths.items() if path not in SET_BEFORE}
    stated = {**software.stack.defaults.plan, **software.plan}
    return RowPlan(plan, (*assignments(stated), *assignments(later_paths)), tuple(assumed), software)


def served_software(row: ServingFacts, library: Library) -> Software:
    """The software of a row: what it names, else what its publication says, else the stack of its engine."""
    try:
        return software_of(as_facts(row, stack=row.stack), library)
    except SkippedError:
        if row.stack:
            raise
    return software_of(as_facts(row, stack=engine_stack(row, library)), library)


def engine_stack(row: ServingFacts, library: Library) -> str:
    """The stack of an engine at a version: that of the longest beginning of it which is spelt."""
    version = row.engine_version
    while True:
        try:
            return str(meaning("engine", f"{row.engine} {version}".strip(), library).value)
        except UnknownWordError as error:
            if not version:
                raise SkippedError(str(error)) from error
        version = version.rpartition(".")[0]


def as_facts(row: ServingFacts, stack: str = "") -> Facts:
    """The row's columns as those of a training run: what builds models and finds software reads these."""
    columns: dict[str, Any] = {column.name: getattr(row, column.name, None) for column in fields(Facts)}
    columns |= {column.name: columns[column.name] or "" for column in fields(Facts) if str(column.type) == "str"}
    if row.n_experts and row.n_experts > 1:
        columns["moe_ffn_hidden"] = row.ffn_hidden
    columns["seq_len"] = round((row.prompt_len or 0) + (row.output_len or 0)) or None
    columns |= {"stack": stack, "paths": row.paths, "cells": row.cells}
    return Facts(**columns)
