"""`ledger import`: a configuration of another tool as a model spec, or as a plan."""

from __future__ import annotations

import click

from ledger.cli.options import json_option


@click.command(name="import")
@click.argument("config", type=click.Path())
@click.option("--plan", "as_plan", is_flag=True, help="Print a plan with the model, layout and batches, not the model.")
@click.option("--devices", type=click.IntRange(1), help="Devices of the plan, where the file leaves them open.")
@json_option
def command(config: str, *, as_plan: bool, devices: int | None, as_json: bool) -> None:
    """Print the model spec of a Hugging Face config.json, of Megatron-LM's arguments, or of a torchtitan job.

    CONFIG is a config.json or the folder that holds it, a script or a file with the arguments, or a job in TOML.
    Settings that are not carried over are told on standard error.
    """
    from dataclasses import replace

    from ledger.cli.problems import tell
    from ledger.cli.tables import print_json
    from ledger.spec.imports.tools import import_file
    from ledger.spec.reader import read

    made = import_file(config, as_plan=as_plan, devices=devices or 0)
    tell(replace(note, message=f"note: {note.message}") for note in made.notes)
    if as_json:
        print_json(read(made.text, config).plain())
    else:
        click.echo(made.text, nl=False)
