"""Random small plans that are legal: every degree divides what it splits, and every kernel can run."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ledger.spec.library import default_library
from ledger.spec.load import load_optimizer, load_precision
from tests.model import plans
from tests.model.plans import Mapped

FLASH = ("flash", "cudnn")
RECOMPUTE: tuple[Any, ...] = (
    "none",
    "selective",
    "full",
    {"keep": ["matmul", "attention"]},
    {"keep": ["matmul", "attention"], "matmuls": "every_second"},
    {"every": 2},
    {"components": ["attention", "norm"]},
    {"components": ["mlp"]},
    {"components": ["core", "activation"]},
)
COUNTED: tuple[Any, ...] = ("square_root", {"segment": 2}, {"layers": 1})  # of layers of one kind
DENSE = (
    plans.LLAMA,
    plans.MISTRAL,
    plans.QWEN2,
    plans.QWEN3,
    plans.GEMMA2,
    plans.GPT2,
    plans.NEOX,
    plans.PHI,
    plans.LATENT,
    plans.LATENT_COMPLEX,
    plans.LATENT_KEYS,
    plans.LLAMA4,
)
RECIPES = ("fp8-delayed", "fp8-current", "fp8-tensorwise", "fp8-rowwise", "fp8-block", "mxfp8", "nvfp4")
DEGREES = ("tensor", "context", "data", "pipeline", "interleave")


@st.composite
def models(draw: st.DrawFn, tensor: int = 1, layers: int = 2) -> Mapped:
    """A model of one of the families, whose heads, hidden layer and vocabulary split over `tensor`."""
    whole_heads = (plans.OLMO2,) if tensor == 1 else ()  # its norms are over all heads
    base = draw(st.sampled_from((*DENSE, *whole_heads, plans.MIXTRAL, plans.MIXTRAL)))
    head_dim = draw(st.sampled_from((8, 16)))
    kv_heads = tensor * draw(st.integers(1, 3))
    joint = base["layers"][0]["attention"].get("fused_qkv", False)
    heads = kv_heads if joint else kv_heads * draw(st.integers(1, 3))
    d_model = heads * head_dim if joint else draw(st.sampled_from((29, 31, 37, 41)))
    sizes: Mapped = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    if base["layers"][0]["attention"].get("kind") == "latent":
        sizes = {
            "heads": heads,
            "kv_rank": 36,
            "nope_head_dim": head_dim,
            "rope_head_dim": 12,
            "v_head_dim": head_dim + 3,
        }
        sizes |= {"q_rank": 48} if "q_rank" in base["layers"][0]["attention"] else {}
    mlp = {"d_ff": tensor * draw(st.sampled_from((43, 47, 53)))}
    if sparse(base):
        d_model, mlp = 8 * draw(st.sampled_from((5, 7, 9))), draw(experts(tensor))
    repeat = layers // len(base["layers"])
    model = plans.layer({**base, "d_model": d_model}, repeat=repeat, attention=sizes, mlp=mlp)
    if "order" in model:  # as many layers of each kind
        model["order"] = [group["group"] for group in model["layers"]]
    if "learned_positions" in base["embedding"]:
        model["embedding"] = {
            **base["embedding"],
            "learned_positions": 660,
        }  # any sequence here, and whole rows a shard
    return {**model, "vocab": tensor * draw(st.sampled_from((59, 61, 67))), "max_seq_len": 660}


def sparse(model: Mapped) -> bool:
    """Whether a model has experts."""
    return bool(model["layers"][0]["mlp"]["kind"] == "experts")


@st.composite
def experts(draw: st.DrawFn, tensor: int) -> Mapped:
    """Experts that split over any degree up to 4, and over 6, in rows as their kernels need them."""
    found: Mapped = {"experts": 12, "top_k": draw(st.integers(1, 3)), "d_ff": 8 * tensor * draw(st.integers(2, 4))}
    found["router"] = {
        "scores": draw(st.sampled_from(("softmax", "softmax_of_chosen", "sigmoid", "sigmoid_of_chosen"))),
        "scales": draw(st.sampled_from(("output", "input"))),
        "normalize": draw(st.booleans()),
        "dtype": draw(st.sampled_from(("compute", "fp32"))),
        "weights": draw(st.sampled_from(("fp32", "input"))),
        "groups": draw(st.sampled_from((1, 3))),
    }
    if draw(st.booleans()):
        found["shared"] = {"d_ff": tensor * draw(st.sampled_from((17, 19))), "count": draw(st.integers(1, 2))}
    return found


@st.composite
def spread(draw: st.DrawFn, precision: str, shards: int) -> tuple[Mapped, Mapped, int]:
    """How experts run: what their layers say beside sizes, their kernel, and over how many of the devices they split.

    The kernel over groups of rows alone takes rows from other devices, or a capacity; it is not there in fp32.
    """
    grouped = precision in ("bf16-true", "bf16-mixed")
    kernel = draw(
        st.sampled_from(("grouped_mm", "grouped_mm", "batched_mm", "eager") if grouped else ("batched_mm", "eager"))
    )
    if kernel != "grouped_mm":
        return {}, {"experts": kernel}, 1
    capacity = {"capacity_factor": 1.5} if draw(st.booleans()) else {}
    degrees = [degree for degree in (1, 2, 3, 4, 6) if shards % degree == 0]
    return capacity, {"experts": kernel}, draw(st.sampled_from(degrees))


def kernels(precision: str) -> st.SearchStrategy[Mapped]:
    """One implementation for every part; flash attention only where it exists."""
    cores = ("flash", "cudnn", "efficient", "math", "eager")
    return st.fixed_dictionaries(
        {
            "attention": st.sampled_from([core for core in cores if precision != "fp32" or core not in FLASH]),
            "norm": st.sampled_from(("fused", "eager")),
            "activation": st.sampled_from(("fused", "eager")),
            "rotary": st.sampled_from(("fused", "eager")),
        }
    )


def losses(model: Mapped, tensor: int) -> st.SearchStrategy[Mapped]:
    """A loss, over parts of the sequence (which all lengths here have two of) or over all of it."""
    parts = [{"loss": "chunked", "loss_chunks": 2}]
    if tensor == 1 and not model["head"].get("bias"):
        parts.append({"loss": "fused_linear", "loss_chunks": 2})
    return st.sampled_from([{}, {"loss": "fused"}, {"loss": "softmax_in_place"}, *parts])


@st.composite
def trained(draw: st.DrawFn, model: Mapped) -> tuple[Any, Any]:
    """A recompute policy, and which weights are trained: in every layer some, as one device or many have it."""
    taking_turns = len(model["layers"]) > 1
    policy = draw(st.sampled_from(RECOMPUTE if taking_turns else (*RECOMPUTE, *COUNTED)))
    attention = [group["attention"] for group in model["layers"]]
    targets = ["qkv", "out"] if attention[0].get("fused_qkv") else ["q", "out"]
    lora = {"lora": {"rank": 6, "targets": targets}}
    train = draw(st.sampled_from(("all", "all", "all", {"frozen": ["embedding"]}, {"only": ["attention"]}, lora)))
    return policy, train if policy not in ("square_root", {"segment": 2}) else "all"


@st.composite
def optimizers(draw: st.DrawFn) -> tuple[str, str]:
    """An optimizer of the library, and an implementation of its update."""
    name = draw(st.sampled_from(default_library().names("optimizer")))
    return name, draw(st.sampled_from(load_optimizer(name).implementations()))


@st.composite
def narrowed(draw: st.DrawFn, whole: Mapped) -> Mapped:
    """The same plan with a recipe for fp8 or fp4 matmuls, its sizes multiples of 32, as these matmuls need them."""
    model = {**whole["model"], "d_model": 32 * whole["model"]["d_model"]}
    groups = []
    for group in model["layers"]:
        attention = {**group["attention"], "head_dim": 16 * group["attention"].get("head_dim", 1)}
        mlp = {**group["mlp"], "d_ff": 32 * group["mlp"]["d_ff"]}
        groups.append({**group, "attention": attention if "heads" in attention else group["attention"], "mlp": mlp})
    run = {**whole["run"], "seq_len": 32 * whole["run"]["seq_len"]}
    grouped = whole["kernels"].get("experts") == "grouped_mm"  # which autocast does not know, and fp32 not
    precision = draw(st.sampled_from([name for name in RECIPES if not (grouped and load_precision(name).autocast)]))
    recipe = load_precision(precision).matmul
    again = recipe is not None and (recipe.gathers, recipe.saves) == ("quantised", "quantised")
    degrees = {
        key: "off" if value == "regather" and not again else value for key, value in whole["parallelism"].items()
    }
    embedding = {key: 32 * value if key == "learned_positions" else value for key, value in model["embedding"].items()}
    return {
        **whole,
        "model": {**model, "layers": groups, "embedding": embedding, "max_seq_len": 32 * model["max_seq_len"]},
        "run": run,
        "parallelism": degrees,
        "precision": precision,
        "train": "all",
        "accelerator": "b200",
    }


@st.composite
def sharing(draw: st.DrawFn, replicas: int) -> Mapped:
    """How devices that share weights split them, and when weights and gradients move."""
    zero = draw(st.integers(0, 3))
    found: Mapped = {"zero": zero}
    copies = [n for n in range(2, replicas) if replicas % n == 0]
    if zero and copies and draw(st.booleans()):
        found["replicate"] = draw(st.sampled_from(copies))
    if zero == 3:
        found["reshard"] = draw(st.sampled_from((True, False, "layers")))
        found["wrap"] = draw(st.sampled_from(("layer", "layer", "model")))
    if zero != 2:
        found["reduce"] = draw(st.sampled_from(("micro_batch", "step")))
    return found


@st.composite
def parallelism(draw: st.DrawFn) -> Mapped:
    """Degrees of every axis, none above 3, and what goes with them."""
    tensor, data = draw(st.sampled_from((1, 1, 2, 3))), draw(st.sampled_from((1, 2, 3)))
    pipeline, context = draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from((1, 1, 2)))
    degrees: Mapped = {"tensor": tensor, "data": data, "pipeline": pipeline, "context": context}
    if pipeline > 1:
        degrees["interleave"] = draw(st.sampled_from((1, 2)))
    if data * context > 1:
        degrees |= draw(sharing(data * context))
    if tensor > 1:
        degrees["sequence"] = draw(st.sampled_from(("off", "save_gathered", "regather")))
    return degrees


@st.composite
def hosting(draw: st.DrawFn, whole: Mapped) -> Any:
    """What lives in host memory, as far as the rules allow: mostly nothing."""
    legal: list[Any] = ["activations", {"activations": 1}]
    if whole["optimizer"] != "muon":
        legal += ["optimizer", *(["weights"] if whole["parallelism"].get("zero") == 3 else [])]
    uneven = len(whole["model"]["layers"]) > 1 or whole["recompute"] in COUNTED or "every" in whole["recompute"]
    chosen = draw(st.sampled_from((None, None, None, *legal)))
    if isinstance(chosen, dict):
        return ["activations"] if uneven else chosen
    return [chosen, *(["activations"] if chosen == "weights" and draw(st.booleans()) else [])] if chosen else None


@st.composite
def parts(draw: st.DrawFn) -> Mapped:
    """The parts of a whole plan."""
    degrees = draw(parallelism())
    tensor, data, pipeline, context = (degrees[axis] for axis in ("tensor", "data", "pipeline", "context"))
    precision = draw(st.sampled_from(("bf16-true", "bf16-mixed", "bf16-autocast", "fp32")))
    micro_batch = draw(st.integers(1, 3))
    devices = tensor * data * pipeline * context
    batches = draw(st.integers(1, 3)) * pipeline  # interleaved schedules run whole rounds of the pipeline
    model, chosen = (
        draw(models(tensor=tensor, layers=2 * pipeline * degrees.get("interleave", 1))),
        draw(kernels(precision)),
    )
    if sparse(model):
        capacity, kernel, expert = draw(spread(precision, data * context))
        model, chosen, degrees = plans.layer(model, mlp=capacity), {**chosen, **kernel}, {**degrees, "expert": expert}
        shards = data * context // degrees.get("replicate", 1)
        if expert > 1 and (shards % expert or shards == expert):
            degrees.pop("replicate", None)  # a copy of split experts is held split too
    optimizer, update = draw(optimizers())
    policy, train = draw(trained(model))
    whole = {
        "model": model,
        "precision": precision,
        "optimizer": optimizer,
        "kernels": {**chosen, "optimizer": update, **draw(losses(model, tensor))},
        "parallelism": degrees,
        "recompute": policy,
        "train": "all" if degrees.get("wrap") == "model" else train,  # frozen layers move alone
        "cluster": {"base": "h100-400g", "devices": devices, "devices_per_node": devices},
        "run": {
            "seq_len": 2 * tensor * context * draw(st.integers(3, 5)),
            "micro_batch": micro_batch,
            "global_batch": micro_batch * data * batches,
        },
    }
    hosted = draw(hosting(whole))
    if hosted:
        copied = {"base": "pytorch-fsdp2-2025", "overlap": {"host": draw(st.sampled_from(("none", "compute")))}}
        whole |= {"parallelism": {**degrees, "offload": hosted}, "stack": copied}
    narrow = precision == "bf16-mixed" and draw(st.booleans()) and "latent" not in str(model["layers"])
    return draw(narrowed(whole)) if narrow else whole


def alone(whole: Mapped) -> Mapped:
    """The same model, kernels and micro-batch on one device, one micro-batch a step, nothing split."""
    cluster = {"base": "h100-400g", "devices": 1, "devices_per_node": 1}
    run = {**whole["run"], "global_batch": whole["run"]["micro_batch"]}
    return {**whole, "parallelism": {"data": 1}, "cluster": cluster, "run": run}
