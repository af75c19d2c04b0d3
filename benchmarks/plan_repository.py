"""A repository of thirty plans with five changes, for tests of what looks at changes, and for their timing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

WHEN = "2026-05-18T12:00:00+00:00"  # of every commit, so that their names are always the same
WHO = {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in (
    ("NAME", "a"), ("EMAIL", "a@example.org"), ("DATE", WHEN))}  # fmt: skip
DEVICE = """\
spec: ledger/1
base: h100-sxm
"""
CLUSTER = """\
spec: ledger/1
base: h100-400g
scaleout: {{bandwidth: {bandwidth} Gb/s}}
"""
PLAN = """\
spec: ledger/1
plan: {title}
accelerator: ../hw/h100.yaml
cluster: {{base: ../hw/{cluster}.yaml, devices: {devices}}}
model: {model}
precision: bf16-mixed
parallelism: {{{layout}, zero: 3}}
recompute: {recompute}
stack: pytorch-fsdp2-2025
run: {{tokens: {tokens} tokens, seq_len: {length}, micro_batch: {micro}, global_batch: {batch}}}
assumptions: {{headroom: {headroom}, price: {{per_device_hour: 2.50 USD, date: 2026-05, source: our offer}}}}
"""
# model -> devices, layout, tokens, recomputation, micro-batch, headroom
MODELS: Mapping[str, tuple[int, str, str, str, int, str]] = {
    "llama-2-7b": (64, "tensor: 1", "1T", "none", 2, "typical"),
    "qwen2.5-7b": (64, "tensor: 1", "2T", "selective", 1, "minimum"),
    "mistral-7b": (64, "tensor: 2", "1T", "none", 2, "minimum"),
    "llama-3-8b": (128, "tensor: 1", "3T", "none", 1, "production"),
    "qwen3-8b": (128, "tensor: 2", "2T", "none", 1, "typical"),
    "gemma-2-9b": (128, "tensor: 2", "2T", "full", 1, "typical"),
    "pythia-6.9b": (32, "tensor: 1", "300B", "none", 4, "minimum"),
    "llama-2-70b": (512, "tensor: 8", "2T", "full", 1, "production"),
    "llama-3-70b": (1024, "tensor: 8", "15T", "full", 1, "production"),
    "qwen2.5-72b": (1024, "tensor: 8", "7T", "full", 1, "production"),
}
LENGTHS = {"short": 2048, "long": 4096, "wide": 4096}  # one plan a model in each folder; the wide ones on other nodes


def git(folder: Path, *words: str) -> str:
    """What git prints in a repository, whatever the user's settings."""
    environment = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", *words], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def build(folder: Path) -> tuple[str, ...]:
    """Makes the repository, and returns its six commits: thirty plans, then one for each of CHANGES."""
    for name in ("hw", *LENGTHS):
        (folder / name).mkdir(parents=True)
    (folder / "hw" / "h100.yaml").write_text(DEVICE)
    for cluster, bandwidth in (("pod", 400), ("cloud", 200)):
        (folder / "hw" / f"{cluster}.yaml").write_text(CLUSTER.format(bandwidth=bandwidth))
    for group in LENGTHS:
        for model in MODELS:
            (folder / group / f"{model}-{group}.yaml").write_text(plan_text(group, model))
    git(folder, "init", "--quiet", "--initial-branch=main")
    commits = [commit(folder, "Thirty plans")]
    for subject, change in CHANGES.items():
        change(folder)
        commits.append(commit(folder, subject))
    return tuple(commits)


def commit(folder: Path, subject: str) -> str:
    """Commits all that there is, and returns the name of the commit."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", subject)
    return git(folder, "rev-parse", "HEAD").strip()


def plan_text(group: str, model: str) -> str:
    """A plan of a model: the batch is two micro-batches on each of its devices."""
    devices, layout, tokens, recompute, micro, headroom = MODELS[model]
    return PLAN.format(
        title=f"{model}, {group}", cluster="cloud" if group == "wide" else "pod", devices=devices, model=model,
        layout=layout, recompute=recompute, tokens=tokens, length=LENGTHS[group], micro=micro,
        batch=2 * micro * devices, headroom=headroom,
    )  # fmt: skip


def edit(path: Path, *edits: tuple[str, str]) -> None:
    """Replaces texts in a file that has each of them."""
    text = path.read_text()
    for old, new in edits:
        if old not in text:
            raise ValueError(f"{path} has no {old!r}")
        text = text.replace(old, new)
    path.write_text(text)


def edit_library(folder: Path) -> None:
    """The nodes in the cloud get the network of the others: every wide plan is affected, and no file of a plan."""
    edit(folder / "hw" / "cloud.yaml", ("200 Gb/s", "400 Gb/s"))


def edit_layout(folder: Path) -> None:
    """One plan changes its layout, one loses its headroom, and one changes two values that undo each other."""
    edit(
        folder / "short" / "llama-3-70b-short.yaml", ("tensor: 8", "tensor: 4"), ("recompute: full", "recompute: none")
    )
    edit(folder / "long" / "llama-2-7b-long.yaml", ("micro_batch: 2", "micro_batch: 4"))
    edit(folder / "long" / "qwen2.5-7b-long.yaml", ("2T tokens", "4T tokens"), ("2.50 USD", "1.25 USD"))


def add_plan(folder: Path) -> None:
    """Adds a plan that does not fit: 8B parameters and eight sequences a device, on one node."""
    path = folder / "long" / "one-node.yaml"
    path.write_text(plan_text("long", "llama-3-8b"))
    edit(path, ("llama-3-8b, long", "One node"), ("devices: 128", "devices: 8"), ("micro_batch: 1", "micro_batch: 8"))


def delete_plan(folder: Path) -> None:
    """Deletes the short plan of the smallest model, which no other plan names."""
    (folder / "short" / "pythia-6.9b-short.yaml").unlink()


def rename_plan(folder: Path) -> None:
    """A plan moves to another folder, another moves and changes."""
    (folder / "archive").mkdir()
    (folder / "long" / "mistral-7b-long.yaml").rename(folder / "archive" / "mistral-7b.yaml")
    moved = (folder / "short" / "llama-3-8b-short.yaml").rename(folder / "archive" / "llama-3-8b.yaml")
    edit(moved, ("3T tokens", "3.5T tokens"))


CHANGES: Mapping[str, Callable[[Path], None]] = {
    "A faster network in the cloud": edit_library,
    "Another layout, and two changes that undo each other": edit_layout,
    "A plan for one node": add_plan,
    "One plan less": delete_plan,
    "Plans that are done": rename_plan,
}
