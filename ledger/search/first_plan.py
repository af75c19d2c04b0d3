"""A plan for a model of which nothing is known but its shape: common choices, and the fastest layout that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ledger import numbers
from ledger.books.compiled_roles import whole
from ledger.books.compiler import compile_plan
from ledger.books.counts import whole_parameters
from ledger.search.question import kept_free
from ledger.spec.device_parts import DEVICE
from ledger.spec.edit import edit_text
from ledger.spec.imports.text import NODE, ImportedSpec, plan_text
from ledger.spec.library import default_library, read_once
from ledger.spec.load import load_accelerator, load_plan
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.token_budget import EXAMPLE

if TYPE_CHECKING:
    from ledger.books.results import Number
    from ledger.report.recommendations import Recommendations
    from ledger.spec.plan import Plan

    Search = Callable[[Plan], Recommendations | None]
    from ledger.spec.imports.huggingface.config import ConfigModel


# Kernels to try in turn where the stack's own cannot run a model (sinks of attention).
KERNELS: tuple[Mapping[str, str], ...] = ({}, {"attention": "cudnn_grouped"}, {"attention": "eager"})


def first_plan(start: Start, file: str, search: Search) -> ImportedSpec:
    """The text of the plan, each of whose assumptions is a comment; `file` is where the model is from.

    Its layout is the fastest that `search` finds and that leaves the headroom free; where none does, it is the one that
    misses least, and a note says by how much. Raises SpecError where the model or the device makes no plan.
    """
    text = start_text(_with_expert_degree(runnable(start, file)))
    result = search(load_plan(text))
    if result is None or not result.legal:
        notes = (
            (Problem(Location(file), result.note, "`ledger sweep` looks at them"),) if result and result.note else ()
        )
        return ImportedSpec(text.replace(LAYOUT, "assumed: a replica on every device"), notes)
    layout = result.fastest or result.nearest
    origin = f"assumed: {'the fastest' if result.fastest else 'what misses least'} of {result.scope}"
    text = edit_text(text.replace(LAYOUT, origin.replace(numbers.THIN, " ")), layout.changes if layout else {})
    return ImportedSpec(text, () if result.fastest else (_no_layout(result, file),))


def runnable(start: Start, file: str) -> Start:
    """The start with the first kernels that can run the model; raises SpecError, of the file, where there are none."""
    start_text(start)  # an unknown device is no matter of kernels
    refused: tuple[Problem, ...] = ()
    for kernels in KERNELS:
        try:
            load_plan(start_text(replace(start, kernels=kernels)))
        except SpecError as error:
            refused = refused or error.problems
        else:
            return replace(start, kernels=kernels)
    raise SpecError(Problem(Location(file), f"no plan of this model: {fault.message}", fault.help) for fault in refused)


def _with_expert_degree(start: Start) -> Start:
    """The start with the expert-parallel degree at which a search begins: the fastest that fits, or the smallest.

    A search looks first at layouts that are like its plan.
    """
    plans = {degree: load_plan(start_text(replace(start, expert=degree))) for degree in start.expert_degrees}
    totals_of = {degree: compile_plan(plan).totals for degree, plan in plans.items()}
    best = min(plans, key=lambda degree: _rank(plans[degree], totals_of[degree]))
    return replace(start, expert=best)


def _rank(plan: Plan, totals: Mapping[str, Number]) -> tuple[bool, float]:
    """A sort key: plans that fit first, by the time of a step; then the others, by memory."""
    needed = float(totals["memory.reserved"])
    fits = needed <= float(totals["memory.capacity"]) - kept_free(plan)
    return not fits, float(totals["time.step"]) if fits else needed


def _no_layout(result: Recommendations, file: str) -> Problem:
    message = "no layout leaves the headroom free on so many devices"
    if result.nearest:
        message += f"; the one that misses least needs {numbers.size(result.nearest.totals['memory.reserved'])} of each"
    help_text = "more of them with `--devices`, or larger ones with `--accelerator`"
    return Problem(Location(file), message.replace(numbers.THIN, " "), help_text)


# --- the text of a first plan ---

DEFAULT_DEVICE = "h100-sxm"
STACK = "pytorch-fsdp2-2025"
# Tokens of a sequence: Llama 3 is trained on so many before its context is extended (arXiv 2407.21783, section 3.4).
LONGEST_SEQUENCE = 8192
RUN_IMAGES, STEP_IMAGES = 300 * 1281167, 4096  # Dosovitskiy et al. 2021, arXiv 2010.11929, table 3
STEP_TOKENS = 2**22  # tokens a step; Llama 2 is trained with 4M (arXiv 2307.09288, section 2.2)
SOURCE_TOKENS = 512  # of a source and of what answers it (Raffel et al. 2020, arXiv 1910.10683, section 3.1.2)
EXPERT_DEGREES = (1, NODE, 8 * NODE)  # over how many devices experts are split to begin with
LAYOUT = "assumed: the layout"  # the comment in whose place stands what is found
LONGEST_TITLE = 200
WHY: Mapping[str, str] = {
    "precision": "assumed: bf16 weights and gradients, with an fp32 copy for the optimizer",
    "optimizer": "assumed: the most common one",
    "stack": "assumed: PyTorch with FSDP2, not compiled",
    "kernels": "assumed: kernels that can run the model, where the stack's cannot",
    "parallelism": LAYOUT,
}


@dataclass(frozen=True)
class Start:
    """The start of a first plan: the model as a plan has it, the number of devices, and their name where it is known.

    `kernels` differ from the stack's, `expert` is the degree that a search of layouts begins at.
    """

    model: Mapping[str, Any]
    devices: int
    accelerator: str = ""
    kernels: Mapping[str, str] = field(default_factory=dict)
    expert: int = 1

    @property
    def device(self) -> str:
        """The name of the device, or the one that is assumed."""
        return self.accelerator or DEFAULT_DEVICE

    @property
    def expert_degrees(self) -> tuple[int, ...]:
        """Degrees of EXPERT_DEGREES that divide both the experts of each layer and the devices."""
        experts = [group["mlp"]["experts"] for group in self.model["layers"] if "experts" in group.get("mlp", {})]
        return tuple(
            degree
            for degree in EXPERT_DEGREES
            if degree == 1 or (experts and math.gcd(self.devices, *experts) % degree == 0)
        )


def start_text(start: Start) -> str:
    """The plan with every device a replica that holds a share of the states; raises SpecError for an unknown device.

    Of a model of blocks each holds all of them.
    """
    run, why = _image_run(start) if "image" in start.model else _text_run(start)
    cluster, network = _cluster(start)
    degrees = {"data": start.devices, "expert": start.expert, "zero": 0 if "stem" in start.model else 3}
    parts = {
        "spec": "ledger/1",
        "plan": f"{start.model['model']} on {start.devices} {load_accelerator(start.device).title}"[:LONGEST_TITLE],
        "accelerator": start.device,
        "cluster": cluster,
        "model": start.model,
        "precision": "bf16-mixed",
        "optimizer": "adamw",
        "stack": STACK,
        **({"kernels": start.kernels} if start.kernels else {}),
        "parallelism": {key: degree for key, degree in degrees.items() if degree > 1 and start.devices > 1},
        "recompute": "none",
        "run": run,
    }
    device = {} if start.accelerator else {"accelerator": "assumed: the device"}
    return plan_text(parts, {}, {**WHY, **device, "cluster": f"assumed: {network}", "run": why})


def _text_run(start: Start) -> tuple[dict[str, Any], str]:
    """The run of a model of text, and what it rests on."""
    model, positions = start.model, start.model.get("embedding", {}).get("learned_positions", 0)
    encodes = any("reads" in group for group in model["layers"])
    text = SOURCE_TOKENS if encodes and "sound" not in model else 0
    longest = model.get("max_seq_len") or text or positions or LONGEST_SEQUENCE
    length = min(longest, LONGEST_SEQUENCE)
    batch = _global_batch(start, STEP_TOKENS / length)
    source = {"source_len": text} if text else {}
    run = {"tokens": EXAMPLE, "seq_len": length, **source, "micro_batch": 1, "global_batch": batch}
    return run, _run_comment(longest, length, batch)


def _image_run(start: Start) -> tuple[dict[str, Any], str]:
    """The run of a model of images, and what it rests on."""
    run = {"images": f"{RUN_IMAGES} images", "micro_batch": 1, "global_batch": _global_batch(start, STEP_IMAGES)}
    return run, (
        "assumed: ImageNet-1k's 1281167 images 300 times (Dosovitskiy et al. 2021, arXiv 2010.11929, table 3)\n"
        f"assumed: about {STEP_IMAGES} images a step, a whole number a device"
    )


def _global_batch(start: Start, sequences: float) -> int:
    """A global batch of about so many sequences, equally many a device."""
    return start.devices * max(1, round(sequences / start.devices))


def _run_comment(longest: int, length: int, batch: int) -> str:
    cut = f", of the {longest} that the model takes" if longest > length else ", as many as the model takes"
    return (
        f"assumed: {EXAMPLE} (Hoffmann et al. 2022, arXiv 2203.15556)\n"
        f"assumed: sequences of {length} tokens{cut}\n"
        f"assumed: about {numbers.integer(batch * length)} tokens a step, a whole number of sequences a device"
    ).replace(numbers.THIN, " ")


def _cluster(start: Start) -> tuple[dict[str, Any], str]:
    """The devices with the network that the library has for nodes of the device, and what that is."""
    library = default_library()
    names = set(library.matching_names(DEVICE, start.device))
    fitting = [
        name
        for name in library.names("cluster")
        if read_once(library.path("cluster", name)).plain_field(DEVICE) in names
    ]
    fills_nodes = start.devices <= NODE or start.devices % NODE == 0
    if fitting:
        node = {} if fills_nodes else {"devices_per_node": math.gcd(start.devices, NODE)}
        return {"base": fitting[0], "devices": start.devices, **node}, f"the network of {fitting[0]}"
    node = {"devices_per_node": min(start.devices, NODE) if fills_nodes else math.gcd(start.devices, NODE)}
    return {"devices": start.devices, **node}, "nodes of this many devices, and a network between them as on file"


# --- unbuilt parts ---


def unbuilt_notes(model: ConfigModel, file: str) -> Iterator[Problem]:
    """A note for each unbuilt part of a model, at the field that states it."""
    for unbuilt in model.unbuilt:
        message = f"`{unbuilt.name}` is {unbuilt.value}: transformers builds no such layer, and this model has none"
        counts = [_parameters({**model.document, **part}, file) for part in ({}, unbuilt.part)]
        if all(counts):
            without, with_part = (numbers.count(count).replace(numbers.THIN, " ") for count in counts)
            message += f": {without} parameters, {with_part} with it"
        (part, fields), *_ = unbuilt.part.items()
        inside = ", ".join(f"{key}: {value}" for key, value in fields.items())
        yield Problem(unbuilt.where, message, f"`{part}: {{{inside}}}` in the model adds it, as it was trained")


def _parameters(document: Mapping[str, Any], file: str) -> int:
    """Parameters of a model; 0 where no plan can be made of it, which others say."""
    try:
        plan = load_plan(start_text(runnable(Start(document, 1), file)))
    except SpecError:
        return 0
    return int(whole_parameters(whole(plan)))
