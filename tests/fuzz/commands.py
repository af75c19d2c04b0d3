"""Which verbs take which kind of input, and what else is typed behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.fuzz import hostile, seeds
from tests.fuzz.mutations import at, mutate_text, places, written

Words = tuple[str, ...]
Typed = Callable[[Random, str], Words]
NAMES = (
    *("memory.peak", "time.step", "parameters", "flops.run", "cost.run", "time.calendar", "mfu", "run.seq_len"),
    *(
        "model.d_model",
        "accelerator.memory",
        "decoder/attention/core",
        "head/output",
        "serve.time_per_token",
        "energy.run",
    ),
)
CONDITIONS = (
    "memory.peak <= 60 GB",
    "time.step < 2 s",
    "fits",
    "mfu >= 1 %",
    "cost.run > +5%",
    "headroom",
    "run.seq_len <= 512",
    "mfu >= 40",
    "time.run <= 3 d",
    "cost.run <= 20000 USD",
    "tokens_per_second >= 1e5 tokens/s",
)
KEYS = (
    "run.micro_batch",
    "run.seq_len",
    "parallelism.tensor",
    "run.tokens",
    "model.d_model",
    "parallelism.zero",
    "recompute",
    "run.global_batch",
    "accelerator.peak.bf16",
    "accelerator.bandwidth",
    "cluster.devices",
    "accelerator.memory",
)
OVERS = (
    "run.micro_batch=1,2",
    "parallelism.zero=1,2,3",
    "parallelism.tensor=1,2",
    "recompute=none,full",
    "run.seq_len=128,256",
    "parallelism.pipeline=1,2",
    "parallelism.context=1,2",
    "parallelism.sequence=off,regather",
    "parallelism.offload=null,[activations]",
    "precision=bf16-mixed",
    "cluster.devices=8,16",
)
VALUES = ("null", "'1'", "2 * 1", "1.0", "1,null", "{every: 2}", "[1]", "true", "1e3", "1,2,3,4,5,6,7,8,9")
FIXED = (
    "parallelism.tensor=2",
    "parallelism.pipeline=1",
    "parallelism.context=1",
    "parallelism.expert=1",
    "parallelism.offload=null",
)
ONE_LAYOUT = tuple(
    word for key in (*FIXED, "parallelism.replicate=null", "parallelism.sequence=off") for word in ("--over", key)
)
KINDS = ("model", "accelerator", "plan", "evidence", "stack", "precision")
SAFE_NAMES = (
    "a.yaml",
    "a b.yaml",
    "é.yaml",
    "x" * 300,
    "-a.yaml",
    "a",
    "a\nb.yaml",
    "\x1b[31m.yaml",
    ".",
    "",
    "out/a.yaml",
    "a\udcff.yaml",
)


def spoilt(random: Random, *sound: str) -> str:
    """One of these, as it is or changed."""
    text = random.choice(sound)
    if random.random() < 0.35:
        return text
    if random.random() < 0.3:
        return str(hostile.value(random))[:50_000]
    return mutate_text(text, random)


def plain(*words: str) -> Typed:
    """The same words for every file, which stands first."""
    return lambda random, file: (file, *words)


def maybe_json(random: Random) -> Words:
    """What programs ask for, half of the time."""
    return ("--json",) if random.random() < 0.5 else ()


def _check(random: Random, file: str) -> Words:
    forms = random.choice(("text", "text", "json", "github", "sarif", "junit"))
    return (file, "--no-search", "--format", forms, *(("--strict",) if random.random() < 0.3 else ()))


def _explain(random: Random, file: str) -> Words:
    if random.random() < 0.1:  # of a number format, and a value in it
        return (
            random.choice(("bf16", "nvfp4", "e8m0")),
            spoilt(random, "0.1", "1e-9", "1/3", "1e999"),
            *maybe_json(random),
        )
    return (file, spoilt(random, *NAMES), *maybe_json(random))


def _show(random: Random, file: str) -> Words:
    account = (spoilt(random, *NAMES),) if random.random() < 0.15 else ()
    return (file, *account, *(("--json",) if random.random() < 0.7 else ()))


def _diff(random: Random, file: str) -> Words:
    pair = ("other.yaml", file) if random.random() < 0.5 else (file, "other.yaml")
    failing = ("--fail-on", spoilt(random, *CONDITIONS)) if random.random() < 0.3 else ()
    return (*pair, "--format", random.choice(("text", "md", "json", "html")), *failing)


def _compare(random: Random, file: str) -> Words:
    return (file, "other.yaml", "--no-search", "--format", "md,json", "--out", "out", *_chosen(random))


def _chosen(random: Random) -> Words:
    return ("--subject-to", spoilt(random, *CONDITIONS)) if random.random() < 0.3 else ()


def _solve(random: Random, file: str) -> Words:
    return (file, "--no-search", "--for", spoilt(random, *KEYS), *_chosen(random), *maybe_json(random))


def _sweep(random: Random, file: str) -> Words:
    return (file, *ONE_LAYOUT, "--over", _axis(random), *_chosen(random), *maybe_json(random))


def _axis(random: Random) -> str:
    """A key with values, some of which are written as no layout has them."""
    over = spoilt(random, *OVERS)
    key, equals, _ = over.partition("=")
    return f"{key}={random.choice(VALUES)}" if equals and random.random() < 0.3 else over


def _report(random: Random, file: str) -> Words:
    return (file, "--no-search", "--format", random.choice(("md,json", "md", "html")), "--out", "out")


def _score(random: Random, file: str) -> Words:
    rows = random.choice((("--rows",), ("--json",), ("--over", "5"), ("--explain", spoilt(random, "tt-1"))))
    return (file, *rows)


def _import(random: Random, file: str) -> Words:
    if random.random() < 0.5 or file.startswith("config"):
        return (file, *maybe_json(random))
    devices = ("--devices", str(random.choice((1, 8, 16, 100, 1024, 0, -1, 10**9)))) if random.random() < 0.5 else ()
    return (file, "--plan", *devices)


def of_change(random: Random) -> Words:
    """What is typed behind `ci`."""
    failing = ("--fail-on", spoilt(random, *CONDITIONS)) if random.random() < 0.3 else ()
    return ("--format", random.choice(("md", "json", "github", "sarif", "junit")), *failing)


# kind -> verb, how often, and what is typed.
VERBS: Mapping[str, tuple[tuple[str, float, Typed], ...]] = {
    "plan": (
        ("check", 240, _check),
        ("show", 80, _show),
        ("explain", 40, _explain),
        ("git-text", 20, plain()),
        ("diff", 10, _diff),
        ("solve", 6, _solve),
        ("compare", 4, _compare),
        ("sweep", 1, _sweep),
        ("report", 6, _report),
        ("verify", 1, plain("--layers", "1")),
    ),
    "suite": (("verify", 1, plain("--quick")),),
    "part": (("check", 10, _check), ("show", 4, _show)),
    "file": (("check", 8, _check), ("show", 2, _show), ("list", 1, lambda random, file: (random.choice(KINDS),))),
    "serve": (
        ("check", 8, _check),
        ("show", 4, _show),
        ("explain", 2, _explain),
        ("report", 1, _report),
        ("solve", 1, _solve),
        ("verify", 0.1, plain("--layers", "1")),
    ),
    "lecture": (("check", 12, _check), ("report", 1, _report)),
    "evidence": (
        ("calibrate", 12, lambda random, file: (file, *random.choice((("--table",), ("--json",), ())))),
        ("check", 2, _check),
        ("score", 1, _score),
    ),
    "record": (
        ("score", 4, lambda random, file: (file, *maybe_json(random))),
        ("calibrate", 1, plain("--table")),
        ("check", 1, _check),
    ),
    "runs": (("score", 1, _score),),
    "serving": (("score", 1, _score),),
    "config": (("import", 1, _import),),
    "megatron": (("import", 1, _import),),
    "torchtitan": (("import", 1, _import),),
}


def setting(random: Random) -> str:
    """An override: a key that plans have or nearly have, and a value that stands there, or none that may."""
    seed = random.choice(seeds.seeds()["plan" if random.random() < 0.7 else "part"])
    path = random.choice([path for path in places(seed.tree) if path])
    key = ".".join(map(str, path))
    if random.random() < 0.1:
        key = random.choice(
            (f"{key}.x", f"{key}.0", key[:-1], ".".join([key] * 300), f".{key}", f"{key}..a", "", "spec", "a" * 5000)
        )
    roll = random.random()
    if roll < 0.4:
        value: Any = hostile.near(at(seed.tree, path), random)
    elif roll < 0.6:
        value = random.choice(seeds.pool("plan").get(path[-1]) or [1])
    else:
        value = hostile.value(random)
    text = value if isinstance(value, str) and random.random() < 0.6 else written(value)
    return f"{key}={text}"[:60_000] if random.random() < 0.98 else key


def words_alone(random: Random) -> tuple[str, Words]:
    """A verb of which the words themselves are the input."""
    verb = random.choice(
        ("explain", "solve", "list", "schema", "init", "calibrate", "show", "sweep", "diff", "import", "units", "score")
    )
    named = {
        "explain": lambda: ("other.yaml", spoilt(random, *NAMES)),
        "solve": lambda: (
            "other.yaml",
            "--no-search",
            "--for",
            spoilt(random, *KEYS),
            "--subject-to",
            spoilt(random, *CONDITIONS),
        ),
        "list": lambda: (spoilt(random, *KINDS),),
        "schema": lambda: (spoilt(random, "plan", "model", "show"),),
        "init": lambda: (random.choice(SAFE_NAMES),),
        "calibrate": lambda: (spoilt(random, "h100-sxm-send", "mi300x-matmul"), "--table"),
        "show": lambda: (spoilt(random, "gpt2", "HEAD:specs/8b.yaml", "-"), "--json"),
        "sweep": lambda: ("other.yaml", *ONE_LAYOUT, "--over", spoilt(random, *OVERS), "--top", spoilt(random, "3")),
        "diff": lambda: ("other.yaml", "gpt2", "--fail-on", spoilt(random, *CONDITIONS)),
        "import": lambda: (spoilt(random, "other.yaml"), "--plan", "--devices", spoilt(random, "8")),
        "units": lambda: (spoilt(random, "--help"),),
        "score": lambda: (spoilt(random, "other.yaml"), "--over", spoilt(random, "5")),
    }
    return verb, tuple(named[verb]())
