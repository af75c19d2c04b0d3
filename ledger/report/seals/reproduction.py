"""A report made again from the seal that its file carries, and whether both say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import zip_longest
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.books import compile_plan
from ledger.report.contract import show_record
from ledger.report.pdf import SEAL, SEALED
from ledger.report.recommendations import Recommendation, Recommendations, from_record
from ledger.report.seals.opening import opened
from ledger.report.seals.seal import HELP, Compiler, Seal, SealedFile, installed_compiler, read_seal, record_digest
from ledger.report.write import REPORT_WRITERS, assemble_report
from ledger.spec.library import OWN_FOLDER, installed_specs
from ledger.spec.load import read_with_overrides
from ledger.spec.overrides import assignments
from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.sources import read_bounded

if TYPE_CHECKING:
    from ledger.books.compiled import Compiled
    from ledger.spec.plan import Plan


REPRODUCTION_SCHEMA = "ledger-reproduce/1"
SAME, DIFFERS, UNCOMPARED = "same", "differs", "not compared"
WORDS = "same words"  # of a PDF, which may show something else: what covers a word, a picture, a font
NOT_PRINTED = (ValueError, LookupError, ArithmeticError)  # what recommendations raise that lack what a page prints
Totals = Mapping[str, int | float]


@dataclass(frozen=True)
class TotalChange:
    """A total of the report and the same total compiled again; None where one of them has none."""

    key: str
    sealed: int | float | None
    now: int | float | None


@dataclass(frozen=True)
class Reproduction:
    """A report beside what the installed compiler says of what it carries.

    `totals` are those that differ, `layouts` recommended layouts of which one does. `books`: accounts and verdict too.
    `page`: whether the report says what is printed now; it is compared where this is the compiler that printed it, and
    the totals are the same. `files`: those of the library that are others here; `with_library`: totals that the plan
    has with the installed library and that its report does not; `refused`: why that does not take the plan.
    """

    kind: str
    seal: Seal
    installed: Compiler
    totals: tuple[TotalChange, ...]
    layouts: tuple[str, ...]
    books: str
    page: str
    files: tuple[str, ...]
    with_library: tuple[TotalChange, ...] = ()
    refused: str = ""

    @property
    def same(self) -> bool:
        """Whether the report says what is compiled from it."""
        return not self.totals and not self.layouts and DIFFERS not in {self.page, self.books}


def reproduce(path: Path) -> Reproduction:
    """The report of a file, made again from nothing but that file.

    SpecError where the file is too large or carries no sound seal, OSError where it cannot be read.
    """
    content = read_bounded(path, LARGEST_REPORT)
    if len(content) > LARGEST_REPORT:
        raise SpecError([Problem(Location(str(path)), f"larger than {LARGEST_REPORT} bytes: no report is")])
    kind, seal = carried_seal(path, content)
    with opened(seal) as plan:
        compiled = compile_plan(plan)
        search = None if seal.search is None else from_record(seal.search)
        record = show_record(compiled, seal.name)
        totals = tuple(total_changes(seal.totals, record["totals"]))
        page = UNCOMPARED if totals else _page_status(path, content, compiled, seal, search)
        layouts = tuple(_other_layouts(plan, search)) if search else ()
    here = installed_compiler()
    books = SAME if record_digest(record) == seal.books or page in (SAME, WORDS) else DIFFERS
    if page == DIFFERS and here.program != seal.compiler.program:
        page = UNCOMPARED
    files = tuple(file.name for file in seal.files if file.of_library and _installed_text(file) != file.text)
    again = Reproduction(kind, seal, here, totals, layouts, books, page, files)
    return _compare_with_library(again) if again.files else again


def total_changes(sealed: Totals, now: Totals) -> Iterator[TotalChange]:
    """Totals that differ by more than the last digits, in the order of the report."""
    for key in dict.fromkeys((*sealed, *now)):
        before, after = sealed.get(key), now.get(key)
        if before is None or after is None or not _is_alike(before, after):
            yield TotalChange(key, before, after)


def published_reproduction(again: Reproduction, file: str) -> dict[str, Any]:
    """The object that `reproduce --json` prints."""
    return {
        "schema": REPRODUCTION_SCHEMA,
        "file": file,
        "format": again.kind,
        "same": again.same,
        "seal": again.seal.digest,
        "plan": again.seal.plan,
        "overrides": list(again.seal.overrides),
        "compiler": {"sealed": vars(again.seal.compiler), "installed": vars(again.installed)},
        "totals": [vars(change) for change in again.totals],
        "layouts": list(again.layouts),
        "books": again.books,
        "page": again.page,
        "library": {
            "files": list(again.files),
            "totals": [vars(change) for change in again.with_library],
            "refused": again.refused,
        },
    }


def _is_alike(before: float, after: float) -> bool:
    """Integers are equal; of other numbers the last digits are the machine's."""
    are_integers = isinstance(before, int) and isinstance(after, int)
    return before == after or (not are_integers and isclose(before, after, rel_tol=TOLERANCE))


def _page_status(path: Path, content: bytes, compiled: Compiled, seal: Seal, search: Recommendations | None) -> str:
    """Whether the file is what is printed now; SpecError where nothing can be printed from its seal."""
    kind = kind_of(content)
    try:
        now = REPORT_WRITERS[kind](assemble_report(compiled, (kind,), search, seal))
    except NOT_PRINTED as error:
        if search is None:
            raise
        message = "the seal is damaged: its recommendations lack what a page prints of them"
        raise SpecError([Problem(Location(str(path)), message, HELP)]) from error
    if not same_page(kind, content, now):
        return DIFFERS
    return WORDS if kind == "pdf" and content != now else SAME


def _other_layouts(plan: Plan, search: Recommendations) -> Iterator[str]:
    """Recommended layouts that have other totals, or are refused, when they are compiled by themselves."""
    named = {**search.by_reason(), **({"nearest": search.nearest} if search.nearest else {})}
    for name, layout in named.items():
        if not _is_reproduced(plan, layout):
            yield name


def _is_reproduced(plan: Plan, layout: Recommendation) -> bool:
    draft = read_with_overrides(plan, assignments(layout.changes))
    if draft.plan is None or draft.problems:
        return False
    now = {key: float(value) for key, value in compile_plan(draft.plan).totals.items()}
    return all(key in now and _is_alike(float(value), now[key]) for key, value in layout.totals.items())


def _installed_text(file: SealedFile) -> str | None:
    path = installed_specs() / file.name.removeprefix(f"{OWN_FOLDER}/")
    return path.read_bytes().decode("utf-8-sig") if path.is_file() else None


def _compare_with_library(again: Reproduction) -> Reproduction:
    """The reproduction with the totals that the plan has under the installed library."""
    root = installed_specs()
    texts = {file.name: file for file in again.seal.files if not file.of_library or file.name == again.seal.plan}
    for path in root.rglob("*"):
        if path.suffix not in {".yaml", ".csv"}:
            continue
        name = f"{OWN_FOLDER}/{path.relative_to(root).as_posix()}"
        texts.setdefault(name, SealedFile(name, path.read_bytes().decode("utf-8-sig"), of_library=True))
    try:
        with opened(replace(again.seal, files=tuple(texts.values()))) as plan:
            now = show_record(compile_plan(plan), again.seal.name)["totals"]
    except SpecError as error:
        return replace(again, refused=str(error.problems[0]))
    return replace(again, with_library=tuple(total_changes(again.seal.totals, now)))


# --- the seal inside a report's file ---

LARGEST_REPORT = 64_000_000  # bytes
MOST_VALUES = 1_000_000  # of JSON; a report has some ten thousand
DEFLATED = (None, "/FlateDecode", ["/FlateDecode"])  # how attachments of a report are packed
OPENING, CLOSING = b'<script type="application/json" id="seal">', b"</script>"
CARRIERS = "the HTML, PDF and JSON of a report carry what it was made from; Markdown names the files only"


class NoSealError(ValueError):
    """Why a file carries no seal."""


def carried_seal(path: Path, content: bytes) -> tuple[str, Seal]:
    """The format of a report (html, pdf or json) and its seal; SpecError for what carries none, or a damaged one."""
    kind = kind_of(content)
    try:
        record, attached = READERS[kind](content)
    except NoSealError as error:
        raise SpecError([Problem(Location(str(path)), f"no sealed report: {error}", CARRIERS)]) from error
    except (ValueError, RecursionError) as error:
        raise SpecError([Problem(Location(str(path)), f"the seal cannot be read: {error}", HELP)]) from error
    return kind, read_seal(record, str(path), attached)


def kind_of(content: bytes) -> str:
    """Which of the formats that carry a seal a file begins like; html for any other text."""
    start = content[:1024].lstrip()
    return "pdf" if start.startswith(b"%PDF-") else "json" if start.startswith(b"{") else "html"


SealTexts = tuple[Any, Mapping[str, str] | None]  # the record, and the texts of its files that stand beside it


def _html_seal(content: bytes) -> SealTexts:
    before, opening, following = content.partition(OPENING)
    block, closing, after = following.partition(CLOSING)
    if not opening or not closing:
        raise NoSealError("it has no seal")
    if OPENING in after or not before.lstrip().lower().startswith(b"<!doctype html"):
        raise NoSealError("it is not as a report is written")
    return _parse_json(block), None


def _json_seal(content: bytes) -> SealTexts:
    record = _parse_json(content)
    if not isinstance(record, Mapping) or "seal" not in record:
        raise NoSealError("it has no seal")
    return record["seal"], None


def _pdf_seal(content: bytes) -> SealTexts:
    attached = pdf_attachments(content)
    if SEAL not in attached:
        raise NoSealError("it has no seal attached")
    texts = {name: text.decode() for name, text in attached.items() if name.startswith(SEALED)}
    return _parse_json(attached[SEAL]), {name.removeprefix(SEALED): text for name, text in texts.items()}


def _parse_json(content: bytes) -> Any:
    """The values of a text of JSON; NoSealError where it has far more of them than any report."""
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MOST_VALUES:
        raise NoSealError(f"it has more than {MOST_VALUES} values")
    return json.loads(content)


def pdf_attachments(content: bytes) -> dict[str, bytes]:
    """The attachments of a PDF by name; ValueError where it cannot be read, or has two of a name."""
    from pypdf import PdfReader

    texts: dict[str, bytes] = {}
    size = 0
    try:
        for attachment in PdfReader(BytesIO(content)).attachment_list:
            forms: Any = attachment.pdf_object["/EF"]
            if not all(forms[form].get_object().get("/Filter") in DEFLATED for form in forms):
                break  # other packings unfold beyond bounds
            text = bytes(attachment.content)
            size += len(text)
            if attachment.name in texts or size > LARGEST_REPORT:
                break
            texts[attachment.name] = text
        else:
            return texts
    except Exception as error:  # whatever a damaged file makes the library raise
        raise ValueError(str(error) or type(error).__name__) from error
    raise NoSealError("its attachments are too large, are packed as no report packs them, or two have one name")


READERS: Mapping[str, Callable[[bytes], SealTexts]] = {"html": _html_seal, "pdf": _pdf_seal, "json": _json_seal}


# --- comparison of two pages ---

TOLERANCE = 1e-9  # relative, of numbers
NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")


def same_page(kind: str, old: bytes, new: bytes) -> bool:
    """Whether two files of a format have equal texts, of a PDF those of its pages; looks are not compared."""
    if old == new:
        return True
    if kind == "pdf":
        return all(
            same_text(first, second) for first, second in zip_longest(_page_texts(old), _page_texts(new), fillvalue="")
        )
    return same_text(old.decode(errors="replace"), new.decode(errors="replace"))


def same_text(old: str, new: str) -> bool:
    """Whether texts differ in the last digits of numbers at most."""
    if old == new:
        return True
    pairs = zip_longest(NUMBER.split(old), NUMBER.split(new))
    return all(
        first == second or (place % 2 and _is_near(first, second)) for place, (first, second) in enumerate(pairs)
    )


def _is_near(old: str | None, new: str | None) -> bool:
    return old is not None and new is not None and isclose(float(old), float(new), rel_tol=TOLERANCE)


def _page_texts(content: bytes) -> list[str]:
    """The text of each page."""
    from pypdf import PdfReader

    return [page.extract_text() for page in PdfReader(BytesIO(content)).pages]
