"""`ledger import`: a configuration of another tool as a model spec, or as a plan."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli import completion
from ledger.cli.options import json_option

if TYPE_CHECKING:
    from ledger.spec.imports.text import ImportedSpec
    from ledger.spec.problems import Problem


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
    from ledger.spec.imports.tools import import_file, is_config
    from ledger.spec.reader import read

    if as_plan and is_config(Path(config)):
        made = config_plan(config, devices, accelerator)
    elif accelerator:
        raise click.UsageError("--accelerator is for `--plan` of a config.json; a plan is edited, or changed by --set")
    elif devices and not as_plan:
        raise click.UsageError("--devices is for `--plan`: a model has none")
    else:
        made = import_file(config, as_plan=as_plan, devices=devices or 0)
    left_out = _left_out(config) if is_config(Path(config)) else ()
    tell(replace(note, message=f"note: {note.message}") for note in chain(left_out, made.notes))
    if as_json:
        print_json(read(made.text, config).plain())
    else:
        click.echo(made.text, nl=False)


def config_plan(config: str, devices: int | None, accelerator: str | None) -> ImportedSpec:
    """A first plan for the model of a config.json."""
    from ledger.cli.progress import searched
    from ledger.search.first_plan import Start, first_plan
    from ledger.spec.imports.huggingface.config import config_model

    if devices is None:
        raise click.UsageError("a config.json says nothing of devices: how many there are is told by --devices")
    start = Start(config_model(config).document, devices, accelerator or "")
    return first_plan(start, config, partial(searched, whole=False))


def _left_out(config: str) -> tuple[Problem, ...]:
    """What a config.json states that transformers does not build."""
    from ledger.spec.imports.huggingface.config import config_model

    model = config_model(config)
    if not model.unbuilt:
        return ()
    from ledger.search.first_plan import unbuilt_notes

    return tuple(unbuilt_notes(model, config))
