"""Which tool a file is of, and the spec that it becomes."""

from __future__ import annotations

from pathlib import Path

from ledger.spec.imports.huggingface.config import import_config
from ledger.spec.imports.megatron.script import import_script
from ledger.spec.imports.text import ImportedSpec
from ledger.spec.imports.torchtitan.plan import import_job
from ledger.spec.library import default_library
from ledger.spec.load import load_plan, read_model
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.sources import from_file


def import_file(path: str | Path, *, as_plan: bool = False, devices: int = 0) -> ImportedSpec:
    """The model spec, or the plan, that a file of another tool describes, with what is not in it; raises SpecError.

    A folder and a JSON file are of Hugging Face, TOML is of torchtitan, all else holds arguments of Megatron-LM. A
    config.json says nothing of a run: `ledger.search.first_plan` makes a plan for it.
    """
    file = Path(path)
    if is_config(file):
        if as_plan:
            message = "a config.json says nothing of a run"
            raise SpecError([Problem(Location(str(file)), message, "a first plan for its model is searched for")])
        return _with_rules(ImportedSpec(import_config(file)), str(file), as_plan=False)
    text = from_file(file).text
    if file.suffix != ".toml":
        made = import_script(text, str(file), as_plan=as_plan, devices=devices)
    else:
        name, made = import_job(text, str(file), devices)
        if not as_plan:
            return ImportedSpec(_library_text(name))
    return _with_rules(made, str(file), as_plan=as_plan)


def is_config(file: Path) -> bool:
    """Whether a file, or a folder, holds the configuration of a model in transformers."""
    return file.is_dir() or file.suffix == ".json"


def _with_rules(made: ImportedSpec, file: str, *, as_plan: bool) -> ImportedSpec:
    """The same, with what the rules will say against a spec that was made of a file."""
    try:
        load_plan(made.text) if as_plan else read_model(made.text, file)
    except SpecError as error:
        what = "plan" if as_plan else "model"
        notes = (
            Problem(Location(file), f"the {what} does not hold as it is: {problem.message}", problem.help)
            for problem in error.problems
        )
        return ImportedSpec(made.text, (*made.notes, *notes))
    return made


def _library_text(name: str) -> str:
    return default_library().path("model", name).read_text(encoding="utf-8")
