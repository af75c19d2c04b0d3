"""`ledger import`: a configuration of another tool as a model spec."""

from __future__ import annotations

import click

from ledger.cli.options import json_option


@click.command(name="import")
@click.argument("config", type=click.Path())
@json_option
def command(config: str, *, as_json: bool) -> None:
    """Print the model spec of a Hugging Face config.json.

    CONFIG is the file, or the folder that holds it.
    """
    from ledger.cli.tables import print_json
    from ledger.spec.huggingface import import_config
    from ledger.spec.reader import read

    text = import_config(config)
    if as_json:
        print_json(read(text, config).plain())
    else:
        click.echo(text, nl=False)
