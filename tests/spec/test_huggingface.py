"""Imported configurations against the models that transformers builds from the same fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.cli.import_ import import_file
from ledger.spec.architecture import Model
from ledger.spec.imports.huggingface import patterns, terms
from ledger.spec.imports.huggingface import terms as fields
from ledger.spec.imports.huggingface.config import config_model, import_config, import_text
from ledger.spec.imports.huggingface.families import FAMILIES, WRAPPED
from ledger.spec.imports.huggingface.family import Family, decoder
from ledger.spec.imports.huggingface.recognition import model_of, nearest_family
from ledger.spec.load import load_model, read_model
from ledger.spec.problems import Location, SpecError
from tests.invented_configs import INVENTED

CONFIGS = Path(__file__).parent / "published_configs"
PUBLISHED = sorted(CONFIGS.glob("*.json"))
LIBRARY = Path(__file__).parents[2] / "specs" / "models"

# Depths of those that do not call them by the usual name.
DEPTHS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {"n_layer": 2},
    "t5": {"num_layers": 2},
    "whisper": {"encoder_layers": 2, "decoder_layers": 2},
    "resnet": {"hidden_sizes": [256, 512], "depths": [1, 1]},
}
# Every field of these is absent: the class's defaults alone, cut to two layers.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    name: {"model_type": name, **DEPTHS.get(name, {"num_hidden_layers": 2})}
    | ({"num_experts_per_tok": 2} if name == "deepseek_v2" else {})  # without a default
    for name in FAMILIES
}
EVERY = (
    {path.stem: json.loads(path.read_text()) for path in PUBLISHED}
    | INVENTED
    | {f"{name}-defaults": config for name, config in DEFAULTS.items()}
)


def imported(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model spec as plain values."""
    return yaml.safe_load(import_text(json.dumps(config, indent=2), "config.json"))


def refused(config: Mapping[str, Any]) -> SpecError:
    """What the import of a configuration says against it."""
    with pytest.raises(SpecError) as caught:
        imported(config)
    return caught.value


def test_every_published_config_has_its_model() -> None:
    """A model cannot lose its check by a renamed file."""
    assert PUBLISHED
    assert {path.stem for path in PUBLISHED} <= {path.stem for path in LIBRARY.glob("*.yaml")}


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


def nameless(model: Model) -> Model:
    """A model without its title and the names of its groups."""
    names = {group.name: f"group {index}" for index, group in enumerate(model.groups)}
    groups = tuple(replace(group, name=names[group.name]) for group in model.groups)
    return replace(model, name="", title="", groups=groups, order=tuple(names[name] for name in model.order))


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_family_is_read_both_ways(name: str) -> None:
    """A configuration's model, written as a configuration of its family and read again, is the same model."""
    fields = EVERY[name]
    model = read_model(import_text(json.dumps(fields), "config.json"), "config.json")
    name = fields["model_type"]
    family = FAMILIES[WRAPPED[name].family if name in WRAPPED else name]
    assert nameless(model_of(family, family.configuration(model))) == nameless(model)


@pytest.mark.parametrize("name", sorted(path.stem for path in LIBRARY.glob("*.yaml")))
def test_a_model_of_the_library_is_of_a_family(name: str) -> None:
    """Each is written as a configuration of transformers, and read again it has every figure that a class knows."""
    model = load_model(name)
    match = nearest_family(model)
    assert match.fits
    again = nameless(model_of(match.family, match.configuration))
    softmax = model.groups[0].attention.softmax  # GPT-3's and Megatron-LM's are not of GPT-2's class
    groups = tuple(replace(group, attention=replace(group.attention, softmax=softmax)) for group in again.groups)
    assert replace(again, groups=groups) == nameless(model)


MADE_UP = Family(
    config="MadeUpConfig",
    architecture="MadeUpForCausalLM",
    fields={
        **decoder(width=96, layers=4, heads=6, positions=64, vocabulary=211),
        **fields.sizes(made_up_width=128, made_up_window=16),
        **fields.activations(made_up_act="relu"),
        **fields.layer_types(*fields.SLIDING)(layer_types=None),
        **fields.flags(tie_word_embeddings=True),
    },
    terms=(
        *(*terms.OUTSIDE, *terms.norms("layer", "post")),
        *(terms.HEADS, terms.EQUAL_HEADS, terms.SPLIT_WIDTH, *terms.fixed_values("attention", sinks=True)),
        *terms.terms_of_kinds("local", terms.same_field("made_up_window", "attention.window")),
        *terms.mlp("plain", "made_up_width", terms.activation("made_up_act")),
    ),
    patterns=(patterns.EVERY_OTHER,),
)


def test_a_new_family_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that nobody has, put into the table, is imported, recognised and written as its configuration."""
    assert isinstance(FAMILIES, dict)
    monkeypatch.setitem(FAMILIES, "made_up", MADE_UP)
    text = import_text('{"model_type": "made_up", "num_hidden_layers": 5, "made_up_window": 19}', "config.json")
    model = read_model(text, "config.json")
    assert [group.attention.window for group in model.layers] == [19, None, 19, None, 19]
    match = nearest_family(model)
    assert (match.name, match.fits) == ("made_up", True)
    assert match.configuration == {
        "num_hidden_layers": 5,
        "layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
        "hidden_size": 96,
        "vocab_size": 211,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "num_attention_heads": 6,
        "made_up_window": 19,
        "made_up_width": 128,
        "made_up_act": "relu",
    }


def test_layers_that_transformers_does_not_build_are_left_out_and_told(tmp_path: Path) -> None:
    """`num_nextn_predict_layers` under both of its names, at its place, with what adds it; none where it is 0."""
    published = json.loads((CONFIGS / "deepseek-v3.json").read_text())
    without = {key: value for key, value in published.items() if key != "num_nextn_predict_layers"}
    file = tmp_path / "config.json"

    def unbuilt(config: Mapping[str, Any]) -> list[tuple[int, str, int, Mapping[str, Any]]]:
        file.write_text(json.dumps(config, indent=2))
        model = config_model(file)
        assert "multi_token" not in model.document
        return [(one.where.line or 0, one.name, one.value, one.part) for one in model.unbuilt]

    assert unbuilt(without) == []
    assert unbuilt({**without, "num_mtp_layers": 0}) == []
    part = {"multi_token": {"depth": 2}}
    assert unbuilt({"num_mtp_layers": 2, **without}) == [(2, "num_mtp_layers", 2, part)]
    assert "from 0 to 64" in refused({**without, "num_mtp_layers": 65}).problems[0].help


def test_groups_of_equal_layers_have_names_of_their_own() -> None:
    """Accounts begin with the group's name, so a name stands once."""
    spec = imported(INVENTED["qwen2, layer types, tied"])
    assert [group["group"] for group in spec["layers"]] == ["global", "local"]
    assert spec["order"] == ["global", "2 local", "global"]  # and the fifth layer is the first again


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


def test_a_class_is_read_by_the_name_that_it_had() -> None:
    """Published files of T5 name the class as transformers called it when they were saved."""
    now, then = (
        import_text(json.dumps({**INVENTED["t5"], "architectures": [name]}), "config.json")
        for name in ("T5ForConditionalGeneration", "T5WithLMHeadModel")
    )
    assert yaml.safe_load(then)["layers"] == yaml.safe_load(now)["layers"]


def test_a_field_under_both_its_names_counts_once() -> None:
    """Published files of Whisper have both; where they differ, nobody can say which is meant."""
    both = {**INVENTED["whisper"], "num_hidden_layers": INVENTED["whisper"]["encoder_layers"]}
    assert import_text(json.dumps(both), "config.json") == import_text(json.dumps(INVENTED["whisper"]), "config.json")
    (problem,) = refused({**both, "num_hidden_layers": 99}).problems
    assert "one field of WhisperConfig" in problem.message


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


def test_values_that_make_no_model_together_are_refused_where_one_of_them_stands() -> None:
    """Falcon's first architecture builds two norms of parallel parts, and its forward pass looks for one."""
    (problem,) = refused({"model_type": "falcon", "num_ln_in_parallel_attn": 2}).problems
    assert (problem.where.line, problem.help) == (3, "FalconConfig builds no model of it that runs")
    assert imported({"model_type": "falcon", "num_ln_in_parallel_attn": 2, "new_decoder_architecture": True})


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


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "llama4_text", "no_rope_layers": [0, 1]}, "2 marks of rotation for 48 layers"),
        ({"model_type": "gemma3_text", "rope_parameters": {"sliding_attention": 3}}, "`rope_parameters` is"),
        ({"model_type": "gemma2", "num_hidden_layers": 10**9}, "`num_hidden_layers` is 1000000000"),
        ({"model_type": "llama", "hidden_size": 10**12}, "`hidden_size` is 1000000000000"),
    ],
)
def test_sizes_beyond_reason_and_lists_of_another_length_are_refused(config: Mapping[str, Any], said: str) -> None:
    """No list of a thousand million layers is made, and no layer is left without its mark."""
    assert refused(config).problems[0].message.startswith(said)


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
    """A checkpoint's folder serves as well as its file, and may be indented with tabs."""
    (tmp_path / "config.json").write_text(json.dumps(INVENTED["llama, own head size"], indent="\t"))
    assert import_config(tmp_path) == import_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("stated", "file", "name"),
    [
        (
            {"_name_or_path": "meta-llama/Llama-2-7b-hf/", "architectures": ["LlamaForCausalLM"]},
            "x.json",
            "Llama-2-7b-hf",
        ),
        ({"architectures": ["LlamaForCausalLM"]}, "tiny: llama.json", "tiny: llama"),
        ({"architectures": ["LlamaForCausalLM"]}, "config.json", "Llama, 3 layers of 64"),
        ({}, "config.json", "llama, 3 layers of 64"),
    ],
)
def test_a_model_is_named_by_what_it_is(stated: dict[str, object], file: str, name: str) -> None:
    """The name that it was saved under, a file named after it, or its class and shape; a folder may have any name."""
    shape = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    text = json.dumps({"model_type": "llama", "vocab_size": 256, **shape, **stated})
    assert yaml.safe_load(import_text(text, f"downloads/today/{file}"))["model"] == name


def test_a_missing_file_is_a_problem_with_its_path(tmp_path: Path) -> None:
    """No traceback for a mistyped path."""
    with pytest.raises(SpecError) as caught:
        import_config(tmp_path / "nowhere.json")
    assert caught.value.problems[0].where.file.endswith("nowhere.json")


def test_a_model_of_text_and_images_is_its_decoder() -> None:
    """Gemma 3's published files describe the decoder inside `text_config`; what stands around it is left out."""
    inner = {"hidden_size": 68, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 6}
    wrapped = imported({"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 1152}})
    alone = imported({"model_type": "gemma3_text", **inner})
    own = {"model": "", "source": ""}
    assert {**wrapped, **own} == {**alone, **own}
    assert "`gemma3` without `text_config`" in str(refused({"model_type": "gemma3"}))


def test_a_decoder_may_be_described_around_what_it_sees_with() -> None:
    """Qwen2-VL's first files have the decoder's fields beside `vision_config`, later ones state outside what ties."""
    inner = {"hidden_size": 84, "num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 3}
    seen = {"vision_config": {"hidden_size": 1280}, "architectures": ["Qwen2VLForConditionalGeneration"]}
    own = {"model": "", "source": ""}
    alone = {**imported({"model_type": "qwen2_vl_text", **inner, "tie_word_embeddings": True}), **own}
    flat = imported({"model_type": "qwen2_vl", **inner, **seen, "image_token_id": 7, "tie_word_embeddings": True})
    within = imported({"model_type": "qwen2_vl", "text_config": inner, **seen, "tie_word_embeddings": True})
    assert [{**flat, **own}, {**within, **own}] == [alone, alone]


def test_bases_of_rotation_are_read_in_both_spellings() -> None:
    """Files of before and after transformers 5 say the same in other fields."""
    before = {"rope_theta": 500_000.0, "rope_local_base_freq": 20_000.0}
    after = {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 20_000.0},
        }
    }
    first, second = (imported({"model_type": "gemma3_text", **fields}) for fields in (before, after))
    assert first == second
    assert [group["attention"]["rotary_base"] for group in first["layers"]] == [20_000, 500_000]


def test_weights_of_8_bits_are_those_of_the_model() -> None:
    """DeepSeek-V3 is published quantized, with the shapes of the trained model; a count of experts is never guessed."""
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert imported({"model_type": "deepseek_v3", "quantization_config": quantized}) == imported(
        {"model_type": "deepseek_v3"}
    )
    assert "no `num_experts_per_tok`" in str(refused({"model_type": "deepseek_v2"}))


def test_a_config_is_no_plan(tmp_path: Path) -> None:
    """A config.json says nothing of a run, so `--plan` is refused, not guessed."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(SpecError, match="says nothing of a run"):
        import_file(tmp_path / "config.json", as_plan=True)


def test_what_the_model_of_a_file_breaks_is_told(tmp_path: Path) -> None:
    """A configuration that transformers takes, and no device could run: 256 experts in 7 equal groups."""
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_v3", "n_group": 7}')
    (note,) = import_file(tmp_path / "config.json").notes
    assert note.message.startswith("the model does not hold as it is: 256 experts of `experts` are no 7 equal groups")
