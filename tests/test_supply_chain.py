"""What is installed, built and run comes from files whose digests are written down, and may do what it needs."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
PINNED = sorted(path.name for path in REQUIREMENTS.glob("*.txt"))
WORKFLOWS = sorted(path.name for path in (ROOT / ".github" / "workflows").glob("*.yml"))
ENTRY = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[A-Za-z0-9.+!]+)(?P<marker> ; [^\\]+)?")
INSTALLERS = ("Makefile", "scripts/lock", "scripts/audit", "scripts/try-wheel", "scripts/wheel", "scripts/pull-request")


def entries(name: str) -> dict[str, tuple[str, int]]:
    """By package of a file, its version and how many digests it has."""
    found: dict[str, tuple[str, int]] = {}
    text = (REQUIREMENTS / name).read_text("utf-8").replace(" \\\n", " ")
    for line in text.splitlines():
        if line.startswith(("#", "--")):
            continue
        entry = ENTRY.match(line)
        assert entry, line
        digests = re.findall(r"--hash=sha256:[0-9a-f]{64}(?= |$)", line)
        assert line.count("--hash") == len(digests)
        found[entry["name"]] = (entry["version"], len(digests))
    return found


@pytest.mark.parametrize("name", PINNED)
def test_every_package_has_its_digests(name: str) -> None:
    """And the file itself says that pip must ask for them."""
    assert (REQUIREMENTS / name).read_text("utf-8").splitlines()[1] == "--require-hashes"
    assert all(digests for _, digests in entries(name).values())


@pytest.mark.parametrize("name", [name for name in PINNED if name != "judges.txt"])
def test_no_source_is_built_but_one(name: str) -> None:
    """A build may run anything and fetch more; DeepSpeed alone comes as source, and is built with what is there."""
    assert (REQUIREMENTS / name).read_text("utf-8").splitlines()[2] == "--only-binary :all:"


def test_files_that_share_an_environment_agree() -> None:
    """What the report needs, what builds it and what the tests need are installed one after the other."""
    everything = {name: version for name, (version, _) in entries("test.txt").items()}
    for name in ("report.txt", "build.txt", "pictures.txt", "judges.txt"):
        for package, (version, _) in entries(name).items():
            assert everything.get(package, version) == version, f"{package} in {name}"
    assert entries("report.txt").keys() <= everything.keys()


def test_pytorch_is_one_version_with_digests_of_each_index() -> None:
    """The CPU build has a label and an index of its own; without it PyPI's build with CUDA's libraries is taken."""
    version = entries("torch.txt")["torch"][0]
    assert entries("torch-cpu.txt").keys() == {"torch"}
    assert entries("torch-cpu.txt")["torch"][0] == f"{version}+cpu"
    # Python 3.11 to 3.14, each on x86_64 and aarch64
    assert entries("torch-cpu.txt")["torch"][1] >= 4 * 2
    assert "torch" not in entries("test.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"torch=={version}" in project["optional-dependencies"]["evidence"]


def test_the_package_is_built_with_what_is_pinned() -> None:
    """`--no-build-isolation` takes what requirements/build.txt has."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    assert asked == [f"hatchling=={entries('build.txt')['hatchling'][0]}"]


@pytest.mark.parametrize("name", INSTALLERS)
def test_no_install_goes_around_the_digests(name: str) -> None:
    """Every call of pip asks for digests, or fetches nothing."""
    text = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
    calls = re.findall(r'^.*(?:\bpip (?:install|wheel|download)|\{pip\[@\]\}").*$', text, re.MULTILINE)
    assert calls
    for call in (line for line in calls if not re.match(r"\s*(?:#|local pip=)", line)):
        assert "--require-hashes" in call or "--no-index" in call, call
    assert "npm install" not in text


def test_what_opens_pages_is_pinned_by_digest() -> None:
    """The lock file of the browser's packages has an integrity for each, and no script of theirs runs."""
    lock = json.loads((ROOT / "scripts" / "browser" / "package-lock.json").read_text("utf-8"))
    asked = json.loads((ROOT / "scripts" / "browser" / "package.json").read_text("utf-8"))["dependencies"]
    packages = {path.rpartition("/")[2]: one for path, one in lock["packages"].items() if path}
    assert {name: one["version"] for name, one in packages.items()} == asked
    assert all(one["integrity"].startswith("sha512-") for one in packages.values())
    assert re.search(r"npm ci .*--ignore-scripts", (ROOT / "Makefile").read_text("utf-8"))


@pytest.mark.parametrize("name", [*WORKFLOWS, "action.yml", "docs/pull-requests.md"])
def test_actions_are_pinned_to_commits(name: str) -> None:
    """A tag can be moved, a commit cannot; the comment says which version it is."""
    path = ROOT / name if "." in name and (ROOT / name).is_file() else ROOT / ".github" / "workflows" / name
    used = re.findall(r"uses: (?!\./|OWNER/)(.*)", path.read_text("utf-8"))
    assert used
    for one in used:
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one), one


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_may_read_and_no_more(name: str) -> None:
    """What writes is one job, which says so; no token is left in the checkout, and no event is a part of a command."""
    text = (ROOT / ".github" / "workflows" / name).read_text("utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    written = {job: one["permissions"] for job, one in workflow["jobs"].items() if "permissions" in one}
    assert written == ({"publish": {"contents": "write"}} if name == "release.yml" else {})
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    assert not any("${{" in step.get("run", "") for step in steps)
    assert "pull_request_target" not in text


def test_dependencies_are_audited_by_the_week() -> None:
    """The workflow is scheduled, and looks at every file that something is installed from."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "audit.yml").read_text("utf-8"))
    assert workflow[True]["schedule"]  # YAML 1.1 reads `on` as true
    (names,) = re.findall(r"for name in (.*); do", (ROOT / "scripts" / "audit").read_text("utf-8"))
    assert {*names.split(), "torch-cpu"} == {name.removesuffix(".txt") for name in PINNED}


def test_fonts_bring_their_licence() -> None:
    """The text lies beside them, names who made them, and goes into the wheel as a licence."""
    text = (ROOT / "templates" / "fonts" / "OFL.md").read_text("utf-8")
    assert "SIL OPEN FONT LICENSE Version 1.1" in text
    assert "Adobe" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "templates/fonts/OFL.md" in project["license-files"]
    assert project["license"] == "Apache-2.0 AND OFL-1.1"
