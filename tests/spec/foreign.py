"""Files of other tools as what the import makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.cli.import_ import import_file
from ledger.spec.imports.text import ImportedSpec
from ledger.spec.problems import SpecError


def spec(folder: Path, text: str, name: str = "arguments.sh", **asked: Any) -> Any:
    """The spec that a file with this text becomes, as plain values."""
    (folder / name).write_text(text)
    return yaml.safe_load(import_file(folder / name, **asked).text)


def refused(folder: Path, text: str, name: str = "arguments.sh") -> SpecError:
    """What is said against a file with this text."""
    with pytest.raises(SpecError) as caught:
        spec(folder, text, name)
    return caught.value


def loaded(folder: Path, text: str, name: str = "arguments.sh", **asked: Any) -> Path:
    """The file that the import of a text leaves."""
    (folder / name).write_text(text)
    made = folder / "made.yaml"
    made.write_text(import_file(folder / name, **asked).text)
    return made


def made(folder: Path, text: str, name: str = "job.toml", **asked: Any) -> ImportedSpec:
    """The plan of a file with this text, and what is told beside it."""
    (folder / name).write_text(text)
    return import_file(folder / name, as_plan=True, **asked)
