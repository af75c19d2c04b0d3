"""Components that a model's author writes in YAML."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ledger.model.dims import LETTERS
from ledger.spec.components import COMMON_DIMS
from ledger.spec.kinds import schema
from ledger.spec.problems import SpecError
from ledger.spec.written_steps import NAMES_OF_SIZES
from tests.model import plans
from tests.model.plans import LLAMA, Mapped

WIDE, ROWS = 276, 213  # divisible by 3
GATED: Mapped = {
    "kind": "custom",
    "dims": {"wide": WIDE},
    "weights": {"w_gate": "wide d_model", "w_up": "wide d_model", "w_down": "d_model wide"},
    "steps": [
        {"name": "gate", "einsum": "batch seq d_model, wide d_model -> batch seq wide", "weight": "w_gate"},
        {"name": "activation", "of": ["gate"], "activation": "silu"},
        {"name": "up", "of": ["x"], "einsum": "batch seq d_model, wide d_model -> batch seq wide", "weight": "w_up"},
        {"name": "product", "multiply": ["activation", "up"]},
        {"name": "down", "einsum": "batch seq wide, d_model wide -> batch seq d_model", "weight": "w_down"},
    ],
    "split": {"tensor": ["wide"]},
}
BUILT_IN = plans.layer({**LLAMA, "vocab": ROWS}, mlp={"d_ff": WIDE})
LAYOUT: Mapped = {
    "parallelism": {"data": 2, "tensor": 3, "zero": 3, "sequence": "save_gathered"},
    "cluster": {"base": "h100-400g", "devices": 6, "devices_per_node": 6},
    "run": {"seq_len": 36, "micro_batch": 1, "global_batch": 2},
}


def with_mlp(mlp: Mapped) -> Mapped:
    """The small Llama with another feed-forward part."""
    return {**BUILT_IN, "layers": [{**BUILT_IN["layers"][0], "mlp": mlp}]}


@pytest.mark.parametrize(
    "parts", [{}, {"recompute": "full"}, {"recompute": {"components": ["activation"]}}, LAYOUT], ids=str
)
@pytest.mark.parametrize("precision", ["bf16-true", "bf16-autocast", "fp32"])
def test_a_gated_mlp_written_out_is_the_built_in_one(parts: Mapped, precision: str) -> None:
    """Every total is the same, on one device and on many: nothing is known of a component beyond its einsums."""
    kernels = {"attention": "efficient"}
    built_in = plans.compiled(model=BUILT_IN, precision=precision, kernels=kernels, **parts).totals
    written = plans.compiled(model=with_mlp(GATED), precision=precision, kernels=kernels, **parts).totals
    assert written == built_in


def test_its_dims_are_symbols_with_a_place() -> None:
    """Formulas speak of the author's dims, and say where each has its value."""
    compiled = plans.compiled(model=with_mlp(GATED))
    (row,) = [
        a for a in compiled.accounts if (a.account, a.when) == ("decoder/mlp/gate", "forward") and a.unit == "FLOP"
    ]
    assert row.formula == "2*B*S*D*wide"
    assert compiled.symbols["wide"].value == WIDE
    assert compiled.symbols["wide"].path == "model.layers.decoder.mlp.dims.wide"


def test_what_nobody_has_built_counts_what_it_says() -> None:
    """A bottleneck with a residual of its own: two products of width 40 and nothing else."""
    latent = 40
    mlp = {
        "kind": "custom",
        "dims": {"latent": latent},
        "weights": {"into": "latent d_model", "back": "d_model latent", "shift": "latent"},
        "steps": [
            {"einsum": "batch seq d_model, latent d_model -> batch seq latent", "weight": "into", "bias": "shift"},
            {"activation": "relu"},
            {"name": "out", "einsum": "batch seq latent, d_model latent -> batch seq d_model", "weight": "back"},
            {"add": ["x", "out"]},
        ],
    }
    wide, narrow = plans.compiled(model=BUILT_IN).totals, plans.compiled(model=with_mlp(mlp)).totals
    d_model, layers, tokens = BUILT_IN["d_model"], 2, 37 * 3
    assert wide["parameters"] - narrow["parameters"] == layers * (3 * d_model * WIDE - 2 * d_model * latent - latent)
    fewer = layers * tokens * 2 * (3 * d_model * WIDE - 2 * d_model * latent)
    assert wide["flops.forward"] - narrow["flops.forward"] == fewer


def changed(step: int = 0, **changes: Any) -> Mapped:
    """The gated MLP with one step changed."""
    steps = [{**old, **changes} if index == step else old for index, old in enumerate(GATED["steps"])]
    return {**GATED, "steps": steps}


@pytest.mark.parametrize(
    ("mlp", "words", "key"),
    [
        (changed(einsum="batch seq d_model -> seq"), "is no einsum of two operands", "einsum"),
        (
            changed(einsum="batch seq d_model, d_model wide -> batch seq wide"),
            "the second operand is `wide d_model`",
            "einsum",
        ),
        (changed(einsum="batch seq d_model, wide d_model -> batch seq deep"), "`deep` is in no operand", "einsum"),
        (changed(weight="w_gone"), "there is no weight `w_gone`", ""),
        (changed(3, multiply=["activation", "down"]), "`down` is no result of a step before", ""),
        (
            changed(4, einsum="batch seq wide, d_model wide -> batch d_model seq"),
            "the result is `batch d_model seq`",
            "",
        ),
        ({**GATED, "weights": {**GATED["weights"], "more": "wide"}}, "weight `more` is used by no step", "more"),
        ({**GATED, "weights": {**GATED["weights"], "w_up": "width d_model"}}, "unknown dim `width`", "w_up"),
        ({**GATED, "dims": {"wide": WIDE, "heads": 4}}, "`heads` is a dim of the model already", "heads"),
        ({**GATED, "split": {"tensor": ["narrow"]}}, "`narrow` is no dim of this component", "tensor"),
        ({**GATED, "d_ff": 12}, "`d_ff` belongs to no feed-forward part of kind custom", "d_ff"),
        (changed(1, einsum="a, b -> c"), "this does `einsum` and `activation`", ""),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(mlp: Mapped, words: str, key: str) -> None:
    """Einsums, dims, weights and results that do not fit are problems of the spec, each where it was written."""
    with pytest.raises(SpecError) as caught:
        plans.compiled(model=with_mlp(mlp))
    problem = next(problem for problem in caught.value.problems if words in problem.message)
    line = next(iter(caught.value.sources.values())).splitlines()[problem.where.line - 1]
    assert key in line[: problem.where.column + 40]
    assert problem.help


def test_a_cut_dim_must_divide() -> None:
    """What the author lets tensor parallelism cut is cut into equal parts."""
    uneven = {**GATED, "dims": {"wide": WIDE + 1}}
    with pytest.raises(SpecError, match="wide = 277 of `decoder` does not split over tensor = 3"):
        plans.compiled(model=with_mlp(uneven), **LAYOUT)


def test_the_documented_example_compiles() -> None:
    """What docs/custom.md shows can be copied: its layers are a model's, on one device and cut over three."""
    page = (Path(__file__).parents[2] / "docs" / "custom.md").read_text("utf-8")
    written = page.split("```yaml\n")[1].split("```")[0]
    text = (
        "spec: ledger/1\nmodel: shown\nsource: docs/custom.md\nd_model: 768\nvocab: 1000\nnorm: {kind: rms}\n" + written
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "shown.yaml").write_text(text, encoding="utf-8")
        plan = {**plans.ONE_DEVICE, "model": f"{folder}/shown.yaml"}
        compiled = plans.compiled_text(json.dumps(plan))
    d_model, latent, wide, attention, layers = 768, 256, 2048, 768 * 64 * (12 + 4 + 4 + 12), 12
    each = attention + latent * d_model + 2 * wide * latent + d_model * wide + 2 * d_model
    assert compiled.totals["parameters"] == layers * each + 2 * 1000 * d_model + d_model


def test_no_dim_of_an_author_takes_a_symbol_of_the_plan() -> None:
    """A dim named `tp` would be the tensor-parallel degree in every formula, so no name of the table is free."""
    spelt = {word for row in LETTERS for word in (row.name, row.letter) if re.fullmatch("[a-z][a-z0-9_]+", word)}
    assert spelt <= NAMES_OF_SIZES | set(COMMON_DIMS)


def test_the_page_lists_what_a_step_can_do() -> None:
    """Every activation that the schema of a step has stands in docs/custom.md."""
    page = (Path(__file__).parents[2] / "docs" / "custom.md").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `activation`")]
    listed = set(re.findall(r"\w+", row))
    assert set(schema("model")["$defs"]["component_step"]["properties"]["activation"]["enum"]) <= listed
