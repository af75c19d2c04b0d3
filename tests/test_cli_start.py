"""What the command line loads before it is asked for anything."""

from __future__ import annotations

import subprocess
import sys

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
