"""Plans of the library by what they are of."""

from __future__ import annotations

from pathlib import Path

SPECS = Path(__file__).resolve().parents[1] / "specs"
PLANS = tuple(sorted(SPECS.glob("*.yaml")))
SERVING = tuple(path for path in PLANS if "\nserve:" in path.read_text("utf-8"))
TRAINING = tuple(path for path in PLANS if path not in SERVING)
