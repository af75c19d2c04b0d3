"""Imported configurations against the models that transformers builds from the same fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.spec.config_families import FAMILIES
from ledger.spec.huggingface import import_config, import_text
from ledger.spec.load import load_model
from ledger.spec.problems import Location, SpecError

CONFIGS = Path(__file__).parent / "published_configs"
PUBLISHED = sorted(CONFIGS.glob("*.json"))

# Sizes are distinct primes wherever the class allows, so that no two can be swapped unseen.
INVENTED: Mapping[str, Mapping[str, Any]] = {
    "gpt2-odd": {
        "model_type": "gpt2",
        "n_embd": 7 * 13,
        "n_head": 7,
        "n_layer": 3,
        "n_positions": 53,
        "vocab_size": 211,
    },
    "gpt2-inner-untied": {
        "model_type": "gpt2",
        "hidden_size": 5 * 11,
        "num_attention_heads": 5,
        "num_hidden_layers": 2,
        "max_position_embeddings": 61,
        "n_inner": 101,
        "vocab_size": 223,
        "tie_word_embeddings": False,
        "activation_function": "relu",
    },
    "gpt_neox": {
        "model_type": "gpt_neox",
        "hidden_size": 3 * 16,
        "num_attention_heads": 3,
        "num_hidden_layers": 5,
        "intermediate_size": 103,
        "vocab_size": 227,
        "use_parallel_residual": False,
    },
    "gpt_neox-unbiased-tied": {
        "model_type": "gpt_neox",
        "hidden_size": 7 * 8,
        "num_attention_heads": 7,
        "num_hidden_layers": 2,
        "intermediate_size": 107,
        "vocab_size": 229,
        "attention_bias": False,
        "tie_word_embeddings": True,
    },
    "llama-head-dim": {
        "model_type": "llama",
        "hidden_size": 6 * 17,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 26,
        "intermediate_size": 109,
        "num_hidden_layers": 3,
        "vocab_size": 233,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    },
    "llama-biases-tied": {
        "model_type": "llama",
        "hidden_size": 10 * 14,
        "num_attention_heads": 10,
        "num_key_value_heads": 5,
        "intermediate_size": 113,
        "num_hidden_layers": 2,
        "vocab_size": 239,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "mistral-floored-head": {
        "model_type": "mistral",
        "hidden_size": 97,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "intermediate_size": 127,
        "num_hidden_layers": 3,
        "vocab_size": 241,
        "sliding_window": None,
    },
    "mistral-default-kv-heads": {
        "model_type": "mistral",
        "hidden_size": 89,
        "num_attention_heads": 16,
        "head_dim": 22,
        "intermediate_size": 131,
        "num_hidden_layers": 2,
        "vocab_size": 251,
    },
    "qwen2-windows-above": {
        "model_type": "qwen2",
        "hidden_size": 6 * 14,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "intermediate_size": 137,
        "num_hidden_layers": 7,
        "vocab_size": 257,
        "use_sliding_window": True,
        "sliding_window": 19,
        "max_window_layers": 4,
    },
    "qwen2-layer-types-tied": {
        "model_type": "qwen2",
        "hidden_size": 83,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 38,
        "intermediate_size": 139,
        "num_hidden_layers": 5,
        "vocab_size": 263,
        "use_sliding_window": True,
        "sliding_window": 23,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "full_attention"],
        "tie_word_embeddings": True,
    },
    "gemma": {
        "model_type": "gemma",
        "hidden_size": 79,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 34,
        "intermediate_size": 149,
        "num_hidden_layers": 3,
        "vocab_size": 269,
        "hidden_act": "gelu",
    },
    "gemma-biases-untied": {
        "model_type": "gemma",
        "hidden_size": 73,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 46,
        "intermediate_size": 151,
        "num_hidden_layers": 2,
        "vocab_size": 271,
        "attention_bias": True,
        "tie_word_embeddings": False,
    },
    "gemma2-odd-depth": {
        "model_type": "gemma2",
        "hidden_size": 6 * 11,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 58,
        "intermediate_size": 157,
        "num_hidden_layers": 7,
        "vocab_size": 277,
        "sliding_window": 29,
    },
    "gemma2-biases-all-global": {
        "model_type": "gemma2",
        "hidden_size": 4 * 13,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 62,
        "intermediate_size": 163,
        "num_hidden_layers": 2,
        "vocab_size": 281,
        "attention_bias": True,
        "final_logit_softcapping": None,
        "layer_types": ["full_attention", "full_attention"],
    },
}
# Every field of these is absent: the class's defaults alone, cut to two layers.
DEFAULTS = {name: {"model_type": name, "n_layer" if name == "gpt2" else "num_hidden_layers": 2} for name in FAMILIES}
EVERY = (
    {path.stem: json.loads(path.read_text()) for path in PUBLISHED}
    | INVENTED
    | {f"{name}-defaults": config for name, config in DEFAULTS.items()}
)


def imported(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model spec as plain values."""
    return yaml.safe_load(import_text(json.dumps(config, indent=2), "config.json"))


def parameters(spec: Mapping[str, Any]) -> int:
    """Each projection's rows times columns, each bias, each norm: written down apart from the compiler."""
    width, vocabulary, embedding = spec["d_model"], spec["vocab"], spec["embedding"]
    one_norm = width * (2 if spec["norm"].get("bias") else 1)
    total = (
        vocabulary * width * (1 if embedding["tied"] else 2) + embedding.get("learned_positions", 0) * width + one_norm
    )
    for group in spec["layers"]:
        attention, mlp = group["attention"], group["mlp"]
        queries, keys = attention["heads"] * attention["head_dim"], attention["kv_heads"] * attention["head_dim"]
        into = {"plain": 1, "gated": 2}[mlp["kind"]]
        layer = width * (2 * queries + 2 * keys) + (into + 1) * width * mlp["d_ff"]
        layer += (queries + 2 * keys) * bool(attention.get("qkv_bias")) + width * bool(attention.get("out_bias"))
        layer += (into * mlp["d_ff"] + width) * bool(mlp.get("bias"))
        total += group["repeat"] * (layer + one_norm * {"pre": 2, "sandwich": 4}[group["norms"]])
    return total


def windows(spec: Mapping[str, Any]) -> list[int | None]:
    """The window of every layer, in order."""
    groups = [[group["attention"].get("window")] * group["repeat"] for group in spec["layers"]]
    if not spec.get("alternating"):
        return [window for group in groups for window in group]
    return [window for turn in zip(*groups, strict=True) for window in turn]


def refused(config: Mapping[str, Any]) -> SpecError:
    """What the import of a configuration says against it."""
    with pytest.raises(SpecError) as caught:
        imported(config)
    return caught.value


@pytest.mark.parametrize("name", sorted(EVERY))
def test_an_imported_model_has_as_many_parameters_as_transformers_builds(
    name: str, parameters_on_meta: Callable[[Mapping[str, Any]], int]
) -> None:
    """Published, invented and all-default configurations keep their count through the import."""
    assert parameters(imported(EVERY[name])) == parameters_on_meta(EVERY[name])


@pytest.mark.parametrize("name", [path.stem for path in PUBLISHED])
def test_a_published_config_is_imported_as_the_library_has_it(name: str, tmp_path: Path) -> None:
    """The library's models were written by hand, so each is a second opinion on every field of the import."""
    spec = tmp_path / "imported.yaml"
    spec.write_text(import_config(CONFIGS / f"{name}.json"))
    library = load_model(name)
    assert replace(load_model(spec), name=library.name, title=library.title) == library


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_imported_model_is_a_valid_spec(name: str, tmp_path: Path) -> None:
    """What the import writes, the reader takes, with its schema and its rules."""
    spec = tmp_path / "imported.yaml"
    spec.write_text(import_text(json.dumps(EVERY[name]), "config.json"))
    assert load_model(spec).groups


@pytest.mark.parametrize("name", sorted(name for name in EVERY if name.startswith(("qwen2", "gemma-2", "gemma2"))))
def test_every_layer_keeps_the_window_that_transformers_gives_it(name: str) -> None:
    """Layer kinds survive the grouping into equal layers, in order."""
    from transformers import AutoConfig

    fields = dict(EVERY[name])
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    built = [config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types]
    assert windows(imported(EVERY[name])) == built


def test_groups_of_equal_layers_have_names_of_their_own() -> None:
    """Accounts begin with the group's name, so a name stands once."""
    names = [group["group"] for group in imported(INVENTED["qwen2-layer-types-tied"])["layers"]]
    assert names == ["global_1", "local", "global_2"]


def test_dropout_and_what_makes_gemma_are_kept() -> None:
    """Fields that hold no parameter, and still change what is computed and saved."""
    gpt2 = imported(EVERY["gpt2"])
    assert (gpt2["embedding"]["dropout"], gpt2["residual_dropout"], gpt2["layers"][0]["attention"]["dropout"]) == (
        0.1,
    ) * 3
    gemma = imported(EVERY["gemma-2-9b"])
    assert (gemma["embedding"]["scale"], gemma["norm"]["unit_offset"], gemma["head"]["softcap"]) == (True, True, 30.0)
    assert {group["attention"]["softcap"] for group in gemma["layers"]} == {50.0}
    neox = imported(EVERY["pythia-6.9b"])["layers"][0]
    assert (neox["attention"]["rotary"], neox["residual"]) == (0.25, "parallel")


def test_a_field_that_is_not_understood_is_named_with_its_place() -> None:
    """Experts would change the count: the import stops at the line instead of guessing."""
    error = refused({"model_type": "llama", "num_experts": 8})
    assert [problem.where for problem in error.problems] == [Location("config.json", 3, 3)]
    assert "`num_experts` is no known field of LlamaConfig" in str(error)


def test_a_misspelt_field_is_met_with_the_nearest_one() -> None:
    """`hidden_sizes` does not silently leave `hidden_size` at its default."""
    (problem,) = refused({"model_type": "llama", "hidden_sizes": 8}).problems
    assert "`hidden_size`" in problem.help


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantization_config", {"quant_method": "gptq"}),
        ("is_encoder_decoder", True),
        ("hidden_size", 0),
        ("hidden_size", True),
        ("hidden_size", "4096"),
        ("hidden_act", "quick_gelu"),
        ("attention_bias", 1),
        ("attention_dropout", 1.5),
        ("rope_parameters", {"partial_rotary_factor": 0.5}),
        ("num_key_value_heads", 5),
        ("num_attention_heads", 7),
        ("architectures", ["LlamaForSequenceClassification"]),
    ],
)
def test_a_value_that_would_make_another_model_is_refused_where_it_stands(field: str, value: object) -> None:
    """One problem each, at the field that causes it."""
    (problem,) = refused({"model_type": "llama", field: value}).problems
    assert problem.where.line == 3


def test_every_problem_of_a_config_is_reported_at_once() -> None:
    """Two wrong fields are two problems, sorted by place."""
    error = refused({"model_type": "gemma2", "head_dim": None, "n_experts": 4})
    assert [problem.where.line for problem in error.problems] == [3, 4]


def test_two_names_of_one_field_are_refused() -> None:
    """GPT-2's `n_embd` and `hidden_size` are one field, and which of them holds cannot be guessed."""
    assert "one field" in str(refused({"model_type": "gpt2", "n_embd": 48, "hidden_size": 96}))


def test_layer_types_are_one_for_each_layer() -> None:
    """A list that is too short is an error, as it is in transformers."""
    assert "1 layer types for 2 layers" in str(
        refused({"model_type": "gemma2", "num_hidden_layers": 2, "layer_types": ["full_attention"]})
    )


def test_an_unknown_family_is_met_with_the_known_ones() -> None:
    """The help names every family, the nearest first."""
    (problem,) = refused({"model_type": "gemma_2"}).problems
    assert problem.help.startswith("is `gemma")
    assert all(name in problem.help for name in FAMILIES)


def test_a_file_without_a_family_is_refused() -> None:
    """Without `model_type` nothing says which defaults hold."""
    assert "no `model_type`" in str(refused({"hidden_size": 8}))


@pytest.mark.parametrize(("text", "line"), [('{"model_type": "llama",\n  "hidden_size": }', 2), ("[1, 2]", 1), ("", 1)])
def test_a_text_that_is_no_json_object_is_refused_with_its_place(text: str, line: int) -> None:
    """YAML that is not JSON is no config.json."""
    with pytest.raises(SpecError) as caught:
        import_text(text, "config.json")
    assert caught.value.problems[0].where.line == line


def test_a_folder_with_a_config_is_read(tmp_path: Path) -> None:
    """A checkpoint's folder serves as well as its file, gives the model its name, and may be indented with tabs."""
    folder = tmp_path / "tiny: llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(INVENTED["llama-head-dim"], indent="\t"))
    assert import_config(folder) == import_config(folder / "config.json")
    assert yaml.safe_load(import_config(folder))["model"] == "tiny: llama"


def test_a_missing_file_is_a_problem_with_its_path(tmp_path: Path) -> None:
    """No traceback for a mistyped path."""
    with pytest.raises(SpecError) as caught:
        import_config(tmp_path / "nowhere.json")
    assert caught.value.problems[0].where.file.endswith("nowhere.json")
