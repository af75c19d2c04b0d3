"""The order of the stages, and where heavy libraries may be imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.sampled import SAMPLED

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ledger"
CORE_TESTS = [path for path in sorted((ROOT / "tests").rglob("*.py")) if "lab" not in path.parts]
PYTORCH = ("torch", "transformers", "megatron", "transformer_engine")
STAGES = ("spec", "model", "books", "evidence", "report")
# Rooms that use the compiler, and that the compiler knows nothing of.
ROOMS = ("course", "lab", "search")
# library -> the folders or files of the package that may import it
AT_HOME = {
    "sympy": ("model", "books", "evidence", "report", *ROOMS),
    "yaml": ("spec", "evidence", "lab"),
    "jsonschema": ("spec/json_schemas.py",),
    "numpy": ("arithmetic", "evidence", "lab", "search"),
    "pyarrow": ("search/tasks.py", "search/outputs.py"),
    "distributed": ("search/workers.py",),
    "torch": ("lab",),
    "transformers": ("lab",),
    "megatron": ("lab/judges/megatron",),
    "transformer_engine": ("lab/judges/megatron",),
    "weasyprint": ("report/pdf.py",),
    "pypdf": ("report/seals",),
    "jinja2": ("report",),
    "click": ("cli",),
    "rich": ("cli",),
}


def modules() -> list[str]:
    """Every module of the package, as a path below it."""
    return sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("module", [name for name in modules() if "/" in name and not name.startswith("cli/")])
def test_a_stage_imports_itself_and_earlier_stages_only(module: str) -> None:
    """The pipeline has one direction, so that a stage can be read, tested and replaced alone."""
    room = module.partition("/")[0]
    allowed = (
        *(STAGES[: STAGES.index(room) + 1] if room in STAGES else (*STAGES, room)),
        "arithmetic",
        "price_forms",
        "numbers",
        "units",
        "__version__",
        "whole_files",
        "caches",
        "processes",
        "mistakes",
    )  # what rules compute with, how numbers, files and mistakes are written, how processes end, and the version
    for name in imported(PACKAGE / module):
        first, _, rest = name.partition(".")
        if first == "ledger":
            assert rest.split(".")[0] in allowed, f"{module} imports {name}"


@pytest.mark.parametrize("module", modules())
def test_libraries_stay_where_they_belong(module: str) -> None:
    """Reading needs no algebra, algebra no YAML, and only the stages that need a heavy library load it."""
    for name in imported(PACKAGE / module):
        home = AT_HOME.get(name.partition(".")[0])
        assert home is None or module.startswith(home), f"{module} imports {name}"


def test_what_is_sampled_is_there() -> None:
    """Each test of which `make test` runs a part is one of these, by file and name."""
    for key in SAMPLED:
        path, _, name = key.partition("::")
        assert not name or f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), key


def test_no_modules_import_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module can be read after those that it imports, also inside functions and for types."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    house = import_module("house")
    assert house.cycles(house.House(ROOT), lazy=True, types=True) == []


@pytest.mark.parametrize("path", CORE_TESTS, ids=lambda path: str(path.relative_to(ROOT / "tests")))
def test_core_tests_import_no_pytorch(path: Path) -> None:
    """What asks PyTorch is in `tests/lab`, so that the rest can be run where it is not installed."""
    for name in imported(path):
        assert name.partition(".")[0] not in PYTORCH, f"{path} imports {name}"
        assert not name.startswith("tests.lab"), f"{path} imports {name}"


@pytest.mark.parametrize("name", PYTORCH)
def test_core_tests_see_no_pytorch(name: str) -> None:
    """Here it cannot be imported, however that is asked for."""
    with pytest.raises(ImportError):
        import_module(name)
