"""What the command line loads before it is asked for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import ledger

HEAVY = {"sympy", "torch", "transformers", "weasyprint", "numpy", "jinja2", "jsonschema", "yaml", "rich", "ziamath"}
LOADED = "; import sys; print(' '.join(sorted({name.partition('.')[0] for name in sys.modules})))"


def loaded_by(code: str) -> set[str]:
    """The top-level modules in a fresh interpreter after `code`."""
    done = subprocess.run([sys.executable, "-c", code + LOADED], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_loads_nothing_heavy() -> None:
    """`import ledger` costs nothing until something is compiled."""
    assert not loaded_by("import ledger") & HEAVY


def test_help_loads_nothing_heavy() -> None:
    """`ledger --help`, which also imports every verb, starts at once."""
    found = loaded_by("from ledger.cli import main; main(['--help'], standalone_mode=False)")
    assert "click" in found
    assert not found & HEAVY


def test_module_runs_as_a_program() -> None:
    """`python -m ledger` is the same command line under the same name."""
    done = subprocess.run([sys.executable, "-m", "ledger", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: ledger ")


def test_shells_complete_verbs() -> None:
    """Completion, as click's shell scripts ask for it, knows the verbs."""
    asked = {**os.environ, "_LEDGER_COMPLETE": "bash_complete", "COMP_WORDS": "ledger sh", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "ledger"]
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,show"]


def test_version_is_the_package_s() -> None:
    """The program, the package and the wheel have one version, written in one place; the library goes by its digest."""
    done = subprocess.run([sys.executable, "-m", "ledger", "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"ledger {re.escape(ledger.__version__)}, library [0-9a-f]{{12}}\n", done.stdout)
