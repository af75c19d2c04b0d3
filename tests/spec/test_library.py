from __future__ import annotations

import subprocess
from pathlib import Path

import jsonschema
import pytest

from ledger.evidence.documents import faults
from ledger.spec.kinds import KINDS, schema
from ledger.spec.library import FOLDERS, Library, default_library
from ledger.spec.load import (
    load_accelerator,
    load_cluster,
    load_model,
    load_optimizer,
    load_plan,
    load_precision,
    load_price,
    load_stack,
)
from ledger.spec.near import nearest
from ledger.spec.problems import SpecError
from ledger.spec.reader import read
from tests.spec.shelf import LIBRARY, SMALL, loaded

LOADERS = {
    "accelerator": load_accelerator,
    "cluster": load_cluster,
    "model": load_model,
    "optimizer": load_optimizer,
    "precision": load_precision,
    "price": load_price,
    "stack": load_stack,
}
SHIPPED = [(kind, name) for kind in LOADERS for name in default_library().names(kind)]


@pytest.mark.parametrize(("kind", "name"), SHIPPED)
def test_every_part_of_the_library_is_sound(kind: str, name: str) -> None:
    """What the project ships holds to its own schemas and rules."""
    assert LOADERS[kind](name).name == name


@pytest.mark.parametrize("name", default_library().names("plan"))
def test_every_plan_of_the_library_is_sound(name: str) -> None:
    """The plans that the project ships load, and every value of theirs has a place."""
    plan = load_plan(name)
    assert plan.name == name
    lengths = "serve.prompt" if plan.serve else "run.images" if plan.model.image else "run.seq_len"
    assert {lengths, "model", "accelerator.bandwidth"} <= set(plan.origins)


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_file_of_the_library_says_what_it_is(kind: str) -> None:
    """Each file begins with the version of the language, and has a title for `ledger list`."""
    for entry in default_library().entries(kind):
        assert read(entry.path.read_text("utf-8"), entry.name).fields["spec"].value == "ledger/1"
        assert entry.title != entry.name


def test_measurements_hold_to_their_schema() -> None:
    """A measurement without source and origin is no evidence."""
    for entry in default_library().entries("evidence"):
        assert not faults(read(entry.path.read_text("utf-8"), entry.name), "evidence")


@pytest.mark.parametrize("kind", KINDS)
def test_published_schemas_are_whole(kind: str) -> None:
    """A printed schema is valid, and needs no other file: any JSON Schema validator can use it."""
    jsonschema.Draft202012Validator.check_schema(schema(kind))
    validator = jsonschema.Draft202012Validator(schema(kind))
    assert not validator.is_valid([])
    if kind == "plan":
        assert validator.is_valid(read(SMALL, "x").plain())


@pytest.mark.parametrize("name", default_library().names("accelerator"))
def test_every_accelerator_of_the_library_states_its_generation(name: str) -> None:
    """Kernels and number formats that run on some architectures only are refused where they do not."""
    assert load_accelerator(name).architecture


@pytest.mark.parametrize("name", default_library().names("price"))
def test_every_price_of_the_library_is_found_by_its_device(name: str) -> None:
    """A price is looked up by the name of an accelerator, so its file has that name, and says the same."""
    assert name in default_library().names("accelerator")
    assert load_price(name).accelerator == name


def test_every_cluster_of_the_library_describes_a_device_that_there_is() -> None:
    """A cluster that says of which device its nodes are names one of the library."""
    described = {load_cluster(name).accelerator for name in default_library().names("cluster")}
    assert described - {""} <= set(default_library().names("accelerator"))


def test_the_lecture_asks_the_same_prices() -> None:
    """The lecture states offers by themselves, with their source; they are the library's."""
    (budget,) = (
        entry.fields["budget"]
        for entry in read((default_library().folder("lecture") / "money.yaml").read_text("utf-8"), "money")
        .fields["questions"]
        .items
        if "budget" in entry.fields
    )
    for offer in budget.fields["offers"].items:
        stated: dict[str, object] = {key: node.plain() for key, node in offer.fields.items()}
        known = load_price(str(stated["accelerator"]))
        assert (stated["price"], stated["date"]) == (f"{known.per_device_hour:.2f} USD", known.date)


def test_aliases_name_one_accelerator_or_are_refused() -> None:
    """A spelling in use finds its accelerator; one that two share is a problem that names both."""
    assert load_accelerator("H100-SXM5-80GB", library=LIBRARY).name == "h100-sxm"
    assert load_accelerator("h100_sxm", library=LIBRARY).name == "h100-sxm"
    assert LIBRARY.matching_names("accelerator", "H100") == ("h100-pcie", "h100-sxm")
    with pytest.raises(SpecError, match="`H100` may be `h100-pcie` or `h100-sxm`"):
        load_accelerator("H100", library=LIBRARY)


def test_a_part_may_lie_beside_the_plan(tmp_path: Path) -> None:
    """A name that ends in .yaml is a path relative to the file that has it."""
    (tmp_path / "own.yaml").write_text((LIBRARY.folder("model") / "tiny.yaml").read_text("utf-8"), "utf-8")
    (tmp_path / "plan.yaml").write_text(SMALL.replace("model: tiny", "model: own.yaml"), "utf-8")
    plan = load_plan(tmp_path / "plan.yaml", library=LIBRARY)
    assert (plan.model.name, plan.model.vocab) == ("own", 32000)


def test_a_revision_reads_the_library_of_that_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`REV:path` gives the plan as it was, with the parts as they were, whatever the files say now."""
    for path in LIBRARY.root.rglob("*.yaml"):
        copy = tmp_path / "specs" / path.relative_to(LIBRARY.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text("utf-8"), "utf-8")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    model = tmp_path / "specs" / "models" / "tiny.yaml"
    model.write_text(model.read_text("utf-8").replace("32000", "64000"), "utf-8")
    monkeypatch.chdir(tmp_path)
    library = Library(tmp_path / "specs")
    assert load_plan("specs/small.yaml", library=library).model.vocab == 64000
    then = load_plan("HEAD:specs/small.yaml", library=library)
    assert (then.name, then.model.vocab) == ("small", 32000)
    assert then.origins["model.vocab"].where.file == "HEAD:specs/models/tiny.yaml"


def test_a_library_plan_is_found_by_name() -> None:
    """A plan of the library can be named without its path."""
    named = load_plan("small", library=LIBRARY)
    assert (named.name, named.digest) == ("small", load_plan(LIBRARY.root / "small.yaml", library=LIBRARY).digest)
    assert named.digest == loaded().digest


def test_near_misses_come_first_and_long_lists_are_cut() -> None:
    """Help offers what was probably meant; a thousand names are no help."""
    known = [f"row-{number:04d}" for number in range(1000)]
    assert nearest("row-0001x", known).startswith("did you mean `row-0001`")
    assert nearest("nothing like it", known).endswith("row-0039 and 960 more")
    assert nearest("nothing like it", ["one", "two"]) == "known: one, two"
