"""Rules on settings that a plan states and nothing heeds: they are legal, and told as warnings."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.near import nearest
from ledger.spec.optimizer import WEIGHT_KINDS, Optimizer
from ledger.spec.places import Places
from ledger.spec.plan import Kernels, Model, Parallelism, Precision, Serve, Train
from ledger.spec.problems import Problem

# Parts of accounts that a recipe's `keep` may name, in any model.
OPERATIONS = (
    "attention",
    "down",
    "gate",
    "gate_up",
    "head",
    "k",
    "kv",
    "kv_latent",
    "logits",
    "mlp",
    "out",
    "projection",
    "q",
    "q_latent",
    "qkv",
    "router",
    "shared_down",
    "shared_gate",
    "shared_score",
    "shared_up",
    "up",
    "v",
)

OF_TRAINING = (
    "kernels.loss",
    "kernels.loss_chunks",
    "kernels.optimizer",
    "kernels.residual",
    "precision.weights.adapters",
    "assumptions.mfu",
    "assumptions.power_usage_effectiveness",
)
OF_SERVING = ("precision.cache",)


def what_runs_heeds_it(serve: Serve | None, at: Places) -> Iterator[Problem]:
    """A loss and an update are of training, and a cache of serving."""
    why = "this plan serves" if serve else "this plan trains"
    for path in OF_TRAINING if serve else OF_SERVING:
        if at.states(path):
            yield idle(path, why, "leave it out", at)


def kernels_find_their_parts(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """A kernel serves a part that some layer has."""
    if model.bare:
        return
    kinds = {group.mlp.kind for group in model.groups}
    rotates = any(group.attention.rotary or group.attention.rope_head_dim for group in model.groups)
    why = {
        "kernels.experts": "" if "experts" in kinds else "no layer of the model has experts",
        "kernels.scan": "" if any(group.attention.recurrent for group in model.groups) else "no layer scans a state",
        "kernels.attention": "no layer of the model has attention" if model.of_blocks else "",
        "kernels.rotary": "" if rotates else "no layer of the model rotates queries and keys",
        "kernels.activation": "no layer of the model has a gate"
        if kernels.activation == "fused_gated" and kinds == {"plain"}
        else "",
    }
    for path, reason in why.items():
        if at.states(path) and reason:
            yield idle(path, reason, "leave it out", at)


def counts_run_no_kernels(model: Model, at: Places) -> Iterator[Problem]:
    """Of a bare parameter count, only its states are known."""
    for path in ("kernels", "recompute"):
        if model.bare and at.states(path):
            yield idle(path, "of the model only a parameter count is known", "a model with layers, or leave it out", at)


def reductions_have_partners(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """One replica has nobody to sum its gradients with."""
    for path in ("parallelism.reduce", "parallelism.bucket"):
        if at.states(path) and parallelism.data * parallelism.context == 1:
            yield idle(path, "data x context = 1: no gradients are reduced", "leave it out", at)


def groups_have_others(model: Model, at: Places) -> Iterator[Problem]:
    """One group of layers takes turns with nobody."""
    for path in ("model.alternating", "model.order"):
        if at.states(path) and model.order and len(model.groups) == 1:
            yield idle(path, "the model has one group of layers", "leave it out", at)


def others_are_left(optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """A rule for the other weights has some to update."""
    rule, path, left = optimizer, "optimizer", set(WEIGHT_KINDS)
    while rule.otherwise is not None:
        left, path = left - set(rule.weights), f"{path}.otherwise"
        if not left and at.states(f"{path}.name"):
            name = optimizer.title or optimizer.name
            message = f"`{path}` has no effect: {name} updates every kind of weight"
            yield Problem(at(f"{path}.name"), message, f"`weights:` some of {', '.join(WEIGHT_KINDS)}")
            return
        rule = rule.otherwise


def kept_names_exist(model: Model, precision: Precision, at: Places) -> Iterator[Problem]:
    """What a recipe leaves alone, or quantises twice, is a part of some model, or a group of layers of this one."""
    recipe = precision.matmul
    if recipe is None or model.bare:
        return
    steps = [step.name for group in model.groups for custom in group.written.values() for step in custom.steps]
    names = [*OPERATIONS, *(group.name for group in model.groups), *steps]
    for field, given in (("keep", recipe.keep), ("quantised_again", recipe.quantised_again)):
        path = f"precision.matmul.{field}"
        for name in given if at.states(path) else ():
            if any(part not in names for part in name.split("/")):
                message = f"`{name}` in `{field}` has no effect: no matmul of the model has this name"
                yield Problem(at(path), message, nearest(name, names))


def adapters_are_narrow(model: Model, train: Train, at: Places) -> Iterator[Problem]:
    """An adapter as wide as its matrix saves nothing."""
    rank = train.lora.largest if train.lora else 0
    if rank >= model.d_model and not model.bare:
        message = f"rank = {rank} with d_model = {model.d_model}: adapters hold more than the matrices they adapt"
        yield Problem(at("train.lora.rank"), message, "ranks in use are 4 to 256")


def idle(path: str, why: str, instead: str, at: Places) -> Problem:
    """That nothing heeds what stands at a path, and why."""
    return Problem(at(path), f"`{path}` has no effect: {why}", instead)
