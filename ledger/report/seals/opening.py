"""A plan read from its seal alone: the files are unpacked to a temporary folder, and no other file is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.report.contract import show_record
from ledger.report.recommendations import as_record
from ledger.report.seals.gathering import seal_of
from ledger.report.seals.seal import Seal, record_digest
from ledger.spec.edit import NoPlaceError, source_text_with_settings
from ledger.spec.library import OWN_FOLDER, Library, using
from ledger.spec.load import plan_of
from ledger.spec.overrides import read_overrides
from ledger.spec.plan import Plan
from ledger.spec.problems import Location, Problem, SpecError
from ledger.whole_files import NO_ROOM, scratch_folder

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.report.recommendations import Recommendations


@contextmanager
def sealed(plan: Plan) -> Iterator[tuple[Plan, Seal | None]]:
    """The plan as its own seal has it, so that its report says nothing of this machine; no seal without a spec."""
    if plan.reading is None:
        yield plan, None
        return
    seal = seal_of(plan)
    with opened(seal) as sealed_plan:
        yield sealed_plan, replace(seal, effective=effective_text(sealed_plan))


@contextmanager
def opened(seal: Seal) -> Iterator[Plan]:
    """The plan of a seal; what is read within it is read from the seal. SpecError for what is no plan."""
    with scratch_folder() as folder:
        home = folder.resolve()
        for file in seal.files:
            _unpack(home, file.name, file.text)
        library = Library(
            home / OWN_FOLDER,
            tuple(home / name for name in seal.libraries if name != OWN_FOLDER),
            home=home,
            references=seal.references,
        )
        source = replace(library.read_in_home(seal.plan), name=seal.name)
        with using(library):
            yield plan_of(source, seal.overrides, library)


def with_books(seal: Seal | None, compiled: Compiled, search: Recommendations | None) -> Seal | None:
    """The seal with what was found of its plan."""
    if seal is None:
        return None
    record = show_record(compiled, seal.name)
    search_record = None if search is None else as_record(search)
    return replace(seal, search=search_record, totals=record["totals"], books=record_digest(record))


def effective_text(plan: Plan) -> str:
    """The text of a plan with its overrides in it; above it, as comments, where the text has no place for them."""
    if plan.reading is None or not plan.reading.overrides:
        return plan.text
    overrides = plan.reading.overrides
    values = {".".join(override.steps): override.value.plain() for override in read_overrides(overrides)}
    try:
        return source_text_with_settings(plan.reading.source, values, plan.reading.library)
    except (SpecError, NoPlaceError):
        return "".join(f"# compiled with --set {override}\n" for override in overrides) + plan.text


def _unpack(home: Path, name: str, text: str) -> None:
    """Writes a file below a folder; SpecError for a name that leads elsewhere, or where another file is in the way."""
    path = home / name
    try:
        if not path.resolve().is_relative_to(home):
            raise SpecError([Problem(Location(name), "leads out of the seal")])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    except OSError as error:
        if error.errno in NO_ROOM:  # of the machine, not of the file
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise SpecError([Problem(Location(name), f"cannot be unpacked to {home}: {error.strerror}")]) from error
    except ValueError as error:
        raise SpecError([Problem(Location(name), f"cannot be unpacked to {home}: {error}")]) from error
