"""What is mutated: sound inputs of every kind, small enough that a hundred are answered in seconds."""

from __future__ import annotations

import ast
import csv
import io
import json
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ledger.spec.reader import read
from tests.fuzz.mutations import Pool, document, pool_of

ROOT = Path(__file__).resolve().parents[2]
SPECS = ROOT / "specs"
HOSTILE = ROOT / "tests" / "hostile"
SUFFIX = {"tree": ".yaml", "json": ".json", "table": ".csv", "words": ".sh", "toml": ".toml"}
LARGEST_SEED = 6_000  # bytes of a text that is mutated as it is
FEW_ROWS = 2
MEASURED = ("--device", "cpu", "--quick", "--only", "launch", "--seconds", "0.001")


@dataclass(frozen=True)
class Seed:
    """A sound input: its text, what its text is made of (`tree`, `json`, `table`, `words`, `toml`), and its tree."""

    kind: str
    form: str
    text: str
    tree: Any = None

    @property
    def name(self) -> str:
        """The file that it stands in."""
        return f"{self.kind}{SUFFIX[self.form]}"


def _yaml(kind: str, text: str) -> Seed:
    tree = read(text, kind).plain()
    return Seed(kind, "tree", text, tree)


def _model() -> Any:
    """Two small layers, one of them of experts."""
    return {
        "model": "Small",
        "source": "a test",
        "d_model": 64,
        "vocab": 256,
        "max_seq_len": 512,
        "embedding": {"tied": False},
        "norm": {"kind": "rms"},
        "layers": [
            {
                "group": "decoder",
                "repeat": 4,
                "attention": {"heads": 4, "kv_heads": 2, "head_dim": "d_model / heads", "rotary": 1},
                "mlp": {"kind": "gated", "d_ff": "4 * d_model", "activation": "silu"},
                "norms": "pre",
            }
        ],
    }


def _small(**changes: Any) -> Any:
    """A plan of eight devices."""
    return {
        "spec": "ledger/1",
        "plan": "Small",
        "accelerator": "h100-sxm",
        "cluster": {"base": "h100-400g", "devices": 8},
        "model": _model(),
        "precision": "bf16-mixed",
        "optimizer": "adamw",
        "parallelism": {"data": 4, "tensor": 2, "zero": 1},
        "recompute": "none",
        "stack": "pytorch-fsdp2-2025",
        "run": {"tokens": "1B tokens", "seq_len": 256, "micro_batch": 2, "global_batch": 64},
        **changes,
    }


WHOLE_RUN = {
    "recompute": {"every": 2},
    "kernels": {"attention": "flash"},
    "operations": {
        "checkpoint_interval": "best",
        "storage_bandwidth": "20 GB/s",
        "restart_time": "20 min",
        "failure_rate": "0.01 /d",
        "checkpoint_async": True,
    },
    "data": {"token": "2 B", "bandwidth": "1 GB/s", "workers": 2, "rate": "1M tokens/s", "prefetch": 2},
    "assumptions": {
        "mfu": 0.4,
        "headroom": "10 %",
        "price": {"per_device_hour": "2.50 USD", "date": "2026-05", "source": "an offer"},
    },
    "expect": [{"memory.peak": "60 GB", "tolerance": "5 %", "source": "a run"}],
}
PARTS = {
    "accelerator": "accelerators/h100-sxm.yaml",
    "cluster": "clusters/h100-400g.yaml",
    "precision": "precisions/fp8-delayed.yaml",
    "optimizer": "optimizers/muon.yaml",
    "stack": "stacks/pytorch-fsdp2-2025.yaml",
}


def _plans() -> list[Seed]:
    """Plans that train: of names, and with every section."""
    layouts = (
        _small(),
        _small(**WHOLE_RUN),
        _small(
            parallelism={"data": 2, "tensor": 2, "pipeline": 2, "interleave": 2, "schedule": "interleaved", "zero": 1}
        ),
        _small(parallelism={"data": 8, "zero": 3, "reshard": True, "offload": ["optimizer"]}, train={"only": ["head"]}),
        _small(parallelism={"data": 2, "context": 2, "tensor": 2, "zero": 2, "context_exchange": "ring"}),
    )
    library = [
        _yaml("plan", (SPECS / name).read_text("utf-8")) for name in ("gpt2.yaml", "vit-l.yaml", "mixtral-8x7b.yaml")
    ]
    return [*(_yaml("plan", document(tree)) for tree in layouts), *library]


def _parts() -> list[Seed]:
    """Plans with a part of the library written out, and parts as files of their own."""
    plans = []
    for part, file in PARTS.items():
        text = (SPECS / file).read_text("utf-8")
        if len(text) < 4 * LARGEST_SEED:
            written: Any = read(text, file).plain()
            counted = {"devices": 8} if part == "cluster" else {}
            plans.append(_yaml("part", document(_small(**{part: {**written, **counted}}))))
    files = [SPECS / file for file in PARTS.values()]
    files += [SPECS / "models" / f"{name}.yaml" for name in ("gpt2", "mixtral-8x7b", "deepseek-v2", "vit-l-16")]
    files += [SPECS / "prices" / "h100-sxm.yaml"]
    return [*plans, *(_yaml("file", path.read_text("utf-8")) for path in files if path.exists())]


def _serving() -> list[Seed]:
    """Plans that serve."""
    serve = {"prompt": "128 tokens", "output": "64 tokens", "concurrency": 4}
    tree = _small(serve=serve, precision="bf16-true", stack="vllm-2025", parallelism={"data": 1, "tensor": 2})
    tree["cluster"] = {"devices": 2, "devices_per_node": 8}
    trimmed = {key: value for key, value in tree.items() if key not in {"run", "optimizer", "recompute"}}
    library = (SPECS / "serve-70b.yaml").read_text("utf-8")
    return [_yaml("serve", document(trimmed)), _yaml("serve", library)]


def _lectures() -> list[Seed]:
    """A chapter for each question of the library that is answered at once."""
    slow = {"plan", "fit", "solve", "levels", "sweep", "inference", "segments", "moments", "accounts", "budget"}
    found = []
    for path in sorted((SPECS / "lecture").glob("*.yaml")):
        tree: Any = read(path.read_text("utf-8"), path.name).plain()
        for question in tree.get("questions", ()):
            if not slow & set(question) and len(document(question)) < LARGEST_SEED:
                alone = {key: value for key, value in tree.items() if key in {"spec", "lecture", "about", "source"}}
                found.append(_yaml("lecture", document({**alone, "questions": [question]})))
    return found


def _evidence() -> list[Seed]:
    """Files of measurements: of kernels and links, and of whole runs."""
    texts = [path.read_text("utf-8") for path in sorted((SPECS / "evidence").glob("*.yaml"))]
    short = [text for text in texts if len(text) < LARGEST_SEED // 3]
    return [_yaml("record" if "\nplan:" in text else "evidence", text) for text in short]


def _tables() -> list[Seed]:
    """Tables of published runs and of published results of engines, two rows each."""
    found = []
    for kind, file in (("runs", "published-runs.csv"), ("serving", "published-serving.csv")):
        rows = list(csv.reader(io.StringIO((SPECS / "evidence" / file).read_text("utf-8"))))
        for start in range(1, len(rows) - FEW_ROWS, 97):
            out = io.StringIO()
            csv.writer(out, lineterminator="\n").writerows([rows[0], *rows[start : start + FEW_ROWS]])
            found.append(Seed(kind, "table", out.getvalue()))
    return found


def _suites() -> list[Seed]:
    """Two cases on the plan beside it, as a judge takes them."""
    one_device = {"cluster.devices": 1, "parallelism.data": 1, "parallelism.tensor": 1, "parallelism.zero": 0}
    cases = [{"case": "first", "quick": True}, {"case": "second", "set": {"recompute": "full"}}]
    group = {"group": "Small", "plan": "./other.yaml", "set": one_device, "cases": cases}
    return [_yaml("suite", document({"spec": "ledger/1", "suite": "A test", "groups": [group]}))]


def _constants(file: str) -> dict[str, str]:
    """The texts that a test module states at its top, by name."""
    tree = ast.parse((ROOT / "tests" / "spec" / file).read_text("utf-8"))
    named = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return {
        name: node.value
        for name, node in named.items()
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _imports() -> list[Seed]:
    """Configurations of transformers, arguments of Megatron-LM, jobs of torchtitan."""
    configs = [
        path.read_text("utf-8") for path in sorted((ROOT / "tests" / "spec" / "published_configs").glob("*.json"))
    ]
    megatron, torchtitan = _constants("test_megatron.py"), _constants("test_torchtitan.py")
    return [
        *(Seed("config", "json", text, json.loads(text)) for text in configs if len(text) < LARGEST_SEED),
        *(Seed("megatron", "words", megatron[name]) for name in ("GPT3", "MIXTRAL", "DEEPSEEK", "SIZES")),
        *(Seed("torchtitan", "toml", torchtitan[name]) for name in ("TITAN", "JOB")),
    ]


@cache
def seeds() -> dict[str, list[Seed]]:
    """Every kind with its sound inputs."""
    kinds: dict[str, list[Seed]] = {}
    made = (_plans(), _parts(), _serving(), _lectures(), _evidence(), _tables(), _suites(), _imports())
    for seed in chain.from_iterable(made):
        kinds.setdefault(seed.kind, []).append(seed)
    return kinds


@cache
def pool(kind: str) -> Pool:
    """What stands at each key in the sound inputs of a kind; of plans in those of all parts."""
    plans = {"plan", "part", "file", "serve"}
    kinds = plans if kind in plans else {kind}
    trees = [seed.tree for name in sorted(kinds) for seed in seeds()[name] if seed.tree is not None]
    if kinds == plans:
        files = [
            path
            for folder in ("models", "stacks", "precisions", "optimizers", "clusters")
            for path in sorted((SPECS / folder).glob("*.yaml"))
        ]
        trees += [read(path.read_text("utf-8"), path.name).plain() for path in files]
        trees.append({"model": "mixtral-8x7b", "accelerator": "b200", "precision": "nvfp4", "optimizer": "adafactor"})
    return pool_of(trees)


@cache
def measured() -> Seed:
    """What this machine's own benchmark left, which goes on from it."""
    from click.testing import CliRunner

    from ledger.cli import main

    with TemporaryDirectory() as folder:
        out = Path(folder, "bench.yaml")
        done = CliRunner().invoke(main, ["bench", *MEASURED, "--out", str(out)])
        assert done.exit_code == 0, done.output
        return Seed("record", "words", out.read_text("utf-8"))


@cache
def sealed() -> bytes:
    """A report of the first plan as JSON, which carries all that it was made from."""
    from click.testing import CliRunner

    from ledger.cli import main

    with TemporaryDirectory() as folder:
        plan = Path(folder, "plan.yaml")
        plan.write_text(_plans()[0].text, encoding="utf-8")
        words = ["report", str(plan), "--no-search", "--format", "json", "--out", folder]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        return Path(folder, "plan.json").read_bytes()
