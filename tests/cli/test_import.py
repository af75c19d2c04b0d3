"""`ledger import`: the command around the translation."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import Result

import ledger
from ledger.books.counts import with_token_count
from ledger.report.recommendations import Recommendation, Recommendations
from ledger.search.extent import Extent
from ledger.search.first_plan import Start, first_plan, runnable, start_text
from ledger.search.recommendation_cache import recommendations
from ledger.spec.imports.huggingface.config import config_model
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan

CommandLine = Callable[..., Result]
PUBLISHED = sorted((Path(__file__).resolve().parents[1] / "spec" / "published_configs").glob("*.json"))

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


def test_layers_that_transformers_does_not_build_are_told_with_counts(command_line: CommandLine) -> None:
    """DeepSeek-V3's card counts 671B of the main model (deepseek-ai/DeepSeek-V3, README, Model Summary).

    Its module is a layer of the last kind, 11.5 billion: 58 such layers, 3 dense ones and both ends make up the 671.
    """
    config = next(path for path in PUBLISHED if path.stem == "deepseek-v3")
    result = command_line("import", str(config))
    assert "`num_nextn_predict_layers` is 1: transformers builds no such layer" in result.stderr
    assert "671 billion parameters, 683 billion with it" in result.stderr
    assert "help: `multi_token: {depth: 1}` in the model adds it" in result.stderr
    assert "multi_token" not in result.stdout


# A Llama of two layers: 4 x 64^2 of attention, 3 x 64 x 128 of MLP, two norms of 64 each; one more norm, and embedding
# and head of 256 x 64.
SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 16384,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 256,
}
PARAMETERS = 2 * (4 * 64**2 + 3 * 64 * 128 + 2 * 64) + 64 + 2 * 256 * 64


@pytest.fixture
def small(command_line: CommandLine) -> CommandLine:
    """The command line in a folder with the small Llama."""
    Path("config.json").write_text(json.dumps(SMALL), encoding="utf-8")
    return command_line


def test_a_configuration_becomes_a_whole_plan(small: CommandLine) -> None:
    """It compiles, passes, and has the fastest layout that a search of the same plan finds."""
    text = small("import", ".", "--plan", "--devices", "2").stdout
    Path("plan.yaml").write_text(text, encoding="utf-8")
    plan = yaml.safe_load(text)
    assert plan["plan"] == "Llama, 2 layers of 64 on 2 NVIDIA H100 SXM5 80 GB"
    assert plan["run"]["tokens"] == "20 a parameter"
    assert plan["run"]["seq_len"] == 8192
    result = small("check", "plan.yaml", "--no-search")
    assert result.exit_code == 0, result.output
    fastest = recommendations(ledger.compile("plan.yaml").plan, extent=Extent(all_layouts=False)).fastest
    assert fastest is not None
    assert fastest.changes == {}


def test_what_a_plan_assumes_is_a_comment_above_it(small: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but what the file and the user say: the model, the number of devices, and their name where it is given."""
    monkeypatch.setattr("ledger.cli.progress.search_layouts", lambda *_, **__: None)
    lines = small("import", ".", "--plan", "--devices", "12").stdout.splitlines()
    above = {line.partition(":")[0]: before for before, line in itertools.pairwise(lines) if before.startswith("# ")}
    assert all(comment.startswith("# assumed: ") for comment in above.values())
    del above["# assumed"]  # several lines above one key
    assert set(above) == {"accelerator", "cluster", "precision", "optimizer", "stack", "parallelism", "run"}
    named = small("import", ".", "--plan", "--devices", "12", "--accelerator", "mi300x").stdout
    assert "# assumed: the device" in "\n".join(lines)
    assert "# assumed: the device" not in named
    assert yaml.safe_load(named)["cluster"] == {"devices": 12, "devices_per_node": 4}
    assert yaml.safe_load(named)["accelerator"] == "mi300x"


def test_a_plan_that_fits_nowhere_has_the_layout_that_misses_least(
    small: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a note on standard error, so that it is not taken for one that fits."""
    near = Recommendation({"recompute": "full"}, {"memory.reserved": 99e9})
    monkeypatch.setattr("ledger.cli.progress.search_layouts", lambda *_, **__: Recommendations(nearest=near, legal=7))
    result = small("import", ".", "--plan", "--devices", "1")
    assert yaml.safe_load(result.stdout)["recompute"] == "full"
    assert "# assumed: what misses least of 7 legal layouts tried, of which 0 fit" in result.stdout
    assert "note: no layout leaves the headroom free on so many devices; the one that misses least needs 99.0 GB" in (
        result.stderr
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--plan"], "how many there are is told by --devices"),
        (["--accelerator", "l4"], "--accelerator is for `--plan` of a config.json"),
        (["--devices", "8"], "--devices is for `--plan`: a model has none"),
    ],
)
def test_what_a_first_plan_needs_is_asked_for(small: CommandLine, options: list[str], said: str) -> None:
    """Nothing is guessed that only the user knows."""
    result = small("import", ".", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_misspelt_device_is_bad_input(small: CommandLine) -> None:
    """With the names that may have been meant."""
    result = small("import", ".", "--plan", "--devices", "8", "--accelerator", "h100-smx")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean `h100-sxm`" in result.stderr


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_model_has_a_first_plan(path: Path) -> None:
    """Whatever its attention and its experts need: a plan that no rule refuses, on a number that few degrees divide."""
    start = runnable(Start(config_model(path).document, 24), str(path))
    for degree in start.expert_degrees:
        plan = load_plan(start_text(replace(start, expert=degree)))
        assert (plan.cluster.devices, plan.parallelism.data, plan.parallelism.expert) == (24, 24, degree)


def test_a_search_begins_with_experts_split_where_that_fits(small: CommandLine) -> None:
    """Whole experts of a large model fit nowhere, and a search that is cut short sees what is like its plan alone."""
    path = next(path for path in PUBLISHED if path.stem == "mixtral-8x22b")
    seen: list[Plan] = []
    first_plan(Start(config_model(path).document, 64), str(path), seen.append)
    assert seen[0].parallelism.expert == 8
    # model.safetensors.index.json of mistralai/Mixtral-8x22B-v0.1: total_size 281241268224 B at 2 B a value
    counted = with_token_count(seen[0]).run.token_count
    assert counted == 20 * 281241268224 // 2


def test_a_model_that_nothing_runs_is_told_in_its_file(small: CommandLine) -> None:
    """Not in a text that nobody wrote."""
    Path("config.json").write_text(json.dumps({**SMALL, "head_dim": 17}), encoding="utf-8")
    result = small("import", "config.json", "--plan", "--devices", "2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("config.json:1:1: no plan of this model: rotary = 1.0 of head_dim = 17")
