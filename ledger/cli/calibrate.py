"""`ledger calibrate`: measurements become the fitted prices of an accelerator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger.cli.options import json_option
from ledger.spec.sources import YAML

if TYPE_CHECKING:
    from ledger.evidence.documents import Evidence
    from ledger.lab.calibration.calibrate import FittedDevice

PAGES = (".html", ".htm")


@click.command()
@click.argument("evidence", nargs=-1, required=True)
@click.option("--accelerator", "named", default="", metavar="NAME", help="The data sheet to hold them against.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the spec here, and nothing else.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page: predicted over measured.")
@click.option("--table", "as_table", is_flag=True, help="Print the errors of every device and kernel class.")
@json_option
def command(
    evidence: tuple[str, ...], *, named: str, out: Path | None, html: Path | None, as_table: bool, as_json: bool
) -> None:
    """Fit the prices of an accelerator to measurements and print the accelerator as a spec.

    EVIDENCE is a file that `ledger bench` wrote, or one of the library, or its name there (h100-sxm-nccl). Each price
    states its error on measurements the fit had not seen. With --out FILE.yaml the spec goes to the file; --html
    FILE.html draws predicted against measured. --table and --json take files of several devices.
    """
    for flag, path, content, suffixes in (("--out", out, "the spec", YAML), ("--html", html, "the page", PAGES)):
        if path is not None and path.suffix not in suffixes:
            raise click.UsageError(f"{flag} is {content}: {path.with_suffix(suffixes[0])}")
    from ledger.lab.calibration.calibrate import fit_all, read_all

    if out is not None and out.exists():
        _require_accelerator_file(out)
    files = read_all(list({path.resolve(): path for text in evidence for path in _evidence_paths(text)}.values()))
    fitted = fit_all(files, named, _progress if len(files) > 1 else lambda _: None)
    if not fitted:
        _raise_without_benchmarks(files)
    if as_table or as_json:
        _print_errors(fitted, as_json=as_json)
    if out or html:
        _write(_require_one_device(fitted), out, html)
        if not as_table:
            _print_quality(_require_one_device(fitted))
    elif not (as_table or as_json):
        click.echo(_require_one_device(fitted).spec, nl=False)


def _evidence_paths(text: str) -> list[Path]:
    """The file of that path, or of that name in the library; none for a folder, which is said."""
    from ledger.spec.library import default_library
    from ledger.spec.near import nearest
    from ledger.spec.problems import Location, Problem, SpecError

    path, library = Path(text), default_library()
    if path.is_dir():
        click.echo(f"{text}: a folder, left out", err=True)
        return []
    if path.exists():
        return [path]
    names = library.names("evidence")
    if text in names:
        return [library.path("evidence", text)]
    raise SpecError([Problem(Location(text), "there is no such file, nor evidence of that name", nearest(text, names))])


def _require_accelerator_file(out: Path) -> None:
    """Raises SpecError where a file that is no accelerator would be written over: a plan, or the measurements."""
    from ledger.spec.kinds import KINDS
    from ledger.spec.problems import Location, Problem, SpecError
    from ledger.spec.reader import read
    from ledger.spec.sources import from_file

    kinds = {kind for kind in KINDS if kind in read(from_file(out).text, str(out)).fields}
    if kinds != {"accelerator"}:
        message = "there is a file that is no accelerator's spec, and it would be lost"
        raise SpecError([Problem(Location(str(out)), message, "give --out another name")])


def _raise_without_benchmarks(files: tuple[Evidence, ...]) -> None:
    """Raises SpecError: the files hold no microbenchmarks."""
    from ledger.spec.problems import Location, Problem, SpecError

    where = files[0].node.where if files else Location("EVIDENCE")
    help_text = "give a file of `ledger bench`, or one of the library such as h100-sxm-nccl"
    raise SpecError([Problem(where, "no microbenchmark is in these files", help_text)])


def _require_one_device(fitted: tuple[FittedDevice, ...]) -> FittedDevice:
    """The one device; a usage error where there are several."""
    if len(fitted) > 1:
        names = ", ".join(device_fit.device.accelerator.name for device_fit in fitted)
        raise click.UsageError(
            f"a spec is of one device, and these files measured {names}: give those of one, or --table"
        )
    return fitted[0]


def _write(fitted: FittedDevice, out: Path | None, html: Path | None) -> None:
    """The spec and the page, those of them that are asked for."""
    from ledger.lab.calibration.page import page
    from ledger.whole_files import replace_files

    contents = {out: fitted.spec.encode()} if out else {}
    contents |= {html: page(fitted).encode()} if html else {}
    replace_files(contents)
    click.echo(f"wrote {' and '.join(map(str, contents))}", err=True)


def _print_quality(fitted: FittedDevice) -> None:
    """Prints on standard error how far prices can be trusted: their errors, and classes without a price."""
    from statistics import median

    scattered = [str(series.kind.what) for series in fitted.sets if series.fit is not None and not series.is_usable]
    errors = {curve.what: curve.error for curve in fitted.accelerator.calibration}
    if errors:
        worst = max(errors, key=lambda price_class: errors[price_class])
        message = f"{len(errors)} prices, median error {median(errors.values()):.1%}"
        click.echo(f"{message}, largest {errors[worst]:.1%} ({worst}); --table prints each", err=True)
    if scattered:
        names = ", ".join(dict.fromkeys(scattered))
        click.echo(
            f"no price for {names}: these measurements scatter too far; measure again on an idle machine", err=True
        )


def _print_errors(fitted: tuple[FittedDevice, ...], *, as_json: bool) -> None:
    """Every set with its error, as a table for people or JSON for programs."""
    from ledger.cli.tables import print_json, print_table
    from ledger.lab.calibration.page import HEAD, set_cells, set_fits, table_json

    fits = set_fits(fitted)
    if as_json:
        print_json(table_json(fits))
        return
    print_table(
        ("device", *HEAD), [(set_fit.measured.device, *set_cells(set_fit)) for set_fit in fits], right=HEAD[1:5]
    )


def _progress(name: str) -> None:
    """Says on standard error what is fitted."""
    click.echo(name, err=True)
