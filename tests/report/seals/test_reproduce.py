"""A report made again from what it carries: the same, another, or none that can be believed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from pypdf import PdfWriter
from pypdf.generic import ArrayObject, NameObject, StreamObject

import ledger
from ledger.cli import main
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.report.seals import opening, reproduction
from ledger.report.seals.reproduction import CLOSING, MOST_VALUES, OPENING, same_text
from ledger.report.seals.seal import read_seal, record_digest, seal_schema
from ledger.spec.library import installed_specs
from ledger.spec.problems import SpecError

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "ledger" / "cli" / "schemas" / "reproduce.schema.json"
Record = dict[str, Any]


def reproduce(path: Path, *options: str) -> Result:
    """What the command line says of a report."""
    return CliRunner().invoke(main, ["reproduce", str(path), *options], prog_name="ledger")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of GPT-2 with smaller micro-batches, by format."""
    out = tmp_path_factory.mktemp("reports")
    paths = ledger.write_report("gpt2", out, overrides="run.micro_batch=6", search=False)
    return {path.suffix[1:]: path for path in paths}


@pytest.fixture
def record(written: dict[str, Path]) -> Record:
    """The seal as JSON."""
    found: Record = json.loads(written["json"].read_text("utf-8"))["seal"]
    return found


@pytest.fixture
def with_seal(written: dict[str, Path], tmp_path: Path) -> Callable[[Record], Path]:
    """The page with another seal in it, under that seal's own digest."""

    def write(record: Record, *, digest: bool = True) -> Path:
        unsealed = {key: value for key, value in record.items() if key != "digest"}
        bare = {**unsealed, "files": [{k: v for k, v in one.items() if k != "text"} for one in unsealed["files"]]}
        made = {**unsealed, "digest": record_digest(bare) if digest else record["digest"]}
        page = written["html"].read_bytes()
        before, _, rest = page.partition(OPENING)
        text = json.dumps(made, ensure_ascii=not digest).replace("<", "\\u003c").encode()
        path = tmp_path / "changed.html"
        path.write_bytes(before + OPENING + text + CLOSING + rest.partition(CLOSING)[2])
        return path

    return write


@pytest.mark.parametrize("kind", ["html", "pdf", "json"])
def test_a_report_alone_says_the_same(written: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """Far from every file that it was made from: exit code 0, every word compared."""
    path = tmp_path / f"mail.{kind}"
    path.write_bytes(written[kind].read_bytes())
    result = reproduce(path, "--json")
    found = json.loads(result.stdout)
    jsonschema.validate(found, json.loads(SCHEMA.read_text("utf-8")))
    assert (result.exit_code, found["same"], found["page"], found["books"]) == (0, True, "same", "same")
    assert (found["plan"], found["overrides"]) == ("specs/gpt2.yaml", ["run.micro_batch=6"])
    assert ledger.reproduce(path) == found


def test_markdown_is_refused_with_what_carries_a_seal(written: dict[str, Path]) -> None:
    """It names its files and has none of them."""
    result = reproduce(written["md"])
    assert result.exit_code == 2
    assert "HTML, PDF and JSON" in result.stderr


def test_another_total_is_told(record: Record, with_seal: Callable[[Record], Path]) -> None:
    """A report that says another number than its files make: both, and exit code 1."""
    step = record["totals"]["time.step"]
    result = reproduce(with_seal({**record, "totals": {**record["totals"], "time.step": 2 * step}}))
    assert result.exit_code == 1
    assert f"differs: 1 of {len(record['totals'])} totals" in result.stdout
    assert re.search(r"time\.step .*−50\.00\s%", result.stdout)


def test_a_number_changed_on_the_page_is_found(written: dict[str, Path], tmp_path: Path) -> None:
    """The seal is sound, and the page says something else than is printed from it."""
    page = written["html"].read_text("utf-8")
    (shown,) = set(re.findall(r'data-key="memory\.reserved">([^<]+)</data>', page))
    path = tmp_path / "prettier.html"
    path.write_text(page.replace(f">{shown}</data>", ">1.00 GB</data>"), "utf-8")
    result = reproduce(path)
    assert result.exit_code == 1
    assert "does not say what is printed from its seal" in result.stdout


def test_a_page_that_is_painted_over_is_not_called_the_same(written: dict[str, Path], tmp_path: Path) -> None:
    """The words are all there; what lies over them is not compared, which is said."""
    writer = PdfWriter(clone_from=written["pdf"])
    page, over = writer.pages[0], StreamObject()
    over.set_data(b"q 1 1 1 rg 0 0 2000 2000 re f Q")
    given = page.raw_get("/Contents").get_object()
    listed = given if isinstance(given, ArrayObject) else [page.raw_get("/Contents")]
    page[NameObject("/Contents")] = ArrayObject([*listed, writer._add_object(over)])
    path = tmp_path / "painted.pdf"
    writer.write(path)
    result = reproduce(path)
    assert result.exit_code == 0
    assert "how the pages look was not compared" in result.stdout
    assert json.loads(reproduce(path, "--json").stdout)["page"] == "same words"


@pytest.mark.parametrize("filters", ["/ASCII85Decode", "/LZWDecode"])
def test_attachments_that_unfold_beyond_bounds_are_refused(
    written: dict[str, Path], tmp_path: Path, filters: str
) -> None:
    """A report packs its attachments in one way; others make gigabytes of megabytes."""
    writer = PdfWriter(clone_from=written["pdf"])
    made = writer.add_attachment("seal.json", b"{}")
    packed = StreamObject()
    packed.set_data(b"z" * 1000 + b"~>")
    packed[NameObject("/Filter")] = NameObject(filters)
    made.pdf_object["/EF"][NameObject("/F")] = writer._add_object(packed)  # type: ignore[index]
    path = tmp_path / "packed.pdf"
    writer.write(path)
    result = reproduce(path)
    assert result.exit_code == 2
    assert "packed as no report packs them" in result.stderr


def test_a_record_of_far_too_many_values_is_not_read(tmp_path: Path) -> None:
    """Each empty list is two letters of a file, and some hundred bytes of memory."""
    path = tmp_path / "many.json"
    path.write_bytes(b'{"seal": [' + b"[]," * MOST_VALUES + b"[]]}")
    result = reproduce(path)
    assert result.exit_code == 2
    assert f"more than {MOST_VALUES} values" in result.stderr


@pytest.mark.parametrize("value", [1e-320, -1e59, 5e-324])
def test_totals_beyond_reason_are_told(record: Record, with_seal: Callable[[Record], Path], value: float) -> None:
    """Whatever numbers a seal holds, they differ from those of its files, and are printed."""
    result = reproduce(with_seal({**record, "totals": dict.fromkeys(record["totals"], value)}))
    assert result.exit_code == 1
    assert "differs" in result.stdout


def test_a_seal_is_what_its_schema_says(record: Record) -> None:
    """`ledger schema seal`, held by `jsonschema` alone, takes the seal of a report; with no other field."""
    schema = json.loads(CliRunner().invoke(main, ["schema", "seal"]).stdout)
    jsonschema.validate(record, schema)
    with pytest.raises(jsonschema.ValidationError, match="'note' was unexpected"):
        jsonschema.validate({**record, "note": 1}, schema)


def test_a_seal_has_no_more_totals_than_a_plan(record: Record, with_seal: Callable[[Record], Path]) -> None:
    """Nor more layouts than a page draws."""
    many = {
        **record["totals"],
        **{f"x.{number}": 1 for number in range(seal_schema().content["$defs"]["totals"]["maxProperties"])},
    }
    result = reproduce(with_seal({**record, "totals": many}))
    assert result.exit_code == 2
    assert "totals" in result.stderr


def test_a_changed_library_is_named_with_what_it_moves(
    written: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report still says what its own files make; files that are others here, and the totals with them, are said."""
    library = tmp_path / "specs"
    for path in installed_specs().rglob("*.yaml"):
        copy = library / path.relative_to(installed_specs())
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    cluster = library / "clusters" / "h100-400g.yaml"
    price = library / "prices" / "h100-sxm.yaml"
    cluster.write_text(cluster.read_text("utf-8") + "# reviewed\n", "utf-8")
    # twice the price of an hour: twice the cost of the run, and no other total
    price.write_text(
        re.sub(r"per_device_hour: [\d.]+ USD", "per_device_hour: 4 USD", price.read_text("utf-8")), "utf-8"
    )
    monkeypatch.setattr(reproduction, "installed_specs", lambda: library)
    found = ledger.reproduce(written["html"])
    assert found["same"]
    assert {"specs/clusters/h100-400g.yaml", "specs/prices/h100-sxm.yaml"} <= {*found["library"]["files"]}
    assert {one["key"] for one in found["library"]["totals"]} <= {"cost.run", "cost.run.low", "cost.run.high"}
    (cost,) = (one for one in found["library"]["totals"] if one["key"] == "cost.run")
    assert cost["sealed"] == ledger.compile("gpt2", "run.micro_batch=6").totals["cost.run"]
    printed = reproduce(written["html"]).stdout
    assert "specs/prices/h100-sxm.yaml" in printed
    assert "With the installed library:" in printed


def test_another_compiler_is_named(record: Record, with_seal: Callable[[Record], Path]) -> None:
    """A page that another program printed is not compared with this one's; its totals are."""
    compiler = {"version": "0.0.9", "program": "ab" * 32, "library": record["compiler"]["library"]}
    result = reproduce(with_seal({**record, "compiler": compiler}))
    assert result.exit_code == 0
    assert "ledger 0.0.9 (abababababab) made the report" in result.stdout
    assert "not compared" in result.stdout


def test_recommended_layouts_are_compiled_again(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a search is said to have found is held to the compiler; a layout with a nicer step is named."""
    totals = ledger.compile("gpt2", "parallelism.zero=3").totals
    true = {key: float(totals[key]) for key in ("time.step", "time.run", "memory.reserved", "memory.capacity")}
    honest = Recommendation({"parallelism.zero": 3}, true)
    nicer = replace(honest, totals={**true, "time.step": true["time.step"] / 2})
    for layout, said in ((honest, True), (nicer, False)):
        found = Recommendations(smallest=layout, fastest=layout, front=(layout,), legal=1, fitting=1)
        monkeypatch.setattr("ledger._search_layouts", lambda _, found=found: found)
        (path,) = ledger.write_report("gpt2", tmp_path, "html")
        made = ledger.reproduce(path)
        assert (made["same"], bool(made["layouts"])) == (said, not said)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda seal: seal["files"][0].update(text="spec: ledger/1\n"), "is not the file that was sealed"),
        (lambda seal: seal.update(overrides=["run.micro_batch=1"]), "its digest is not that of what it holds"),
        (lambda seal: seal["totals"].update({"time.step": 1.0}), "its digest is not that of what it holds"),
        (lambda seal: seal.pop("plan"), "`seal` lacks `plan`"),
        (lambda seal: seal.update(schema="ledger-seal/9"), "must be `ledger-seal/1`, not `ledger-seal/9`"),
        (lambda seal: seal.update(files={}), "`seal.files` must be a list, not a mapping"),
        (lambda seal: seal["files"][0].pop("text"), "it lacks the text of `"),
        (lambda seal: seal.update(search={}), "`seal.search` lacks `smallest`"),
        (lambda seal: seal.update(note="\ud800\x1b[2J"), "`note` is no field of `seal`"),
        (lambda seal: seal.update({"\ud800\x1b[2J": 1}), "`\\ud800\\x1b[2J` is no field of `seal`"),
        (lambda seal: seal.update(effective="\ud800"), "surrogates not allowed"),
        (lambda seal: seal["files"].append(deepcopy(seal["files"][0])), "two files"),
        (lambda seal: seal["totals"].update({"time.step": "1"}), "`seal.totals.time.step` must be a number, not `1`"),
        (lambda seal: seal["totals"].update({"time.step": float("nan")}), "must be a number, not `nan`"),
        (lambda seal: seal["totals"].update({"time.step": 10**400}), "must be below 1e+60"),
    ],
)
def test_a_seal_that_was_tampered_with_is_refused(
    record: Record, with_seal: Callable[..., Path], change: Callable[[Record], object], message: str
) -> None:
    """Exit code 2 and the reason: nothing of it is compiled."""
    change(record)
    result = reproduce(with_seal(record, digest=False))
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    "name", ["../x.yaml", "/etc/x.yaml", "a/../../x.yaml", "a\\x.yaml", "./x.yaml", "", "a//x", "x\n"]
)
def test_no_name_leads_out_of_a_seal(record: Record, with_seal: Callable[[Record], Path], name: str) -> None:
    """A name is relative and within the folder that it is unpacked to, whatever digest the seal has."""
    record["files"][0]["name"] = name
    result = reproduce(with_seal(record))
    assert result.exit_code == 2
    assert "seal is damaged" in result.stderr


@pytest.mark.parametrize("reference", ["{outside}", "../../../..{outside}", "HEAD:specs/models/gpt2.yaml"])
def test_a_sealed_plan_reads_no_other_file(record: Record, tmp_path: Path, reference: str) -> None:
    """A path in a sealed plan or in its overrides reaches files of the seal only, also where there is such a file."""
    outside = tmp_path / "outside.yaml"
    outside.write_text((installed_specs() / "models" / "gpt2.yaml").read_text("utf-8"), "utf-8")
    seal = read_seal(record, "report")
    setting = f"model={json.dumps(reference.format(outside=outside))}"
    with (
        pytest.raises(SpecError, match=r"not among the files of the seal|no such file"),
        opening.opened(replace(seal, overrides=(setting,))),
    ):
        pass


@pytest.mark.parametrize(
    "content", [b"", b"%PDF-1.7\n", b"{", b'{"seal": 1}', b"<!doctype html>", b"\xff\xfe", b"[" * 9]
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: bytes) -> None:
    """Exit code 2, and no traceback."""
    path = tmp_path / "file"
    path.write_bytes(content)
    result = reproduce(path)
    assert (result.exit_code, "Traceback" in result.output) == (2, False)


@pytest.mark.parametrize("seal", [b"{}", b'{"files": [{"name": "gone.yaml"}]}', b'{"files": 7}', b"[]", b"no JSON"])
def test_a_pdf_without_its_files_is_refused(tmp_path: Path, seal: bytes) -> None:
    """A seal whose files are not attached, or that is none."""
    writer = PdfWriter()
    writer.add_blank_page(100, 100)
    writer.add_attachment("seal.json", seal)
    writer.write(tmp_path / "some.pdf")
    result = reproduce(tmp_path / "some.pdf")
    assert (result.exit_code, "Traceback" in result.output) == (2, False)


def test_last_digits_are_the_machine_s() -> None:
    """Numbers that differ by rounding are the same, any other letter or digit is not."""
    assert same_text('<data value="0.30000000000000004">', '<data value="0.3">')
    assert not same_text('<data value="0.31">', '<data value="0.3">')
    assert not same_text("a 1", "b 1")
    assert not same_text("1 2", "1")
