"""Random legal plans with a pipeline: any schedule, stages of any size, a sequence exchanged in any way."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.model import strategies
from tests.model.plans import Mapped
from tests.model.strategies import FLASH, RECOMPUTE

CHUNKS = {
    "gpipe": (1,),
    "1f1b": (1,),
    "interleaved": (2, 3),
    "zero_bubble": (1, 2),
    "zero_bubble_h2": (1,),
    "dual_pipe": (1,),
}
SHAPES = ("even", "listed", "ends", "layer", "own")
FUSED = ("flash", "cudnn", "efficient")


@st.composite
def stages(draw: st.DrawFn, slots: int) -> tuple[Mapped, int]:
    """What a spec says of the layers of so many chunks, and how many layers these are, an even number."""
    shape = draw(st.sampled_from(SHAPES if slots > 2 else SHAPES[:2]))
    each = 2 * draw(st.integers(1, 2))
    if shape == "listed":
        sizes = draw(st.lists(st.integers(0, 3), min_size=slots, max_size=slots))
        sizes[draw(st.integers(0, slots - 1))] += 2 + sum(sizes) % 2
        return {"stages": sizes}, sum(sizes)
    if shape == "ends":
        first, last = draw(st.sampled_from(((0, 0), (1, 1), (3, 1))))
        return {"stages": {"first": first, "last": last}}, first + last + each * (slots - 2)
    if shape == "layer":
        return {"ends": "layer"}, each * slots - 2
    return ({"ends": "own"}, each * (slots - 2)) if shape == "own" else ({}, each * slots)


def limited(model: Mapped) -> bool:
    """Whether some layers see a window or a chunk only."""
    return any({"window", "chunk"} & group["attention"].keys() for group in model["layers"])


@st.composite
def exchanges(draw: st.DrawFn, model: Mapped, parts: int) -> Mapped:
    """How attention sees the sequence that is cut; `parts` are the devices that would share its heads."""
    heads = [
        group["attention"][field]
        for group in model["layers"]
        for field in ("heads", "kv_heads")
        if field in group["attention"]
    ]
    turned = ["all_to_all"] if not any(count % parts for count in heads) else []
    if limited(model):
        return {"context_exchange": draw(st.sampled_from(["all_gather", *turned]))}
    exchange = draw(st.sampled_from(["all_gather", "ring", "ring", *turned]))
    return {"context_exchange": exchange, "context_balance": draw(st.sampled_from(("zigzag", "none")))}


@st.composite
def pipelines(draw: st.DrawFn) -> Mapped:
    """The parts of a whole plan whose layers are cut into stages."""
    name = draw(st.sampled_from(sorted(CHUNKS)))
    pipeline, chunks = draw(st.sampled_from((2, 4))), draw(st.sampled_from(CHUNKS[name]))
    tensor, data, context = (draw(st.sampled_from((1, 1, 2))) for _ in range(3))
    said, layers = draw(stages(pipeline * chunks))
    degrees: Mapped = {"tensor": tensor, "data": data, "context": context, "pipeline": pipeline, **said}
    degrees |= {"schedule": name, "interleave": chunks}
    if data * context > 1 or name == "dual_pipe":
        degrees["zero"] = draw(st.sampled_from((0, 1, 3))) if data * context > 1 else 0
    precision = draw(st.sampled_from(("bf16-true", "bf16-mixed", "fp32")))
    model = draw(strategies.models(tensor=tensor, layers=layers).filter(lambda made: not strategies.sparse(made)))
    kernels: Any = draw(strategies.kernels(precision))
    if context > 1:
        degrees |= draw(exchanges(model, tensor * context))
        kernels["attention"] = draw(st.sampled_from([k for k in FUSED if precision != "fp32" or k not in FLASH]))
    micro_batch, devices = draw(st.integers(1, 2)), tensor * data * context * pipeline
    return {
        "model": model,
        "precision": precision,
        "kernels": kernels,
        "parallelism": degrees,
        "recompute": draw(st.sampled_from(RECOMPUTE)),
        "cluster": {"base": "h100-400g", "devices": devices, "devices_per_node": devices},
        "run": {
            "seq_len": 2 * tensor * context * draw(st.integers(3, 5)),
            "micro_batch": micro_batch,
            "global_batch": micro_batch * data * pipeline * draw(st.sampled_from((2, 4))),
        },
    }


def even(whole: Mapped) -> bool:
    """Whether all stages hold the same layers."""
    return not {"stages", "ends"} & whole["parallelism"].keys()
