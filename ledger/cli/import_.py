"""`ledger import`: a configuration of another tool as a model spec."""

from __future__ import annotations

from pathlib import Path

import click

from ledger.cli.options import json_option


@click.command(name="import")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--name", help="Title of the model; else the configuration's own, or its folder's.")
@json_option
def command(config: Path, name: str | None, *, as_json: bool) -> None:
    """Print the model spec of a Hugging Face config.json.

    CONFIG is the file, or the folder that holds it.
    """
    from ledger.cli.huggingface import model_spec
    from ledger.cli.spec_text import written
    from ledger.cli.tables import print_json
    from ledger.spec.reader import read

    file = config / "config.json" if config.is_dir() else config
    node = read(file.read_text(encoding="utf-8"), str(file))
    own = node.fields.get("_name_or_path")
    published = own.value if own and isinstance(own.value, str) and not Path(own.value).is_absolute() else ""
    title = name or published or file.resolve().parent.name
    spec = model_spec(node, title, f"config.json of {published or title}")
    if as_json:
        print_json(spec)
    else:
        click.echo(written(spec), nl=False)
