"""`ledger units`: how a quantity may be written."""

from __future__ import annotations

import click

from ledger.cli.options import json_option


@click.command(name="units")
@json_option
def command(*, as_json: bool) -> None:
    """List what a spec can measure, and the units of each.

    GB and GiB are different: 10^9 and 2^30 bytes.
    """
    from ledger.cli.tables import print_json, print_table
    from ledger.spec.quantities import DIMENSIONS, units

    rows = [
        (row.noun, row.example, [unit for unit, (base, _) in units().items() if base == row.base and unit])
        for row in DIMENSIONS.values()
    ]
    if as_json:
        print_json([dict(zip(("measures", "example", "units"), row, strict=True)) for row in rows])
    else:
        print_table(
            ("measures", "example", "units"), [(noun, example, ", ".join(names)) for noun, example, names in rows]
        )
