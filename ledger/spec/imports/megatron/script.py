"""Megatron-LM's arguments, in a shell script or a file of arguments -> a model spec, and a plan around it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.spec.imports.megatron.arguments import (
    ALIASES,
    NUMBER,
    REFUSED,
    SPEAKS_OF_SIZES,
    SWITCH,
    UNDERSTOOD,
    WHOLE,
)
from ledger.spec.imports.megatron.effects import KNOWN, UNRELATED, WHY, WITHOUT_EFFECT
from ledger.spec.imports.megatron.model import layer_marks, model
from ledger.spec.imports.megatron.plan import MESH, devices_of_copy, plan, stated_devices
from ledger.spec.imports.megatron.shell import Argument, arguments
from ledger.spec.imports.parts import BY_HAND, DEEPEST, LARGEST, ImportedSpec, suggestion
from ledger.spec.imports.text import model_text, plan_text
from ledger.spec.places import multiples
from ledger.spec.problems import Location, Problem, SpecError

Values = Mapping[str, Any]
NEEDED = ("num-layers", "hidden-size", "num-attention-heads", "max-position-embeddings")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "normalization": ("LayerNorm", "RMSNorm"),
    "position-embedding-type": ("learned_absolute", "rope", "none"),
    "softmax-type": ("vanilla", "learnable"),
    "moe-router-score-function": ("softmax", "sigmoid"),
    "moe-router-dtype": ("fp32",),
    "recompute-granularity": ("full", "selective"),
    "recompute-method": ("uniform", "block"),
    "fp8-recipe": ("delayed", "tensorwise", "blockwise", "mxfp8"),
    "optimizer": ("adam", "sgd"),
    "transformer-impl": ("local", "transformer_engine"),
    "cross-entropy-fusion-impl": ("native", "te"),
    "attention-backend": ("flash", "fused", "unfused", "local", "auto"),
    "cp-comm-type": ("p2p", "a2a", "allgather"),
}
WINDOW = re.compile(r"\(?\s*[0-9]{1,9}\s*,\s*-?[0-9]{1,9}\s*\)?")
MOST = {"num-layers": DEEPEST, "train-iters": 10**12, "train-samples": 10**15}
DIVISORS = frozenset(
    """
    num-layers hidden-size num-attention-heads kv-channels num-query-groups max-position-embeddings seq-length
    make-vocab-size-divisible-by num-experts moe-router-topk tensor-model-parallel-size pipeline-model-parallel-size
    context-parallel-size expert-model-parallel-size num-layers-per-virtual-pipeline-stage micro-batch-size
    global-batch-size recompute-num-layers nnodes nproc-per-node
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)


@dataclass(frozen=True)
class ParsedScript:
    """The values of all understood arguments, where each that was given stands, and the script's variables."""

    values: Values
    places: Mapping[str, Location]
    variables: Mapping[str, str]
    title: str
    file: str

    def where(self, name: str) -> Location:
        """The place of an argument; the file's where it is not given."""
        return self.places.get(name, Location(self.file))


def import_script(text: str, file: str, *, as_plan: bool = False, devices: int = 0) -> ImportedSpec:
    """The model, or the plan, that a script's arguments describe, and what is not in it; raises SpecError.

    `devices`: how many run it, where the script does not say.
    """
    given, variables = arguments(text, file)
    latest = {ALIASES.get(argument.name, argument.name): argument for argument in given}
    problems = list(_problems(latest, file))
    if problems:
        raise SpecError(problems)
    values = {
        name: _value(latest[name], kind) if name in latest else default for name, (kind, default) in UNDERSTOOD.items()
    }
    title = Path(file).stem
    script = ParsedScript(values, {name: argument.where for name, argument in latest.items()}, variables, title, file)
    conflicts = list(_conflicts(script))
    if conflicts:
        raise SpecError(conflicts)
    shape = model(script.values, title)
    twice = tuple(_given_twice(given))
    if not as_plan:
        return ImportedSpec(model_text({"spec": "ledger/1", **shape}), twice)
    made = plan_text(*plan(script.values, shape, variables, title, devices))
    return ImportedSpec(made, (*twice, *_not_carried(latest), *_taken_otherwise(script, devices)))


def _given_twice(given: Iterable[Argument]) -> Iterator[Problem]:
    """Arguments that are understood and have several values, of which the last holds."""
    first: dict[str, Argument] = {}
    for argument in given:
        name = ALIASES.get(argument.name, argument.name)
        before = first.setdefault(name, argument)
        if name in UNDERSTOOD and before.value != argument.value:
            message = f"`--{name}` was `{before.value}` in line {before.where.line}; this one holds: `{argument.value}`"
            yield Problem(argument.where, message, "the last of a command holds; take away what is of another command")


def _not_carried(given: Mapping[str, Argument]) -> Iterator[Problem]:
    """Every argument that may change a total and is not in the plan, with its place."""
    for name, argument in given.items():
        unrelated = name in WITHOUT_EFFECT or name.removeprefix("no-").startswith(UNRELATED)
        if name not in UNDERSTOOD and not unrelated:
            yield Problem(argument.where, f"`--{name}` is not carried over", WHY.get(name, BY_HAND))


def _taken_otherwise(script: ParsedScript, devices: int) -> Iterator[Problem]:
    """Arguments that Megatron-LM itself does not heed, or that the plan takes otherwise."""
    values = script.values
    known, replica = devices or stated_devices(values, script.variables), devices_of_copy(values)
    if known % replica:
        message = f"tensor x pipeline x context = {replica}, which does not divide {known} devices: the plan has others"
        key = next((name for name in MESH if name in script.places), MESH[0])
        yield Problem(script.where(key), message, multiples(known, replica))
    if values["sequence-parallel"] and values["tensor-model-parallel-size"] == 1:
        message = "`--sequence-parallel` without tensor parallelism: Megatron-LM switches it off, and so does the plan"
        yield Problem(script.places["sequence-parallel"], message, "`--tensor-model-parallel-size` of 2 or more")


def _problems(given: Mapping[str, Argument], file: str) -> Iterator[Problem]:
    """Arguments that are missing, not understood, or hold what theirs cannot."""
    missing = [f"--{name}" for name in NEEDED if name not in given]
    if missing:
        message = f"no {', '.join(missing)}"
        yield Problem(Location(file), message, "a script or a file with the arguments of Megatron-LM's pretrain_gpt.py")
    for name, argument in given.items():
        if name in REFUSED:
            yield Problem(argument.where, f"`--{name}` asks for {REFUSED[name]}", "write the model spec by hand")
        elif name in UNDERSTOOD:
            yield from _misfits(argument, UNDERSTOOD[name][0])
        elif name not in KNOWN and any(word in f"{name}-" for word in SPEAKS_OF_SIZES):
            meant = suggestion(name, UNDERSTOOD, 0.8, "--")
            help_text = f"{meant}remove it where it shapes neither model nor layout; else write the spec by hand"
            yield Problem(argument.where, f"`--{name}` is no argument that is understood", help_text)


def _misfits(argument: Argument, kind: str) -> Iterator[Problem]:
    if kind == SWITCH:
        return
    fits = {WHOLE: r"[0-9]{1,15}", NUMBER: r"[0-9]{1,15}(\.[0-9]*)?([eE][+-]?[0-9]{1,2})?|\.[0-9]+"}.get(
        kind, r"[^$`]+"
    )
    if not re.fullmatch(fits, argument.value):
        message = f"`--{argument.name}` is `{' '.join(argument.values)}`"
        unset = "$" in argument.value
        yield Problem(
            argument.where,
            message,
            "the script does not set this variable, or branches set it to several values"
            if unset
            else f"{kind} is due",
        )
    elif argument.name in CHOICES and argument.value not in CHOICES[argument.name]:
        yield Problem(
            argument.where,
            f"`--{argument.name}` is `{argument.value}`",
            f"understood is {', '.join(CHOICES[argument.name])}",
        )
    elif kind == WHOLE and int(argument.value) > MOST.get(argument.name, LARGEST):
        yield Problem(
            argument.where, f"`--{argument.name}` is `{argument.value}`", f"at most {MOST.get(argument.name, LARGEST)}"
        )
    elif kind == WHOLE and argument.name in DIVISORS and not int(argument.value):
        yield Problem(argument.where, f"`--{argument.name}` is `{argument.value}`", "at least 1")


def _value(argument: Argument, kind: str) -> Any:
    if kind == SWITCH:
        return True
    return (
        int(argument.value) if kind == WHOLE else float(argument.value) if kind == NUMBER else " ".join(argument.values)
    )


def _marks_fit(frequency: str, layers: int) -> bool:
    """Whether a frequency says of every layer whether it has experts."""
    if re.fullmatch(r"[0-9]{1,9}", frequency):
        return int(frequency) > 0
    try:
        return len(layer_marks(frequency)) == layers
    except (ValueError, RecursionError):
        return False


def _conflicts(script: ParsedScript) -> Iterator[Problem]:
    """Arguments that are each possible, and together leave something open."""
    values, where = script.values, script.where
    if not (values["vocab-size"] or values["padded-vocab-size"]):
        yield Problem(Location(script.file), "no --vocab-size", "add `--vocab-size N`, the rows of your tokenizer")
    if values["bf16"] and values["fp16"]:
        yield Problem(where("fp16"), "both `--bf16` and `--fp16`", "one of them: Megatron-LM refuses both")
    frequency = values["moe-layer-freq"]
    if not _marks_fit(frequency, values["num-layers"]):
        message = f"`--moe-layer-freq` is `{frequency}`, for {values['num-layers']} layers"
        yield Problem(where("moe-layer-freq"), message, "a whole number, or a list such as ([0]*3+[1]*58): one a layer")
    chunk, pipeline = values["num-layers-per-virtual-pipeline-stage"], values["pipeline-model-parallel-size"]
    if chunk and values["num-layers"] % (pipeline * chunk):
        message = f"{values['num-layers']} layers do not split into chunks of {chunk} on {pipeline} stages"
        yield Problem(where("num-layers-per-virtual-pipeline-stage"), message, "a divisor of the layers of a stage")
    for name in ("hidden-dropout", "attention-dropout", "rotary-percent"):
        if not 0 <= values[name] <= 1:
            yield Problem(where(name), f"`--{name}` is `{values[name]:g}`", "a number from 0 to 1")
    yield from _attention_conflicts(script)


def _attention_conflicts(script: ParsedScript) -> Iterator[Problem]:
    """Those of attention."""
    values, where = script.values, script.where
    window = values["window-size"]
    if window is not None and not WINDOW.fullmatch(window):
        yield Problem(where("window-size"), f"`--window-size` is `{window}`", "two whole numbers: (4095, 0)")
    if values["multi-latent-attention"] and not values["qk-layernorm"]:
        message = "latent attention without `--qk-layernorm` has no norms of its latents"
        yield Problem(where("multi-latent-attention"), message, "add `--qk-layernorm`, as DeepSeek's models have it")
    if values["kv-channels"] is None and values["hidden-size"] % values["num-attention-heads"]:
        message = f"a width of {values['hidden-size']} is no multiple of {values['num-attention-heads']} heads"
        yield Problem(where("num-attention-heads"), message, "or state `--kv-channels`")
