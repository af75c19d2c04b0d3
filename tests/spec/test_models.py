"""The library's models against their published configurations, counted by transformers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

MODELS = Path(__file__).parents[2] / "specs" / "models"
CONFIGS = Path(__file__).parent / "published_configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))


def test_every_published_config_has_its_model() -> None:
    """A model cannot lose its check by a renamed file."""
    assert NAMES
    assert set(NAMES) <= {path.stem for path in MODELS.glob("*.yaml")}


@pytest.mark.parametrize("name", NAMES)
def test_the_expected_count_is_what_transformers_builds(
    name: str, parameters_on_meta: Callable[[Mapping[str, Any]], int]
) -> None:
    """The published count in `expect` is that of the published architecture, so a typing error in either shows."""
    spec = yaml.safe_load((MODELS / f"{name}.yaml").read_text())
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    expected = [line["parameters"] for line in spec["expect"] if "parameters" in line]
    assert expected == [parameters_on_meta(config)]
