"""Which tool a file is of, and the spec that it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ledger.spec.huggingface import import_config
from ledger.spec.imports.carried import Imported
from ledger.spec.imports.megatron import import_script
from ledger.spec.imports.torchtitan import import_job
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.sources import from_file


def imported(path: str | Path, *, as_plan: bool = False, devices: int = 0) -> Imported:
    """The model spec, or the plan, that a file of another tool describes, with what is not in it; raises SpecError.

    A folder and a JSON file are of Hugging Face, TOML is of torchtitan, all else holds arguments of Megatron-LM.
    """
    file = Path(path)
    if file.is_dir() or file.suffix == ".json":
        if as_plan:
            message = "a config.json says nothing of a run"
            raise SpecError([Problem(Location(str(file)), message, "leave `--plan` out; `ledger init` starts a plan")])
        return Imported(import_config(file))
    text = from_file(file).text
    if file.suffix != ".toml":
        made = import_script(text, str(file), as_plan=as_plan, devices=devices)
    else:
        name, made = import_job(text, str(file), devices)
        if not as_plan:
            return Imported(_of_the_library(name))
    return Imported(made.text, (*made.notes, *_refused(made.text, str(file)))) if as_plan else made


def _refused(plan: str, file: str) -> Iterator[Problem]:
    """What `ledger check` will say against a plan that was made of a file."""
    try:
        load_plan(plan)
    except SpecError as error:
        for problem in error.problems:
            yield Problem(Location(file), f"the plan does not hold as it is: {problem.message}", problem.help)


def _of_the_library(name: str) -> str:
    return (default_library().folder("model") / f"{name}.yaml").read_text(encoding="utf-8")
