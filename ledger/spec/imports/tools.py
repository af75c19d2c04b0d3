"""Which tool a file is of, and the spec that it becomes."""

from __future__ import annotations

from pathlib import Path

from ledger.spec.huggingface import import_config
from ledger.spec.imports.megatron import import_script
from ledger.spec.imports.torchtitan import import_job
from ledger.spec.library import default_library
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.sources import from_file


def imported(path: str | Path, *, as_plan: bool = False, devices: int = 0) -> str:
    """The YAML text of the model spec, or of the plan, that a file of another tool describes; raises SpecError.

    A folder and a JSON file are of Hugging Face, TOML is of torchtitan, all else holds arguments of Megatron-LM.
    """
    file = Path(path)
    if file.is_dir() or file.suffix == ".json":
        if as_plan:
            message = "a config.json says nothing of a run"
            raise SpecError([Problem(Location(str(file)), message, "leave `--plan` out; `ledger init` starts a plan")])
        return import_config(file)
    text = from_file(file).text
    if file.suffix != ".toml":
        return import_script(text, str(file), as_plan=as_plan, devices=devices)
    name, plan = import_job(text, str(file), devices)
    return plan if as_plan else _of_the_library(name)


def _of_the_library(name: str) -> str:
    return (default_library().folder("model") / f"{name}.yaml").read_text(encoding="utf-8")
