"""A plan for a model of which nothing is known but its shape: common choices, each said, and the fastest layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger import numbers
from ledger.books.compiler import compile_plan
from ledger.spec.device_parts import DEVICE
from ledger.spec.edit import edited
from ledger.spec.imports.parts import NODE, ImportedSpec
from ledger.spec.imports.text import plan_text
from ledger.spec.library import Library, default_library, read_once
from ledger.spec.load import load_accelerator, load_plan
from ledger.spec.problems import Location, Problem

if TYPE_CHECKING:
    from ledger.report.recommendations import Recommendations
    from ledger.spec.plan import Plan

DEFAULT_DEVICE = "h100-sxm"
STACK = "pytorch-fsdp2-2025"
# Hoffmann et al. 2022, arXiv 2203.15556, table 3: about 20 tokens for each parameter at the least loss of a budget.
TOKENS_A_PARAMETER = 20
LONGEST_SEQUENCE = (
    8192  # tokens; Llama 3 is trained on that many before its context is extended (arXiv 2407.21783, 3.4)
)
STEP_TOKENS = 2**22  # tokens a step; Llama 2 is trained with 4M (arXiv 2307.09288, section 2.2)
LAYOUT = "assumed: the layout"  # the comment in whose place stands what is found

Search = Callable[["Plan"], "Recommendations | None"]


@dataclass(frozen=True)
class Start:
    """What a first plan begins with: the model as a plan has it, how many devices, and their name where it is known."""

    model: Mapping[str, Any]
    devices: int
    accelerator: str = ""

    @property
    def device(self) -> str:
        """The name of the device, or the one that is assumed."""
        return self.accelerator or DEFAULT_DEVICE


def first_plan(start: Start, file: str, search: Search) -> ImportedSpec:
    """The text of the plan, each of whose assumptions is a comment; `file` is where the model is from.

    Its layout is the fastest that `search` finds and that leaves the headroom free; where none does, it is the one that
    misses least, and a note says by how much. Raises SpecError where the model or the device makes no plan.
    """
    library = default_library()
    parameters = compile_plan(load_plan(_text(start, library))).totals["parameters"]
    text = _text(start, library, tokens=TOKENS_A_PARAMETER * int(parameters))
    found = search(load_plan(text))
    if found is None:
        return ImportedSpec(text.replace(LAYOUT, "assumed: a replica on every device"))
    layout = found.fastest or found.nearest
    said = f"assumed: {'the fastest' if found.fastest else 'what misses least'} of {found.scope}"
    text = edited(text.replace(LAYOUT, said.replace(numbers.THIN, " ")), layout.changes if layout else {})
    return ImportedSpec(text, () if found.fastest else (_no_layout(found, file),))


def _text(start: Start, library: Library, tokens: int = 0) -> str:
    """The plan with every device a replica that holds a share of the states."""
    device = load_accelerator(start.device, library=library)
    cluster, network = _cluster(start, library)
    longest = start.model.get("max_seq_len") or LONGEST_SEQUENCE
    length = min(longest, LONGEST_SEQUENCE)
    batch = start.devices * max(1, round(STEP_TOKENS / (length * start.devices)))
    run = {"seq_len": length, "micro_batch": 1, "global_batch": batch}
    run = {"tokens": f"{tokens} tokens", **run} if tokens else run
    shared = {"zero": 3} if start.devices > 1 else {}
    parts = {
        "spec": "ledger/1",
        "plan": f"{start.model['model']} on {start.devices} {device.title}"[:200],
        "accelerator": start.device,
        "cluster": cluster,
        "model": start.model,
        "precision": "bf16-mixed",
        "optimizer": "adamw",
        "stack": STACK,
        "parallelism": {"data": start.devices, **shared},
        "recompute": "none",
        "run": run,
    }
    why = {
        "accelerator": "" if start.accelerator else "assumed: the device",
        "cluster": f"assumed: {network}",
        "precision": "assumed: bf16 weights and gradients, with an fp32 copy for the optimizer",
        "optimizer": "assumed: the most common one",
        "stack": "assumed: PyTorch with FSDP2, not compiled",
        "parallelism": LAYOUT,
        "run": _run_comment(longest, length, batch),
    }
    return plan_text(parts, {}, {key: reason for key, reason in why.items() if reason})


def _run_comment(longest: int, length: int, batch: int) -> str:
    cut = f", of the {longest} that the model takes" if longest > length else ", as many as the model takes"
    return (
        f"assumed: {TOKENS_A_PARAMETER} tokens a parameter (Hoffmann et al. 2022, arXiv 2203.15556)\n"
        f"assumed: sequences of {length} tokens{cut}\n"
        f"assumed: about {numbers.integer(batch * length)} tokens a step, a whole number of sequences a device"
    ).replace(numbers.THIN, " ")


def _cluster(start: Start, library: Library) -> tuple[dict[str, Any], str]:
    """The devices with the network that the library has for nodes of the device, and what that is."""
    names = set(library.spelt(DEVICE, start.device))
    fitting = [
        name
        for name in library.names("cluster")
        if read_once(library.folder("cluster") / f"{name}.yaml").plain_field(DEVICE) in names
    ]
    whole = start.devices <= NODE or start.devices % NODE == 0
    node = {} if whole else {"devices_per_node": math.gcd(start.devices, NODE)}
    if fitting:
        return {"base": fitting[0], "devices": start.devices, **node}, f"the network of {fitting[0]}"
    node = {"devices_per_node": min(start.devices, NODE) if whole else math.gcd(start.devices, NODE)}
    return {"devices": start.devices, **node}, "nodes of this many devices, and a network between them as on file"


def _no_layout(found: Recommendations, file: str) -> Problem:
    message = "no layout leaves the headroom free on so many devices"
    if found.nearest:
        message += f"; the one that misses least needs {numbers.size(found.nearest.totals['memory.reserved'])} of each"
    help_text = "more of them with `--devices`, or larger ones with `--accelerator`"
    return Problem(Location(file), message.replace(numbers.THIN, " "), help_text)
