"""`ledger import`: a configuration of another tool as a model spec, or as a plan."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from ledger.cli import completion
from ledger.cli.options import json_option
from ledger.spec.imports.huggingface.config import import_config
from ledger.spec.imports.megatron.script import import_script
from ledger.spec.imports.text import ImportedSpec
from ledger.spec.imports.torchtitan.plan import import_job
from ledger.spec.library import default_library
from ledger.spec.load import load_plan, read_model
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.sources import from_file


@click.command(name="import")
@click.argument("config", type=click.Path())
@click.option("--plan", "as_plan", is_flag=True, help="Print a plan with the model, layout and batches, not the model.")
@click.option("--devices", type=click.IntRange(1), help="Devices of the plan, where the file leaves them open.")
@click.option(
    "--accelerator",
    metavar="NAME",
    shell_complete=completion.library("accelerator"),
    help="The device of the plan of a config.json: h100-sxm where left out.",
)
@json_option
def command(config: str, *, as_plan: bool, devices: int | None, accelerator: str | None, as_json: bool) -> None:
    """Print the model spec of a Hugging Face config.json, of Megatron-LM's arguments, or of a torchtitan job.

    CONFIG is a config.json or the folder that holds it, a script or a file with the arguments, or a job in TOML.
    Settings that are not carried over are told on standard error.

    A config.json says nothing of a run: its plan is the fastest layout that fits on --devices, of a search that takes
    seconds, with all that was assumed in comments.
    """
    from dataclasses import replace
    from itertools import chain

    from ledger.cli.options import tell
    from ledger.cli.tables import print_json
    from ledger.spec.reader import read

    if as_plan and is_config(Path(config)):
        spec = config_plan(config, devices, accelerator)
    elif accelerator:
        raise click.UsageError("--accelerator is for `--plan` of a config.json; a plan is edited, or changed by --set")
    elif devices and not as_plan:
        raise click.UsageError("--devices is for `--plan`: a model has none")
    else:
        spec = import_file(config, as_plan=as_plan, devices=devices or 0)
    unbuilt = _unbuilt_settings(config) if is_config(Path(config)) else ()
    tell(replace(note, message=f"note: {note.message}") for note in chain(unbuilt, spec.notes))
    if as_json:
        print_json(read(spec.text, config).plain())
    else:
        click.echo(spec.text, nl=False)


def config_plan(config: str, devices: int | None, accelerator: str | None) -> ImportedSpec:
    """A first plan for the model of a config.json."""
    from ledger.cli.progress import search_layouts
    from ledger.search.first_plan import Start, first_plan
    from ledger.spec.imports.huggingface.config import config_model

    if devices is None:
        raise click.UsageError("a config.json says nothing of devices: how many there are is told by --devices")
    start = Start(config_model(config).document, devices, accelerator or "")
    return first_plan(start, config, partial(search_layouts, whole=False))


def _unbuilt_settings(config: str) -> tuple[Problem, ...]:
    """Notes on settings of a config.json that transformers does not build."""
    from ledger.spec.imports.huggingface.config import config_model

    model = config_model(config)
    if not model.unbuilt:
        return ()
    from ledger.search.first_plan import unbuilt_notes

    return tuple(unbuilt_notes(model, config))


# --- the tool that a file is of, and the spec that it becomes ---


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
        return _with_rule_notes(ImportedSpec(import_config(file)), str(file), as_plan=False)
    text = from_file(file).text
    if file.suffix != ".toml":
        spec = import_script(text, str(file), as_plan=as_plan, devices=devices)
    else:
        name, spec = import_job(text, str(file), devices)
        if not as_plan:
            return ImportedSpec(default_library().path("model", name).read_text(encoding="utf-8"))
    return _with_rule_notes(spec, str(file), as_plan=as_plan)


def is_config(file: Path) -> bool:
    """Whether a file, or a folder, holds the configuration of a model in transformers."""
    return file.is_dir() or file.suffix == ".json"


def _with_rule_notes(spec: ImportedSpec, file: str, *, as_plan: bool) -> ImportedSpec:
    """The spec, with a note for each problem that the rules find in it."""
    try:
        load_plan(spec.text) if as_plan else read_model(spec.text, file)
    except SpecError as error:
        part = "plan" if as_plan else "model"
        notes = (
            Problem(Location(file), f"the {part} does not hold as it is: {problem.message}", problem.help)
            for problem in error.problems
        )
        return ImportedSpec(spec.text, (*spec.notes, *notes))
    return spec
