"""`ledger import`: the command around the translation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

CommandLine = Callable[..., Result]

# config.json of openai-community/gpt2 on Hugging Face, the fields that give the model its shape
GPT2 = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "vocab_size": 50257,
}


@pytest.mark.parametrize("given", [".", "config.json"])
def test_folder_and_file_are_the_same(command_line: CommandLine, given: str) -> None:
    """A downloaded model is a folder; its config.json may be named as well."""
    Path("config.json").write_text(json.dumps(GPT2), encoding="utf-8")
    spec = json.loads(command_line("import", given, "--json").stdout)
    assert (spec["d_model"], spec["vocab"], spec["layers"][0]["repeat"]) == (768, 50257, 12)
    assert command_line("import", given).stdout.startswith("spec: ledger/1\n")


def test_a_missing_configuration_is_bad_input(command_line: CommandLine) -> None:
    """Exit code 2 with the name that was typed, and nothing on stdout to be mistaken for a spec."""
    result = command_line("import", "nowhere.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nowhere.json" in result.stderr
