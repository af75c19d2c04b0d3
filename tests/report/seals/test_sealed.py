"""What a report carries, and that no machine decides a byte of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import jsonschema
import pytest
from pypdf import PdfReader

import ledger
from ledger.report.html import data_block
from ledger.report.seals.gathering import seal_of
from ledger.report.seals.opening import sealed
from ledger.report.seals.reproduction import carried_seal
from ledger.report.seals.seal import published_seal
from ledger.spec.load import load_plan

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ("ledger", "specs", "templates")
# Half of GPT-2's layers, with a device of one's own: files of the plan's folder, and one beside it.
PLAN = """spec: ledger/1
plan: Half of GPT-2 </script><script>alert(1)</script>
accelerator: ../devices/own.yaml
cluster: {base: h100-400g, devices: 8}
model: {base: gpt2, max_seq_len: 2048}
precision: bf16-mixed
parallelism: {data: 8, zero: 1}
run: {tokens: 1B tokens, seq_len: 1024, micro_batch: 4, global_batch: 32}
"""
DEVICE = "spec: ledger/1\nbase: h100-sxm\naccelerator: Ours\n"
IDENTITY = ("-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.org")
DATE = "2001-02-03T04:05:06+07:00"


def git(top: Path, *arguments: str) -> None:
    """Runs git in a work tree, at a date of its own."""
    dates = {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
    subprocess.run(["git", *IDENTITY, *arguments], cwd=top, check=True, capture_output=True, env=os.environ | dates)


def own_files(folder: Path) -> Path:
    """A plan in a folder, and the device that it names in another beside it."""
    for name, text in (("plans/half.yaml", PLAN), ("devices/own.yaml", DEVICE)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder / "plans" / "half.yaml"


def repository(top: Path, *, with_package: bool = False) -> Path:
    """A work tree with the plan, committed by Ada; its plan."""
    path = own_files(top)
    if with_package:
        for name in PACKAGE:
            shutil.copytree(ROOT / name, top / name, ignore=shutil.ignore_patterns("schemas"))
        shutil.copytree(ROOT / "ledger/cli/schemas", top / "ledger/cli/schemas")
    git(top, "init", "--quiet", "--initial-branch=main")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "--message=A plan")
    return path


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """The plan in a repository."""
    return repository(tmp_path / "ours")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of the plan in a repository, with smaller micro-batches, by format."""
    folder = tmp_path_factory.mktemp("reports")
    path = repository(folder / "ours")
    written = ledger.write_report(path, folder / "out", overrides="run.micro_batch=2", search=False)
    return {path.suffix[1:]: path for path in written}


def test_two_checkouts_write_the_same_bytes(tmp_path: Path) -> None:
    """Path, working folder, home, user, language and time zone are no part of a report, in any of its formats."""
    first, second = tmp_path / "one", tmp_path / "elsewhere" / "deep" / "two"
    written = {}
    for top, here, zone, user in ((first, first, "UTC", "ada"), (second, tmp_path, "Asia/Tokyo", "grace")):
        path = repository(top, with_package=True)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(top), "TZ": zone, "USER": user, "LOGNAME": user}
        environment |= {"HOME": str(tmp_path / user), "LANG": "C" if user == "ada" else "C.UTF-8", "LEDGER_SEARCH": "0"}
        typed = os.path.relpath(path, here)
        out = tmp_path / "out" / user
        command = [sys.executable, "-m", "ledger", "report", typed, "--out", str(out), "--set", "run.micro_batch=2"]
        subprocess.run(command, cwd=here, env=environment, check=True, capture_output=True)
        written[user] = {file.name: file.read_bytes() for file in out.iterdir()}
    assert written["ada"].keys() == {"half.html", "half.pdf", "half.md", "half.json"}
    assert written["ada"] == written["grace"]
    for name in ("half.html", "half.md", "half.json"):
        assert str(tmp_path).encode() not in written["ada"][name]


def test_everything_that_a_plan_resolved_to_is_in_the_seal(plan: Path) -> None:
    """Its own file, that of a device beside it, the bases of both, parts by name, the price, the evidence."""
    seal = seal_of(load_plan(plan))
    names = {one.name for one in seal.files}
    assert {"plans/half.yaml", "devices/own.yaml"} < names
    parts = ("accelerators/h100-sxm", "clusters/h100-400g", "models/gpt2", "precisions/bf16-mixed", "prices/h100-sxm")
    assert {f"specs/{part}.yaml" for part in parts} < names
    assert {"specs/optimizers/adamw.yaml", "specs/evidence/published-runs-predicted.csv"} < names
    assert {one.name for one in seal.files if not one.of_library} == {"plans/half.yaml", "devices/own.yaml"}
    for one in seal.files:
        there = ROOT if one.of_library else plan.parents[1]
        assert one.text == (there / one.name).read_text("utf-8")


def test_the_revision_and_the_authors_are_git_s(plan: Path) -> None:
    """The commit with its own date; what differs from it is said; a plan that git does not have has neither."""
    found = seal_of(load_plan(plan)).revision
    assert found is not None
    assert (len(found.commit), found.date, found.changed, found.authors) == (40, DATE, False, ("Ada Lovelace",))
    (plan.parents[1] / "devices" / "own.yaml").write_text(DEVICE + "# ours\n", "utf-8")
    changed = seal_of(load_plan(plan)).revision
    assert changed is not None
    assert (changed.commit, changed.changed) == (found.commit, True)
    other = plan.with_name("other.yaml")
    other.write_text(PLAN, "utf-8")
    assert seal_of(load_plan(other)).revision is None


def test_outside_a_repository_places_begin_at_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No revision, and a file beside the plan's folder is called so that nothing of the machine is told."""
    path = own_files(tmp_path)
    monkeypatch.setattr("ledger.report.seals.gathering.checkout", lambda _: None)
    loaded = load_plan(path)
    with sealed(loaded) as (same, seal):
        assert seal is not None
        assert seal.revision is None
        assert same.origins["run.micro_batch"].where.file == "half.yaml"
        assert same.origins["accelerator.spec"].where.file == "elsewhere/own.yaml"
        assert same.digest == loaded.digest
    assert str(tmp_path) not in json.dumps(published_seal(seal))


def test_overrides_are_listed_and_made(plan: Path) -> None:
    """The text that is attached is the plan that was compiled; what is typed as a path is a file of the seal."""
    settings = ["run.micro_batch=2", "model={base: gpt2, vocab: 50304}"]
    loaded = load_plan(plan, settings)
    with sealed(loaded) as (same, seal):
        assert seal is not None
    assert seal.overrides == tuple(settings)
    plan.write_text(seal.effective, "utf-8")
    again = load_plan(plan)
    assert (again.run.micro_batch, again.model.vocab, again.digest) == (2, 50304, same.digest)
    typed = load_plan(plan, [f"accelerator={plan.parents[1] / 'devices' / 'own.yaml'}"])
    assert seal_of(typed).overrides == ("accelerator=devices/own.yaml",)


def test_the_pdf_has_each_file_attached(reports: dict[str, Path]) -> None:
    """Any reader of PDFs gets at the plan with its overrides, and at every file by its name."""
    content = reports["pdf"].read_bytes()
    attached = {name: content for name, (content,) in PdfReader(BytesIO(content)).attachments.items()}
    assert b"micro_batch: 2" in attached["half.yaml"]
    record = json.loads(attached["seal.json"])
    names = {one["name"] for one in record["files"]}
    assert {f"sealed/{name}" for name in names} == attached.keys() - {"half.yaml", "seal.json"}
    assert attached["sealed/plans/half.yaml"] == PLAN.encode()


def test_three_formats_carry_the_same_seal_and_markdown_names_it(reports: dict[str, Path]) -> None:
    """A reader of any of them has the same files; Markdown has their digests, and that of the seal."""
    seals = {carried_seal(reports[kind], reports[kind].read_bytes())[1].digest for kind in ("html", "pdf", "json")}
    assert len(seals) == 1
    shown = json.loads(reports["json"].read_text("utf-8"))
    jsonschema.validate(shown, json.loads((ROOT / "ledger/cli/schemas/show.schema.json").read_text("utf-8")))
    text = reports["md"].read_text("utf-8")
    assert seals.pop()[:12] in text
    assert "| devices/own.yaml |" in text
    assert "Ada Lovelace" in text


def test_nothing_in_a_plan_ends_the_block_of_data(reports: dict[str, Path]) -> None:
    """A title with markup is data in the page: there is one seal, one script, and no other."""
    path = reports["html"]
    page = path.read_text("utf-8")
    assert page.count("<script") == page.count("</script>") == 2
    assert "alert(1)</script>" not in page
    assert carried_seal(path, page.encode())[1].files[-1].text
    hostile = {"text": "</script><!-- <script>\u2028&amp;"}
    assert not {"<", ">", "&", "\u2028"} & {*data_block(hostile)}
    assert json.loads(data_block(hostile)) == hostile
