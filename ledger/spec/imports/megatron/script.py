"""Megatron-LM's arguments, in a shell script or a file of arguments -> a model spec, and a plan around it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.spec.expressions import ExpressionError, evaluate
from ledger.spec.imports.megatron.plan import MESH, devices_of_copy, layer_marks, model, plan, stated_devices
from ledger.spec.imports.text import BY_HAND, DEEPEST, LARGEST, ImportedSpec, model_text, plan_text, suggestion
from ledger.spec.paths import multiples
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
LARGEST_VALUES = {"num-layers": DEEPEST, "train-iters": 10**12, "train-samples": 10**15}
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
    parsed, variables = arguments(text, file)
    latest = {ALIASES.get(argument.name, argument.name): argument for argument in parsed}
    problems = list(_argument_problems(latest, file))
    if problems:
        raise SpecError(problems)
    values: dict[str, Any] = {}
    for name, (kind, default) in UNDERSTOOD.items():
        values[name] = _read_value(latest[name], kind) if name in latest else default
    title = Path(file).stem
    script = ParsedScript(values, {name: argument.where for name, argument in latest.items()}, variables, title, file)
    conflicts = list(_conflicts(script))
    if conflicts:
        raise SpecError(conflicts)
    shape = model(script.values, title)
    twice = tuple(_repeated_arguments(parsed))
    if not as_plan:
        return ImportedSpec(model_text({"spec": "ledger/1", **shape}), twice)
    plan_yaml = plan_text(*plan(script.values, shape, variables, title, devices))
    return ImportedSpec(plan_yaml, (*twice, *_arguments_left_out(latest), *_reinterpreted_arguments(script, devices)))


def _repeated_arguments(parsed: Iterable[Argument]) -> Iterator[Problem]:
    """Arguments that are understood and have several values, of which the last holds."""
    first: dict[str, Argument] = {}
    for argument in parsed:
        name = ALIASES.get(argument.name, argument.name)
        old = first.setdefault(name, argument)
        if name in UNDERSTOOD and old.value != argument.value:
            message = f"`--{name}` was `{old.value}` in line {old.where.line}; this one holds: `{argument.value}`"
            yield Problem(argument.where, message, "the last of a command holds; take away what is of another command")


def _arguments_left_out(latest: Mapping[str, Argument]) -> Iterator[Problem]:
    """Every argument that may change a total and is not in the plan, with its place."""
    for name, argument in latest.items():
        unrelated = name in WITHOUT_EFFECT or name.removeprefix("no-").startswith(UNRELATED)
        if name not in UNDERSTOOD and not unrelated:
            yield Problem(argument.where, f"`--{name}` is not carried over", REASONS.get(name, BY_HAND))


def _reinterpreted_arguments(script: ParsedScript, devices: int) -> Iterator[Problem]:
    """Arguments that Megatron-LM itself ignores, or that the plan has other values for."""
    values = script.values
    count, replica = devices or stated_devices(values, script.variables), devices_of_copy(values)
    if count % replica:
        message = f"tensor x pipeline x context = {replica}, which does not divide {count} devices: the plan has others"
        key = next((name for name in MESH if name in script.places), MESH[0])
        yield Problem(script.where(key), message, multiples(count, replica))
    if values["sequence-parallel"] and values["tensor-model-parallel-size"] == 1:
        message = "`--sequence-parallel` without tensor parallelism: Megatron-LM switches it off, and so does the plan"
        yield Problem(script.places["sequence-parallel"], message, "`--tensor-model-parallel-size` of 2 or more")


def _argument_problems(latest: Mapping[str, Argument], file: str) -> Iterator[Problem]:
    """Arguments that are missing, not understood, or have a value that theirs cannot be."""
    missing = [f"--{name}" for name in NEEDED if name not in latest]
    if missing:
        message = f"no {', '.join(missing)}"
        yield Problem(Location(file), message, "a script or a file with the arguments of Megatron-LM's pretrain_gpt.py")
    for name, argument in latest.items():
        if name in REFUSED:
            yield Problem(argument.where, f"`--{name}` asks for {REFUSED[name]}", "write the model spec by hand")
        elif name in UNDERSTOOD:
            yield from _misfits(argument, UNDERSTOOD[name][0])
        elif name not in IRRELEVANT_ARGUMENTS and any(word in f"{name}-" for word in SPEAKS_OF_SIZES):
            meant = suggestion(name, UNDERSTOOD, 0.8, "--")
            help_text = f"{meant}remove it where it shapes neither model nor layout; else write the spec by hand"
            yield Problem(argument.where, f"`--{name}` is no argument that is understood", help_text)


def _misfits(argument: Argument, kind: str) -> Iterator[Problem]:
    if kind == SWITCH:
        return
    name, text, help_text = argument.name, argument.value, ""
    forms = {WHOLE: r"[0-9]{1,15}", NUMBER: r"[0-9]{1,15}(\.[0-9]*)?([eE][+-]?[0-9]{1,2})?|\.[0-9]+"}
    if not re.fullmatch(forms.get(kind, r"[^$`]+"), text):
        unset = "the script does not set this variable, or branches set it to several values"
        text, help_text = " ".join(argument.values), unset if "$" in text else f"{kind} is due"
    elif name in CHOICES and text not in CHOICES[name]:
        help_text = f"understood is {', '.join(CHOICES[name])}"
    elif kind == WHOLE and int(text) > LARGEST_VALUES.get(name, LARGEST):
        help_text = f"at most {LARGEST_VALUES.get(name, LARGEST)}"
    elif kind == WHOLE and name in DIVISORS and not int(text):
        help_text = "at least 1"
    if help_text:
        yield Problem(argument.where, f"`--{name}` is `{text}`", help_text)


def _read_value(argument: Argument, kind: str) -> Any:
    if kind == SWITCH:
        return True
    if kind == WHOLE:
        return int(argument.value)
    return float(argument.value) if kind == NUMBER else " ".join(argument.values)


def _marks_every_layer(frequency: str, layers: int) -> bool:
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
    if not _marks_every_layer(frequency, values["num-layers"]):
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
    """Arguments of attention that together leave something open."""
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


# --- arguments that are understood or refused ---

WHOLE, NUMBER, TEXT, SWITCH = "a whole number", "a number", "text", "no value"

# What each understood argument takes; `None` is the default of those that have none.
UNDERSTOOD: Mapping[str, tuple[str, object]] = {
    # sizes
    "num-layers": (WHOLE, None),
    "hidden-size": (WHOLE, None),
    "ffn-hidden-size": (WHOLE, None),
    "num-attention-heads": (WHOLE, None),
    "kv-channels": (WHOLE, None),
    "group-query-attention": (SWITCH, False),
    "num-query-groups": (WHOLE, 1),
    "max-position-embeddings": (WHOLE, None),
    "seq-length": (WHOLE, None),
    "vocab-size": (WHOLE, None),
    "padded-vocab-size": (WHOLE, None),
    "make-vocab-size-divisible-by": (WHOLE, 128),
    "untie-embeddings-and-output-weights": (SWITCH, False),
    # kinds of layers
    "normalization": (TEXT, "LayerNorm"),
    "swiglu": (SWITCH, False),
    "openai-gelu": (SWITCH, False),
    "no-bias-gelu-fusion": (SWITCH, False),
    "disable-bias-linear": (SWITCH, False),
    "add-qkv-bias": (SWITCH, False),
    "qk-layernorm": (SWITCH, False),
    "position-embedding-type": (TEXT, "learned_absolute"),
    "use-rotary-position-embeddings": (SWITCH, False),
    "no-position-embedding": (SWITCH, False),
    "rotary-percent": (NUMBER, 1.0),
    "attention-dropout": (NUMBER, 0.1),
    "hidden-dropout": (NUMBER, 0.1),
    "window-size": (TEXT, None),
    "softmax-type": (TEXT, "vanilla"),
    # latent attention
    "multi-latent-attention": (SWITCH, False),
    "q-lora-rank": (WHOLE, None),
    "kv-lora-rank": (WHOLE, 32),
    "qk-head-dim": (WHOLE, 128),
    "qk-pos-emb-head-dim": (WHOLE, 64),
    "v-head-dim": (WHOLE, 128),
    # experts
    "num-experts": (WHOLE, None),
    "moe-layer-freq": (TEXT, "1"),
    "moe-ffn-hidden-size": (WHOLE, None),
    "moe-router-topk": (WHOLE, 2),
    "moe-router-score-function": (TEXT, "softmax"),
    "moe-router-pre-softmax": (SWITCH, False),
    "moe-router-num-groups": (WHOLE, None),
    "moe-router-dtype": (TEXT, None),
    "moe-shared-expert-intermediate-size": (WHOLE, None),
    "moe-shared-expert-gate": (SWITCH, False),
    "moe-expert-capacity-factor": (NUMBER, None),
    # the run
    "tensor-model-parallel-size": (WHOLE, 1),
    "pipeline-model-parallel-size": (WHOLE, 1),
    "context-parallel-size": (WHOLE, 1),
    "expert-model-parallel-size": (WHOLE, 1),
    "sequence-parallel": (SWITCH, False),
    "num-layers-per-virtual-pipeline-stage": (WHOLE, None),
    "num-virtual-stages-per-pipeline-rank": (WHOLE, None),
    "cp-comm-type": (TEXT, "p2p"),
    "use-distributed-optimizer": (SWITCH, False),
    "micro-batch-size": (WHOLE, None),
    "global-batch-size": (WHOLE, None),
    "train-iters": (WHOLE, None),
    "train-samples": (WHOLE, None),
    "bf16": (SWITCH, False),
    "fp16": (SWITCH, False),
    "fp8-format": (TEXT, None),
    "fp8-recipe": (TEXT, "delayed"),
    "optimizer": (TEXT, "adam"),
    "recompute-activations": (SWITCH, False),
    "recompute-granularity": (TEXT, None),
    "recompute-method": (TEXT, None),
    "recompute-num-layers": (WHOLE, None),
    "transformer-impl": (TEXT, "transformer_engine"),
    "use-flash-attn": (SWITCH, False),
    "attention-backend": (TEXT, "auto"),
    "overlap-grad-reduce": (SWITCH, False),
    "overlap-param-gather": (SWITCH, False),
    "tp-comm-overlap": (SWITCH, False),
    "cross-entropy-loss-fusion": (SWITCH, False),
    "cross-entropy-fusion-impl": (TEXT, "native"),
    "no-rope-fusion": (SWITCH, False),
    "no-bias-swiglu-fusion": (SWITCH, False),
    "nnodes": (WHOLE, None),
    "nproc-per-node": (WHOLE, None),
}
# Other spellings of an argument.
ALIASES: Mapping[str, str] = {"model-parallel-size": "tensor-model-parallel-size"}

# Arguments that make another model than a decoder of the kinds that a model spec has.
REFUSED: Mapping[str, str] = {
    "apply-residual-connection-post-layernorm": "a residual stream of normed values",
    "attention-output-gate": "gated attention",
    "decoder-num-layers": "an encoder",
    "encoder-num-layers": "an encoder",
    "encoder-seq-length": "an encoder",
    "experimental-attention-variant": "another kind of attention",
    "heterogeneous-layers-config-path": "layers described in another file",
    "hybrid-layer-pattern": "layers that are no transformer",
    "hybrid-override-pattern": "layers that are no transformer",
    "hybrid-attention-ratio": "layers that are no transformer",
    "is-hybrid-model": "layers that are no transformer",
    "moe-latent-size": "experts of another width than the stream",
    "mtp-num-layers": "modules that predict further tokens",
    "expert-tensor-parallel-size": "experts cut another way than the rest",
    "qk-l2-norm": "norms without weights",
    "quick-geglu": "another activation",
    "spec": "layers built by a module of your own",
    "squared-relu": "another activation",
    "use-torch-fsdp2": "another way to shard",
    "use-megatron-fsdp": "another way to shard",
    "window-attn-skip-freq": "layers of two kinds of window",
}
# Parts of the names of arguments that may shape a model or its layout.
SPEAKS_OF_SIZES = tuple(
    """
    num- -size hidden layer head -dim rank channels expert moe norm embedding attention rotary rope vocab parallel
    """.split()  # noqa: SIM905 - as above
)

# --- arguments that are in no plan ---

# What is written down, watched, loaded, learned: the beginnings of such arguments' names, `no-` left aside.
UNRELATED = tuple(
    """
    adam- adlr- async-save attention-softmax-in-fp32 auto-detect-ckpt check-for-nan check-weight ckpt- clip-grad
    config-logger data- dataloader decoder-seq-length dist-ckpt distributed-backend distributed-timeout
    embedding-init end-weight-decay eod-mask eval- exit- finetune hysteresis init-method initial-loss-scale
    iterations-to-skip lazy-mpu load local-rank log- loss-scale lr make-vocab-size manual-gc master- merge-file
    min-loss-scale min-lr mmap-bin mock-data nccl- node-rank one-logger override-opt profile rdzv reset- rerun-mode
    save seed sgd-momentum skip-train split start-weight-decay te-rng tensorboard test-data-path tiktoken timing-log
    tokenizer train-data train-sync use-checkpoint use-dist-ckpt use-mcore-models use-rope-scaling
    use-tp-pp-dp-mapping valid-data vocab-file wandb weight-decay
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be two pages
)
# Single arguments without effect, many of whose names speak of sizes all the same.
WITHOUT_EFFECT = frozenset(
    """
    accumulate-allreduce-grads-in-fp32 apply-query-key-layer-scaling layernorm-epsilon log-num-zeros-in-grad
    moe-aux-loss-coeff moe-grouped-gemm moe-per-layer-logging moe-router-bias-update-rate
    moe-router-enable-expert-bias moe-router-group-topk moe-router-load-balancing-type moe-router-topk-limited-devices
    moe-router-topk-scaling-factor moe-use-legacy-grouped-gemm moe-z-loss-coeff norm-epsilon
    num-dataset-builder-threads num-workers rotary-base rotary-interleaved rotary-scaling-factor
    rotary-seq-len-interpolation-factor rope-scaling-factor tokenizer-hf-use-fast
    no-async-tensor-model-parallel-allreduce
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
# Arguments that change memory or time, and no size of the model.
REPORTED_ARGUMENTS = frozenset(
    """
    apply-layernorm-1p bias-dropout-fusion bucket-size ddp-bucket-size ddp-num-buckets distribute-saved-activations
    eval-micro-batch-size masked-softmax-fusion moe-enable-deepep moe-expert-rank-capacity-factor moe-extended-tp
    moe-layer-recompute moe-pad-expert-input-to-capacity moe-permute-fusion moe-router-force-load-balancing
    moe-router-fusion moe-shared-expert-overlap moe-token-dispatcher-type moe-token-drop-policy no-bias-dropout-fusion
    no-masked-softmax-fusion no-persist-layer-norm num-distributed-optimizer-instances overlap-p2p-communication
    no-overlap-p2p-communication rampup-batch-size recompute-modules sequence-parallel-overlap tensorboard-queue-size
    tp-comm-bulk-dgrad tp-comm-bulk-wgrad tp-comm-overlap-ag tp-comm-overlap-rs
    """.split()  # noqa: SIM905 - as a literal, one name a line, these would be a page
)
IRRELEVANT_ARGUMENTS = WITHOUT_EFFECT | REPORTED_ARGUMENTS
REASONS: Mapping[str, str] = {
    "distribute-saved-activations": "what full recomputation keeps is whole on each tensor-parallel rank of a plan",
    "exp-avg-dtype": "`optimizer:` names a file that says what states are kept in",
    "exp-avg-sq-dtype": "`optimizer:` names a file that says what states are kept in",
    "fp8-param-gather": "a plan gathers weights in the dtype they are kept in",
    "main-grads-dtype": "`precision: {base: ..., gradients: ...}` says what gradients are kept in",
    "main-params-dtype": "`precision: {base: ..., master: ...}` says what master weights are kept in",
    "moe-layer-recompute": "`recompute: {components: [mlp]}`",
    "optimizer-cpu-offload": "`parallelism: {offload: [optimizer]}`",
    "rampup-batch-size": "a plan is of the full batch",
    "recompute-modules": "`recompute: {components: [...]}`",
    "use-precision-aware-optimizer": "`optimizer:` names a file that says what states are kept in",
}

# --- parsing of `--name value` arguments in shell scripts and files of arguments ---

# What is not closed within so many characters is not opened: each opening would be looked for to the end of the line.
WORD = re.compile(
    r'(?:"(?:[^"\\]|\\.){0,500}+"|\'[^\']{0,500}+\'|\$\(\(.{0,300}?\)\)|\$\([^)]{0,300}+\)|\$\{[^}]{0,300}+\}|`[^`]{0,300}+`'
    r"|[^\s\"'#]|(?<=\S)#)+|#.*"
)
ASSIGNED = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
ENDS = re.compile(r"[();&|]+|\d*(?:<|>|&>).*")  # of an array or of a command
INSIDE = re.compile(r"(?:^|\s)--\w")  # arguments within quotes: a variable of them, or a command for another shell
ARITHMETIC = re.compile(r"\$\(\((.{0,300}?)\)\)")
LONGEST_VALUE = 20_000  # characters of a word with its variables in place: each may hold two of the one before it
LONGEST_SCRIPT = 200_000  # characters
NAMED = re.compile(r"\$(?:\{(\w{1,300})(?::-([^}]{0,300}+))?\}|(\w+))")
OPENS, CLOSES = ("if", "case", "for", "while", "until", "select"), ("fi", "esac", "done")  # a branch or a loop


@dataclass(frozen=True)
class Argument:
    """One argument: its name with hyphens, the values up to the next one, and where it stands."""

    name: str
    values: tuple[str, ...]
    where: Location

    @property
    def value(self) -> str:
        """Its first value, empty for a switch."""
        return self.values[0] if self.values else ""


def arguments(text: str, file: str) -> tuple[tuple[Argument, ...], Mapping[str, str]]:
    """Every argument in order, and the variables that the script sets; one that it does not set stays as `$NAME`.

    So does one that it sets to several values in branches. Raises SpecError for a script that is too long.
    """
    if len(text) > LONGEST_SCRIPT:
        message = f"a script of more than {LONGEST_SCRIPT:,} characters"
        raise SpecError([Problem(Location(file), message, "give the lines that hold the arguments")])
    variables = _Variables()
    parsed: list[tuple[str, list[str], Location]] = []
    takes_values, line = False, 0  # whether a word belongs to the last argument
    for word, where in _words(text, file):
        begins, line = where.line != line, where.line
        assigned = ASSIGNED.fullmatch(word)
        if word in (*OPENS, *CLOSES) and (begins or not takes_values):
            variables.depth = max(0, variables.depth + (1 if word in OPENS else -1))
            takes_values = False
        elif assigned:
            variables.assign(assigned[1], _substitute_variables(assigned[3], variables), appended=bool(assigned[2]))
            takes_values = False
        elif word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            values = [_substitute_variables(value, variables)] if equals else []
            parsed.append((name.replace("_", "-"), values, where))
            takes_values = True
        elif ENDS.fullmatch(word):
            takes_values = False
        elif takes_values:
            parsed[-1][1].append(_substitute_variables(word, variables))
    return tuple(Argument(name, tuple(values), where) for name, values, where in parsed), variables


class _Variables(dict[str, str]):
    """Variables with the values that a script gives them; one that branches give different values has none."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0  # of branches around what is read
        self.unsure: set[str] = set()

    def assign(self, name: str, value: str, *, appended: bool) -> None:
        """Sets a variable, or appends to it; one that is too long has no value either."""
        if appended:
            value = self.get(name, "") + value
        elif not self.depth:
            self.unsure.discard(name)
        if len(value) > LONGEST_VALUE or (self.depth and self.get(name, value) != value):
            self.unsure.add(name)
            self.pop(name, None)
        if name not in self.unsure:
            self[name] = value


def _words(text: str, file: str) -> Iterator[tuple[str, Location]]:
    """Words with their places: what opens and closes an array or ends a command stands apart, comments are left out."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() in ('"', "'"):  # the end of a text over several lines
            yield ")", Location(file, number)
        for match in WORD.finditer(line):
            if match[0].startswith("#"):
                break
            if match[0] != "\\":
                for word, column in _without_brackets(match[0], match.start() + 1):
                    yield word, Location(file, number, column)


def _without_brackets(word: str, column: int) -> Iterator[tuple[str, int]]:
    """A word without the brackets of an array and the end of a command that it is written together with."""
    assigned = ASSIGNED.fullmatch(word)
    if assigned and assigned[3].startswith("("):
        yield "(", column
        word, column = assigned[3][1:], column + assigned.start(3) + 1
    quoted = assigned[3] if assigned else word
    if quoted[:1] in ('"', "'") and INSIDE.search(quoted.strip("\"'")):
        start = column + len(word) - len(quoted) + 1
        yield from ((match[0], start + match.start()) for match in WORD.finditer(quoted.strip("\"'")))
        yield ")", start
        return
    bare = word.rstrip(";&|")
    closing = min(bare.count(")") - bare.count("("), len(bare) - len(bare.rstrip(")")))
    bare = bare[:-closing] if closing > 0 else bare
    if bare:
        yield bare, column
    if bare != word:
        yield ")", column + len(bare)


def _substitute_variables(word: str, variables: Mapping[str, str]) -> str:
    """A word without quotes, variables and sums in place; one that they would make too long stays as it is written."""
    text = word.strip("\"'").strip("\"'")
    if len(text) > LONGEST_VALUE:
        return text
    put_in = sum(len(variables.get(match[1] or match[3], "")) for match in NAMED.finditer(text))
    if len(text) + put_in > LONGEST_VALUE:
        return text
    text = NAMED.sub(lambda match: variables.get(match[1] or match[3], match[2] or match[0]), text)
    return ARITHMETIC.sub(lambda match: _evaluate_sum(match[1], variables) or match[0], text)


def _evaluate_sum(text: str, variables: Mapping[str, str]) -> str:
    """A sum in shell arithmetic, whose division drops what is left; empty where it cannot be known."""
    if "/" in text and "-" in text:  # of what is negative, dropping is not rounding down
        return ""
    try:
        return str(evaluate(text.replace("/", "//"), lambda name: int(variables[name])))
    except (ExpressionError, KeyError, ValueError):
        return ""
