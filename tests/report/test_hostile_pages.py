"""Pages and comments of hostile inputs, as a browser sees them: nothing runs, nothing loads, nothing leaves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BROWSER = os.environ.get("CHROMIUM", "/usr/bin/chromium")
DRIVER = Path(sys.prefix) / "browser" / "node_modules"


@pytest.mark.long
def test_nothing_runs_loads_or_leaves(tmp_path: Path) -> None:
    """Of a plan, its parts, a table of runs, evidence and a lecture, each text of which is an attack."""
    if not Path(BROWSER).exists() or shutil.which("node") is None:
        pytest.skip("no Chromium here, or no Node to drive it")
    if not (DRIVER / "playwright-core").is_dir():
        pytest.skip("what drives Chromium is not installed: `make hostile-pages` installs it")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        pages = list(import_module("hostile_pages").pages(tmp_path))
    assert len(pages) > 10
    done = subprocess.run(
        [str(ROOT / "scripts" / "hostile-pages"), *map(str, pages)],
        env=os.environ | {"NODE_PATH": str(DRIVER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 ran, 0 requests, 0 dialogs, 0 windows, 0 errors, 0 left; 0 wrong" in done.stdout
