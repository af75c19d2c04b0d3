"""The workflow of a release: what it runs is the Makefile's."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")


def test_its_steps_are_targets_of_the_makefile() -> None:
    """What a release runs can be run anywhere."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    steps = re.findall(r"run: make (\S+)", WORKFLOW)
    assert {"check", "wheel-test", "gallery"} <= set(steps) <= targets


def test_the_distribution_is_named_once() -> None:
    """What builds, tries and locks the package calls it by the name that it has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    name = project["name"]
    assert name.replace("-", "_") in (ROOT / "scripts" / "try-wheel").read_text("utf-8")
    assert f"{name}[evidence,parquet,cluster]" in project["optional-dependencies"]["test"]
    assert project["scripts"] == {"ledger": "ledger.cli:main"}
