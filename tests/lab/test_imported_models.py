"""Imported configurations, and models of the library, against those that transformers builds from the same fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml
from transformers import AutoConfig

from ledger.spec.imports.huggingface.families import FAMILIES
from tests.lab.built_configs import built
from tests.lab.built_configs import parameters as model_parameters
from tests.spec.test_huggingface import DEFAULTS, EVERY, LIBRARY, PUBLISHED, imported


def built_parameters(fields: Mapping[str, Any]) -> int:
    """Distinct parameters of the causal model that transformers builds from the fields of a config.json, on meta."""
    others = {key: value for key, value in fields.items() if key != "model_type"}
    config = AutoConfig.for_model(fields["model_type"], **others)
    return model_parameters(built(config.get_text_config()))


def parameters(spec: Mapping[str, Any]) -> int:
    """Each projection's rows times columns, each bias, each norm: written down apart from the compiler."""
    if "stem" in spec:
        return of_blocks(spec)
    width, embedding = spec["d_model"], spec["embedding"]
    one_norm = width * (2 if spec["norm"].get("bias") else 1)
    rows = embedding.get("learned_positions", 0) + embedding.get("types", 0)
    vocabulary = spec["head"]["classes"] if "image" in spec else spec["vocab"]
    total = vocabulary * width * (1 if embedding.get("tied", True) else 2) + rows * width
    if "image" in spec:  # the filter of patches with its bias, and the class token
        total += width * (spec["image"]["channels"] * spec["image"]["patch"] ** 2 + 1) + width
    total += one_norm * (spec["norm"].get("final", True) + embedding.get("norm", False))
    if spec.get("head", {}).get("transform"):
        total += width * width + width + one_norm
    total += of_encoder(spec, one_norm)
    for group in spec["layers"]:
        layer = of_attention(group["attention"], width) + of_mlp(group["mlp"], width)
        if group.get("cross_attention"):
            layer += of_attention(group["attention"], width) + one_norm
        total += group["attention"].get("relative_buckets", 0) * group["attention"]["heads"]
        norms = {"none": 1}.get(group["mlp"]["kind"], 0)  # in place of two
        total += group["repeat"] * (
            layer
            + one_norm * (norms or {"pre": 2, "post": 2, "sandwich": 4, "shared": 1, "residual": 2}[group["norms"]])
        )
    return total + vocabulary * spec.get("head", {}).get("bias", False)


def of_blocks(spec: Mapping[str, Any]) -> int:
    """Every weight of the stem and of each block, by its dims; and the classifier."""
    known: dict[str, Mapping[str, Any]] = {}

    def weights(block: Mapping[str, Any]) -> int:
        written = known[block["like"]] if "like" in block else block
        sizes = {**written["dims"], **block["dims"]}
        return sum(prod(sizes[name] for name in dims.split()) for dims in written["weights"].values())

    total = weights(spec["stem"]) + spec["head"]["classes"] * (spec["d_model"] + spec["head"]["bias"])
    for group in spec["layers"]:
        known[group["group"]] = group["block"]
        total += group["repeat"] * weights(group["block"])
    return int(total)


def of_encoder(spec: Mapping[str, Any], one_norm: int) -> int:
    """What an encoder has beside its layers: a norm; of sound two filters of three frames and biases, and positions."""
    if not any("reads" in group for group in spec["layers"]):
        return 0
    width, sound = spec["d_model"], spec.get("sound")
    return one_norm + (width * (3 * sound["bands"] + 3 * width + 2 + sound["frames"] // 2) if sound else 0)


def of_attention(attention: Mapping[str, Any], width: int) -> int:
    """Projections, biases, and norms of heads or latents."""
    biases, last = bool(attention.get("qkv_bias")), width * bool(attention.get("out_bias"))
    if attention.get("kind") == "latent":
        heads, rank, rope = attention["heads"], attention["kv_rank"], attention["rope_head_dim"]
        straight, values = attention["nope_head_dim"], attention["v_head_dim"]
        narrow = attention.get("q_rank", 0)
        queries = heads * (straight + rope)
        into = width * narrow + narrow + narrow * biases + narrow * queries if narrow else width * queries
        keys = (width + biases) * (rank + rope) + rank + rank * heads * (straight + values)
        return int(into + keys + width * heads * values + last)
    if "state" in attention:
        return of_recurrence(attention, width)
    queries, keys = attention["heads"] * attention["head_dim"], attention["kv_heads"] * attention["head_dim"]
    norms = {"head": 2 * attention["head_dim"], "heads": queries + keys, "all": queries + keys}.get(
        attention.get("qk_norm", ""), 0
    )
    sinks = attention["heads"] * attention.get("sinks", False)
    each = queries + keys * (1 + attention.get("key_bias", True))
    biases = each * bool(attention.get("qkv_bias"))
    gates = queries * (width + bool(attention.get("qkv_bias"))) if attention.get("kind") == "gated" else 0
    return int(gates + width * (2 * queries + 2 * keys) + biases + last + norms + sinks)


def of_recurrence(attention: Mapping[str, Any], width: int) -> int:
    """Projections and biases, a filter of each channel, three or two numbers of each head, and the gated norm."""
    state, heads = attention["state"], attention["heads"]
    values = heads * attention["head_dim"]
    channels = values + 2 * state.get("groups", 1) * state["size"]
    own = channels * (state["convolution"] + state.get("convolution_bias", False))
    delta = attention["kind"] == "gated_delta"
    rows = channels + values + (2 if delta else 1) * heads
    into = rows * (width + bool(attention.get("qkv_bias"))) + width * bool(attention.get("out_bias"))
    return int(into + own + (2 * heads + attention["head_dim"] if delta else 3 * heads + values) + values * width)


def of_mlp(mlp: Mapping[str, Any], width: int) -> int:
    """Projections and biases; of experts all, the shared ones, and the router."""
    if mlp["kind"] == "none":
        return 0
    if mlp["kind"] == "experts":
        shared = mlp.get("shared", {"d_ff": 0})
        wide = shared["d_ff"] * shared.get("count", 1)
        gates = mlp["experts"] + shared.get("gated", False)
        biases = mlp["experts"] * (2 * mlp["d_ff"] + width) * bool(mlp.get("bias"))
        biases += mlp["experts"] * bool(mlp["router"].get("bias"))
        return int(3 * width * (mlp["experts"] * mlp["d_ff"] + wide) + width * gates + biases)
    into = {"plain": 1, "gated": 2}[mlp["kind"]]
    return int((into + 1) * width * mlp["d_ff"] + (into * mlp["d_ff"] + width) * bool(mlp.get("bias")))


def windows(spec: Mapping[str, Any]) -> list[int | None]:
    """The window of every layer, in order."""
    seen = {group["group"]: group["attention"].get("window") for group in spec["layers"]}
    if not (spec.get("alternating") or "order" in spec):
        return [seen[group["group"]] for group in spec["layers"] for _ in range(group["repeat"])]
    counted = [entry.split(" ") for entry in spec.get("order", seen)]
    pattern = [entry[-1] for entry in counted for _ in range(int(entry[0]) if len(entry) == 2 else 1)]
    layers = sum(group["repeat"] for group in spec["layers"])
    return [seen[pattern[layer % len(pattern)]] for layer in range(layers)]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_the_expected_count_is_what_transformers_builds(path: Path) -> None:
    """The published count in `expect` is that of the published architecture, so a typing error in either shows."""
    spec = yaml.safe_load((LIBRARY / f"{path.stem}.yaml").read_text())
    expected = [line["parameters"] for line in spec["expect"] if "parameters" in line]
    assert expected == [built_parameters(json.loads(path.read_text()))]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_an_imported_model_has_as_many_parameters_as_transformers_builds(name: str) -> None:
    """Published, invented and all-default configurations keep their count through the import."""
    assert parameters(imported(EVERY[name])) == built_parameters(EVERY[name])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_row_names_what_transformers_has(name: str) -> None:
    """The classes of a row, what its configuration is called in files, and where the model has its layers."""
    row = FAMILIES[name]
    configuration = getattr(transformers, row.config)(**{key: DEFAULTS[name][key] for key in DEFAULTS[name]})
    assert configuration.model_type == name
    with torch.device("meta"):
        built = getattr(transformers, row.architecture)(configuration)
    assert len(attrgetter(row.layers)(built)) == 2


@pytest.mark.parametrize(
    "name", sorted(name for name in EVERY if name.startswith(("qwen", "gemma-2", "gemma2", "gemma-3", "gemma3")))
)
def test_every_layer_keeps_the_window_that_transformers_gives_it(name: str) -> None:
    """Layer kinds survive the grouping into equal layers, in order."""
    fields = dict(EVERY[name])
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    window = getattr(config, "sliding_window", None)
    every = ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
    kinds = getattr(config, "layer_types", None) or every  # Qwen3-MoE has one window for all
    built = [window if kind == "sliding_attention" else None for kind in kinds]
    assert windows(imported(EVERY[name])) == built
