"""`ledger explain`: one number, down to the lines of the spec that it comes from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import completion
from ledger.cli.options import json_option, no_such_name, rarely, set_option, spec_argument
from ledger.spec.problems import SpecError
from ledger.spec.sources import YAML

if TYPE_CHECKING:
    from ledger.books.closed_forms import PlanForms

RUNNERS_UP = 5  # moments that are listed: the fullest, and those that come next


NEGATIVE = re.compile(r"-\.?\d.*")


class CommandOfNumbers(click.Command):
    """A command whose last argument may be a negative number, which is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, negative numbers behind all options."""
        if "--" not in args and (negative := [text for text in args if NEGATIVE.fullmatch(text)]):
            args = [*(text for text in args if text not in negative), "--", *negative]
        return super().parse_args(ctx, args)


@click.command(name="explain", cls=CommandOfNumbers)
@spec_argument
@click.argument("account", required=False, default="", shell_complete=completion.accounts)
@set_option
@click.option("--python", "notation", flag_value="python", help="Print a total's form as a Python function.")
@click.option("--latex", "notation", flag_value="latex", help="Print a total's form in LaTeX.")
@click.option("--sympy", "notation", flag_value="sympy", help="Print a total's form as sympy's `srepr` writes it.")
@json_option
@rarely()
def command(spec: str, account: str, overrides: tuple[str, ...], notation: str | None, *, as_json: bool) -> None:
    """Say where a number of SPEC comes from.

    Prints its formula, rule and citation, and every symbol with its value and place; of a total its closed form.

    ACCOUNT is an account (decoder/attention/q), a total (memory.peak) or an input of the plan (run.tokens).

    SPEC may be a number format instead (bf16), and ACCOUNT a value: what it is stored as, bit by bit.
    """
    import ledger
    from ledger.cli.tables import note_vain_settings, print_json

    if name := format_named(spec, account):
        explain_format(name, account, as_json=as_json)
        return
    if not account:
        raise click.MissingParameter(param_hint="'ACCOUNT'", param_type="argument")
    compiled = ledger.compile(spec, overrides)
    note_vain_settings(compiled)
    from ledger.books.closed_forms import PlanForms
    from ledger.report.explained import explanation

    forms = PlanForms(compiled)
    try:
        record = explanation(compiled, account, forms)
    except SpecError as error:
        raise no_such_name(error.problems[0]) from error
    if notation:
        print_form(forms, account, notation)
    elif as_json:
        print_json({"schema": "ledger-explain/1", **record})
    elif "account" in record:
        print_account(record)
    elif "total" in record:
        print_total(record)
    else:
        print_input(record)


def is_format(spec: str) -> bool:
    """Whether SPEC names a number format and no file."""
    from ledger.model.dtypes import DTYPES

    return spec in DTYPES and not Path(spec).exists()


def format_named(spec: str, value: str) -> str:
    """The number format that SPEC names, in any case or as stacks spell it; empty where it is a plan.

    Raises a usage error where it is neither, and what is asked of it is a number.
    """
    from ledger.course.asks import exact_number
    from ledger.model.dtypes import DTYPES
    from ledger.spec.library import default_library
    from ledger.spec.load import load_spelling
    from ledger.spec.near import closest, nearest

    if is_format(spec):
        return spec
    if not re.fullmatch(r"\w[\w .-]*", spec) or Path(spec).exists() or Path(spec).suffix in YAML:
        return ""
    if default_library().matching_names("plan", spec):
        return ""
    spelt = {text.lower(): str(name) for text, name in load_spelling("dtype").spellings.items() if str(name) in DTYPES}
    name = {**spelt, **{name.lower(): name for name in DTYPES}}.get(spec.lower(), "")
    if not name and value and exact_number(value) is not None:
        near = f"{nearest(spec, [*DTYPES])}; " if closest(spec, [*DTYPES]) else ""
        message = f"no number format is named `{spec}`; {near}the formats are {', '.join(DTYPES)}"
        raise click.BadParameter(message, param_hint="'SPEC'")
    return name


def explain_format(name: str, value: str, *, as_json: bool) -> None:
    """Prints what the bits of a format are, and of a value in it what they stand for."""
    from ledger.cli.tables import print_json, print_table
    from ledger.course.asks import DtypeAsk, exact_number, lacks_code
    from ledger.course.number_formats import dtype
    from ledger.course.report import figure_line, value_or_text

    number = exact_number(value) if value else None
    if value and number is None:
        raise click.BadParameter(
            f"`{value}` is no number that fp64 holds: `0.15625`, `1e-8` or `1/3`", param_hint="'ACCOUNT'"
        )
    if number is not None and lacks_code(name, number):
        message = f"`{value}` cannot be stored in {name}, which has neither a sign nor a zero"
        raise click.BadParameter(message, param_hint="'ACCOUNT'")
    answer = dtype(DtypeAsk(name, number))
    if as_json:
        figures = {
            figure.name: {"value": value_or_text(figure.value), "unit": figure.unit} for figure in answer.figures
        }
        print_json({"schema": "ledger-explain/1", "format": name, "figures": figures})
        return
    if answer.bits is not None and answer.bits.worked:
        click.echo(answer.bits.worked)
    if answer.grid is not None:
        click.echo()
        print_table([title for title, _ in answer.grid.columns], [tuple(map(str, row)) for row in answer.grid.rows])
        click.echo()
    lines = [figure_line(figure) for figure in answer.figures]
    print_table(("of the format", name), [(line.title, line.value) for line in lines])
    if answer.bits is not None and answer.bits.block_scale:
        click.echo(answer.bits.block_scale)


def print_form(forms: PlanForms, total: str, notation: str) -> None:
    """Prints the closed form of a total to be copied; a usage error where there is none."""
    from ledger.report.closed_form_text import NOTATIONS

    if (form := forms[total]) is None:
        raise click.UsageError(f"{total} has no closed form: `ledger explain SPEC {total}` says what it is made of")
    click.echo(NOTATIONS[notation](form), nl=False)


def print_input(record: dict[str, Any]) -> None:
    """Prints an input of the plan: its value, where that was written, and what it was taken from."""
    name, value, where, source = input_row(record)
    click.echo(f"{name} = {value}")
    click.echo(f"  where    {where}")
    if source:
        click.echo(f"  source   {source}")
    if is_format(value):
        click.echo(f"  format   `ledger explain {value}` has its bits, its range and its epsilon")


def print_account(record: dict[str, Any]) -> None:
    """Prints every posting of an account, then every symbol with its place."""
    from ledger.cli.tables import amount, print_table

    click.echo(record["account"])
    for entry in record["entries"]:
        click.echo(f"\n{entry['when']}, {entry['resource']}")
        click.echo(f"  formula  {entry['formula']}")
        click.echo(f"  basis    {entry['basis']}")
        for role in entry["roles"]:
            click.echo(f"  {role['role']:<7}  {role['times']} x {amount(role['amount'], entry['unit'])}")
    rows = [
        (item["symbol"], str(item["value"]), item["meaning"], item["path"], item["where"] or "-", item["source"])
        for item in record["symbols"]
    ]
    if rows:
        click.echo()
        print_table(("symbol", "value", "meaning", "path", "where", "source"), rows, right=("value",))


def print_total(record: dict[str, Any]) -> None:
    """Prints a total, its parts, and the largest accounts in it."""
    from ledger.cli.tables import amount, print_table

    click.echo(f"{record['total']} = {amount(record['value'], record['unit'])}")
    if record["formula"]:
        click.echo(f"  formula  {record['formula']}")
        click.echo(f"  basis    {record['basis']}")
    if record["inputs"]:
        click.echo()
        print_table(("input", "value", "where", "source"), [*map(input_row, record["inputs"])], right=("value",))
        click.echo()
    if record["note"]:
        click.echo(record["note"])
    for column, items in (("part", record["parts"]), ("account", record["largest"])):
        rows = [(item[column], amount(item["value"], record["unit"])) for item in items]
        if rows:
            click.echo()
            print_table((column, "value"), rows, right=("value",))
    if record["form"]:
        print_closed_form(record["form"], record["unit"])


def print_closed_form(record: dict[str, Any], unit: str) -> None:
    """Prints a total's form line by line, where it holds, and of a maximum the moments that come next."""
    from ledger.cli.tables import amount, print_table

    click.echo("\nclosed form")
    for line in record["lines"]:
        click.echo(f"  {line}")
    if record["conditions"]:
        click.echo(f"holds where {'; '.join(record['conditions'])}")
    rows = [(item["title"], amount(item["value"], unit)) for item in record["candidates"]]
    if rows:
        click.echo()
        print_table(("the fullest, and those that come next", "value"), rows[:RUNNERS_UP], right=("value",))


def input_row(record: dict[str, Any]) -> tuple[str, str, str, str]:
    """An input as a table shows it."""
    from ledger.cli.tables import amount

    value = record["value"]
    text = str(value) if isinstance(value, str | bool) else amount(value, record["unit"])
    return record["input"], text, record["where"], record["source"]
