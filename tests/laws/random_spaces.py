"""Random plans over every stack on file, each with a small space of its layouts.

Stacks and kinds of plans take turns, so that a run of len(STACKS) x len(KINDS) spaces has each pair that the rules
allow. A kind says which models are drawn from and what the plan is made to have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import yaml

from ledger.model.schedule import PIPELINES
from ledger.search.choices import VALUES, policy_value
from ledger.search.space import SERVED, Space, space_of
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import SpecError
from ledger.spec.stages import as_even
from tests.laws.random_plans import RECOMPUTE, Drawn, names, text_of
from tests.library_plans import PLANS

TRIES = 60  # drawings of a plan and of its space, of which one is legal, or the stack does not run the kind
MOST_ROWS = 30  # legal layouts of a space
MOST_COMBINATIONS = 3000  # of a space's values, which are enumerated one by one
MOST_DEVICES = 64
STACKS = names("stack")
ENGINE = "is an engine that serves"  # what the rules say of such a stack where a plan trains
DENSE = ("llama-3-8b", "llama-2-7b", "qwen2.5-7b", "qwen3-8b", "gpt2", "gpt2-xl", "pythia-6.9b", "llama-3-70b")
LONG_AND_SHORT = ("mistral-7b", "gemma-2-9b", "gemma-3-27b", "mamba2-2.7b", "qwen3-next-80b-a3b", "llama-4-scout")
EXPERTS = ("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "llama-4-scout", "qwen3-next-80b-a3b", "mixtral-8x22b")
LATENT = ("deepseek-v2", "deepseek-v3")
ENCODERS = ("t5-11b", "whisper-large-v3")
PICTURES = ("vit-l", "resnet-50")
ANY = (*DENSE, *LONG_AND_SHORT, *EXPERTS, *LATENT)
ACCELERATORS = ("h100-sxm", "a100-sxm-80gb", "b200", "h200-sxm", "mi300x")
PARTS = ["q", "k", "v", "out", "gate", "up", "down"]
HOST = {"memory": "2 TB", "bandwidth": "400 GB/s", "source": "a law"}
DRIVES = {"capacity": "30 TB", "read": "20 GB/s", "write": "10 GB/s", "source": "a law"}
ATTENTION = ("flash", "cudnn", "efficient", "math", "eager", "flash3")
WHOLE = frozenset({"fp32", "bf16-mixed", "bf16-true", "bf16-autocast", "fp16-mixed", "bf16-fp32-gradients"})
NARROW = tuple(name for name in names("precision") if name.startswith(("fp8", "mxfp8", "nvfp4")))
ADAPTED = ("lora-peft", "qlora-peft", "qlora-bf16", "bf16-autocast", "bf16-true")
Over = Mapping[str, list[Any]]
Change = Callable[[Random, Drawn], None]


@dataclass(frozen=True)
class Case:
    """A plan as text, and values of keys of its layout: a space of few layouts."""

    number: int
    kind: str
    stack: str
    text: str
    over: Over

    @property
    def space(self) -> Space:
        """The layouts of the plan over those values."""
        return space_of(load_plan(self.text), self.over)


def numbered_case(seed: int, number: int) -> Case | None:
    """The case of that number, the same on every machine; None where the stack runs no such plan."""
    turn, place = divmod(number, len(STACKS))
    stack, kind = STACKS[place], tuple(KINDS)[(turn + place) % len(KINDS)]
    random = Random(f"{seed}/{number}/{stack}/{kind}")  # noqa: S311 - not for secrets
    for _ in range(TRIES):
        drawn = draw(random, kind, stack)
        try:
            plan = load_plan(text_of(drawn))
        except SpecError as error:
            if any(ENGINE in problem.message for problem in error.problems):
                kind = "services"
            continue
        over = drawn_values(random, plan)
        if 0 < legal_layouts(space_of(plan, over)) <= MOST_ROWS:
            return Case(number, kind, stack, text_of(drawn), over)
    return None


def legal_layouts(space: Space) -> int:
    """How many layouts a space has, counted up to a few beyond MOST_ROWS; those of a large space are not counted."""
    if space.combinations > MOST_COMBINATIONS:
        return MOST_ROWS + 1
    return sum(1 for _, _ in zip(space.layouts(), range(MOST_ROWS + 1), strict=False))


# --- plans ---


def draw(random: Random, kind: str, stack: str) -> Drawn:
    """A plan of a kind on a stack; whether it is legal, the rules say."""
    models, change = KINDS[kind]
    mesh = _mesh(random)
    drawn: Drawn = {
        "spec": "ledger/1",
        "plan": f"Drawn: {kind}",
        "accelerator": random.choice(ACCELERATORS),
        "cluster": {"base": "h100-400g", "devices": mesh.pop("devices"), "host": HOST},
        "model": random.choice(models),
        "precision": random.choice(("bf16-mixed", "bf16-true", "bf16-fp32-gradients", *sorted(WHOLE))),
        "optimizer": random.choice(("adamw", *names("optimizer"))),
        "parallelism": mesh,
        "recompute": "none",
        "stack": stack,
        "run": {
            "tokens": "1000M tokens",
            "seq_len": random.choice((512, 1024, 2048, 3000)),
            "micro_batch": random.choice((1, 1, 2, 4)),
        },
        "assumptions": {"mfu": 0.4, "price": {"per_device_hour": "2 USD", "date": "2026-01-01", "source": "an offer"}},
    }
    drawn["run"]["global_batch"] = (
        mesh["data"] * drawn["run"]["micro_batch"] * 2 * mesh["pipeline"] * random.choice((1, 2))
    )
    if random.random() < 0.3:
        drawn["recompute"] = random.choice(RECOMPUTE)
    change(random, drawn)
    return drawn


def _mesh(random: Random) -> Drawn:
    """Degrees of the axes, powers of two on at most MOST_DEVICES, and what goes with them."""
    tensor, pipeline = random.choice((1, 1, 2, 4, 8)), random.choice((1, 1, 1, 2, 4))
    context = random.choice((1, 1, 1, 2))
    data = random.choice(
        [degree for degree in (1, 2, 4, 8, 16) if degree * tensor * pipeline * context <= MOST_DEVICES]
    )
    mesh: Drawn = {"devices": data * tensor * pipeline * context}
    mesh |= {"data": data, "tensor": tensor, "pipeline": pipeline, "context": context}
    mesh["zero"] = random.choice((0, 1, 2, 3)) if data * context > 1 else 0
    if tensor > 1:
        mesh["sequence"] = random.choice(("off", "save_gathered", "regather"))
    if context > 1:
        mesh["context_exchange"] = random.choice(("all_gather", "ring", "all_to_all"))
    if mesh["zero"] == 3:
        mesh["reshard"] = random.choice((True, False, "layers"))
    _schedule(random, mesh)
    return mesh


def _schedule(random: Random, mesh: Drawn) -> None:
    """A schedule where there is a pipeline."""
    if mesh["pipeline"] > 1:
        mesh["schedule"] = random.choice(tuple(PIPELINES))
        mesh["interleave"] = 2 if mesh["schedule"] == "interleaved" else 1


def _nothing(random: Random, drawn: Drawn) -> None:
    """Leaves a plan as it is drawn."""


def _experts(random: Random, drawn: Drawn) -> None:
    drawn["parallelism"]["expert"] = random.choice((1, 2, 4, 8))


def _pipeline(random: Random, drawn: Drawn) -> None:
    """A pipeline in place of replicas, under any schedule."""
    mesh = drawn["parallelism"]
    if mesh["pipeline"] == 1:
        stages = min(random.choice((2, 4)), mesh["data"])
        mesh["pipeline"], mesh["data"] = stages, mesh["data"] // stages
        _schedule(random, mesh)


def _uneven(random: Random, drawn: Drawn) -> None:
    """A pipeline whose stages are stated one by one, a few layers moved from one to another."""
    _pipeline(random, drawn)
    mesh = drawn["parallelism"]
    count = mesh["pipeline"] * mesh.get("interleave", 1)
    if count > 1:
        listed = as_even(_depth(drawn["model"]), count)
        giver, taker = random.sample(range(len(listed)), 2) if len(listed) > 1 else (0, 0)
        moved = random.randint(0, max(0, listed[giver] - 1)) if listed else 0
        moved = min(moved, 2)
        listed[giver] -= moved
        listed[taker] += moved
        mesh["stages"] = listed


def _depth(model: str) -> int:
    """Layers of a model of the library."""
    document = yaml.safe_load(default_library().path("model", model).read_text("utf-8"))
    return sum(group["repeat"] for group in document["layers"])


def _offload(random: Random, drawn: Drawn) -> None:
    """Something on the host; what gathers from there shards weights."""
    kinds: tuple[Any, ...] = (
        ["optimizer"],
        ["activations"],
        ["weights"],
        ["optimizer", "activations"],
        {"activations": 2},
    )
    drawn["parallelism"]["offload"] = random.choice(kinds)


def _drives(random: Random, drawn: Drawn) -> None:
    drawn["parallelism"]["offload"] = {"optimizer": "nvme"}
    drawn["cluster"]["host"] = {**HOST, "nvme": DRIVES}


def _adapters(random: Random, drawn: Drawn) -> None:
    """LoRA on some matrices, of one rank or of one each; what is frozen as wide as the rest, or quantised."""
    targets = random.sample(PARTS, random.choice((1, 2, 4, 7)))
    ranks: tuple[Any, ...] = (8, 16, {target: random.choice((4, 16)) for target in targets})
    rank = random.choice(ranks)
    drawn["train"] = {"lora": {"rank": rank, **({} if isinstance(rank, dict) else {"targets": targets})}}
    drawn["precision"] = random.choice(ADAPTED)


def _frozen(random: Random, drawn: Drawn) -> None:
    drawn["train"] = {"only": random.choice((["head"], ["embedding"], ["head", "embedding"]))}


def _encoder(random: Random, drawn: Drawn) -> None:
    """A source that is read beside the text; axes that would cut the two sides stay whole."""
    mesh = drawn["parallelism"]
    devices = drawn["cluster"]["devices"]
    zero = random.choice((0, 1, 2, 3)) if devices > 1 else 0
    drawn["parallelism"] = {"data": devices, "tensor": 1, "pipeline": 1, "context": 1, "zero": zero}
    if zero == 3:
        drawn["parallelism"]["reshard"] = mesh.get("reshard", True)
    drawn["run"]["seq_len"] = random.choice((114, 128))
    if drawn["model"].startswith("t5"):
        drawn["run"]["source_len"] = 512
    drawn["run"]["global_batch"] = devices * drawn["run"]["micro_batch"] * random.choice((1, 2))
    if random.random() < 0.7:
        drawn["kernels"] = {"attention": "eager"}


def _pictures(random: Random, drawn: Drawn) -> None:
    """Images in place of tokens."""
    _encoder(random, drawn)
    drawn["run"] = {"images": "1000000 images", **{key: drawn["run"][key] for key in ("micro_batch", "global_batch")}}
    drawn.pop("kernels", None)


def _narrow(random: Random, drawn: Drawn) -> None:
    drawn["precision"] = random.choice(NARROW)
    drawn["accelerator"] = random.choice(("h100-sxm", "b200"))


def _format(random: Random, drawn: Drawn) -> None:
    drawn["precision"] = random.choice(names("precision"))


def _recompute(random: Random, drawn: Drawn) -> None:
    policies: tuple[Any, ...] = (
        *("square_root", "selective", "full", {"every": 2}, {"layers": 2}, {"segment": 2}, {"components": ["mlp"]}),
        *({"components": ["norm", "activation"]}, {"components": ["core"]}, {"keep": ["matmul", "attention"]}),
        {"keep": ["matmul"], "matmuls": "every_second"},
    )
    drawn["recompute"] = random.choice(policies)


def _kernels(random: Random, drawn: Drawn) -> None:
    drawn["kernels"] = {"attention": random.choice(ATTENTION)}
    if random.random() < 0.5:
        drawn["kernels"]["loss"] = random.choice(("unfused", "fused", "chunked"))


def _service(random: Random, drawn: Drawn) -> None:
    """A plan that answers: no optimizer, no batch."""
    tensor, pipeline = random.choice((1, 2, 4, 8)), random.choice((1, 1, 2))
    drawn["parallelism"] = {"tensor": tensor, "pipeline": pipeline}
    drawn["cluster"]["devices"] = tensor * pipeline * random.choice((1, 2))
    drawn["serve"] = {"prompt": "1000 tokens", "output": "200 tokens", "concurrency": random.choice((1, 8, 64))}
    drawn["precision"] = random.choice(("bf16-true", "bf16-pure", "fp16-pure"))
    for key in ("run", "optimizer", "recompute"):
        drawn.pop(key)


def _of_library(random: Random, drawn: Drawn) -> None:
    """A plan of the library in the drawn layout and on the drawn stack, the rest as its file says."""
    document = yaml.safe_load(random.choice(PLANS).read_text("utf-8"))
    kept = {key: document[key] for key in ("model", "precision", "kernels", "recompute") if key in document}
    kept["model"] = {**kept["model"], "expect": []} if isinstance(kept["model"], dict) else kept["model"]
    if "serve" in document:
        _service(random, drawn)
        kept["serve"] = document["serve"]
    elif "images" in document["run"]:
        _pictures(random, drawn)
    elif "source_len" in document["run"]:
        drawn["model"] = document["model"]
        _encoder(random, drawn)
    else:
        kept["optimizer"] = document["optimizer"]
        drawn["run"]["seq_len"] = min(document["run"]["seq_len"], 4096)
    drawn |= {**kept, "accelerator": document["accelerator"]}


KINDS: Mapping[str, tuple[tuple[str, ...], Change]] = {
    "dense": (DENSE, _nothing),
    "experts": (EXPERTS, _experts),
    "latent": (LATENT, _experts),
    "windows and recurrences": (LONG_AND_SHORT, _nothing),
    "pipelines": (ANY, _pipeline),
    "uneven stages": (ANY, _uneven),
    "offload": (ANY, _offload),
    "drives": (DENSE, _drives),
    "adapters": (ANY, _adapters),
    "frozen parts": (ANY, _frozen),
    "encoders": (ENCODERS, _encoder),
    "images": (PICTURES, _pictures),
    "fp8 and fp4": (ANY, _narrow),
    "formats": (ANY, _format),
    "recompute": (ANY, _recompute),
    "kernels": (ANY, _kernels),
    "services": (ANY, _service),
    "library": (DENSE, _of_library),
}


# --- spaces ---


def drawn_values(random: Random, plan: Plan) -> Over:
    """Values of each key of the layout: the plan's own, and further ones of two or three keys."""
    if plan.serve is not None:
        return {key: _few(random, plan, key, 2) for key in SERVED[:3]}
    mesh = plan.parallelism
    sizes = {f"parallelism.{axis}": getattr(mesh, axis) for axis in AXES}
    own = {**sizes, "recompute": policy_value(plan.recompute), "run.micro_batch": plan.run.micro_batch}
    wide = set(random.sample(WIDENED, random.choice((2, 3, 3, 4))))
    over = {key: [value, *(_few(random, plan, key, 2) if key in wide else ())] for key, value in own.items()}
    over |= _tied(random, plan, over)
    return {key: _unique(listed) for key, listed in over.items()}


AXES = ("tensor", "context", "expert", "pipeline", "interleave", "zero", "replicate")
WIDENED = (*(f"parallelism.{axis}" for axis in AXES), "recompute", "run.micro_batch", "run.micro_batch")


def _tied(random: Random, plan: Plan, over: Over) -> Over:
    """Values of keys that have an effect beside others alone: each also left out, for layouts without it."""
    mesh = plan.parallelism
    stated = {True: True, "all": True, "none": False}.get(mesh.reshard, mesh.reshard)
    offload = next((one for one in VALUES["parallelism.offload"](plan)[2:]), None)
    offload = offload or (["activations"] if "activations" in mesh.offload else None)
    schedules = [mesh.schedule or "1f1b", *random.sample(tuple(PIPELINES), 2)]
    pipelines, exchange = over["parallelism.pipeline"], getattr(mesh, "context_exchange", None)
    return {
        "parallelism.sequence": ["off", mesh.sequence, random.choice(("off", "save_gathered", "regather"))],
        "parallelism.context_exchange": [
            None,
            *(
                [exchange, random.choice(("all_gather", "ring", "all_to_all"))]
                if max(over["parallelism.context"]) > 1
                else []
            ),
        ],
        "parallelism.schedule": [None, *(schedules if max(pipelines) > 1 else [])],
        "parallelism.reshard": [
            None,
            *([stated, random.choice((True, "layers", False))] if 3 in over["parallelism.zero"] else []),
        ],
        "parallelism.offload": [offload, *([None] if random.random() < 0.3 else [])],
    }


def _few(random: Random, plan: Plan, key: str, count: int) -> list[Any]:
    """So many values that a search would try, the small ones more often."""
    listed = list(VALUES[key](plan))
    return random.sample(listed[:8], min(count, len(listed[:8])))


def _unique(listed: list[Any]) -> list[Any]:
    """The values, each once; a key that may be left out is so beside its values."""
    return [value for place, value in enumerate(listed) if value not in listed[:place] and value != ""]
