"""The library's precisions, stacks and clusters: what each holds a parameter in, and that each can be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.spec.inputs import changes, value_at
from ledger.spec.library import default_library
from ledger.spec.load import load_cluster, load_precision, load_stack
from ledger.spec.precision import WeightFormats
from tests.spec.shelf import loaded, messages

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}


@pytest.mark.parametrize(
    ("name", "each"),
    [
        # Rajbhandari et al. 2020, section 3.1: 2 + 2 + K, K = 12 with Adam in mixed precision.
        ("bf16-mixed", 16),
        ("fp16-mixed", 16),
        # Weights, gradients and two states of 4 bytes.
        ("fp32", 16),
        ("bf16-autocast", 16),
        # 2 + 2 + two states of 4.
        ("bf16-pure", 12),
        # 2 + 2 + two states of 2.
        ("bf16-true", 8),
        ("fp16-pure", 8),
        # A master of 4, 1 + 1, two states of 4.
        ("fp8-mixed", 14),
    ],
)
def test_a_precision_holds_each_parameter_in_as_many_bytes_as_published(name: str, each: int) -> None:
    """The bytes of training with Adam follow from the formats, so a swapped format shows."""
    precision = load_precision(name)
    master = BYTES[precision.master] if precision.master else 0
    held = BYTES[precision.weights.every] + BYTES[precision.gradients] + master + 2 * BYTES[precision.states]
    assert held == each


def test_gradients_are_reduced_in_their_own_format() -> None:
    """No policy of the library adds gradients in another format than it keeps them in."""
    precisions = [load_precision(entry.name) for entry in default_library().entries("precision")]
    assert all(precision.reduction == precision.gradients for precision in precisions)


@pytest.mark.parametrize(("kind", "load"), [("stack", load_stack), ("cluster", load_cluster)])
def test_every_part_can_be_read_alone(kind: str, load: Callable[[str], object]) -> None:
    """A part that no plan names is held to the schema too."""
    entries = default_library().entries(kind)
    assert entries
    assert all(load(entry.name) for entry in entries)


# --- formats by part ----------------------------------------------------------------------------

ADAPTERS = "train={lora: {rank: 8, targets: [q]}}"


def formats(*settings: str) -> WeightFormats:
    """What weights of the small plan are kept in under these settings."""
    return loaded(*settings).precision.weights


def test_one_format_is_that_of_every_part() -> None:
    """A bare name stands for all parts, and parts that are all alike are that name."""
    assert formats("precision.weights=bf16") == formats("precision.weights={base: bf16}") == WeightFormats.alike("bf16")
    assert str(formats("precision.weights=bf16")) == "bf16"


def test_parts_that_are_left_out_follow_the_matrices() -> None:
    """As `base` is; where that is only stored, in the dtype that flows between operations."""
    wide = formats("precision.weights={base: bf16, norms: fp32}")
    assert wide == WeightFormats("bf16", "bf16", "fp32", "bf16", "bf16")
    narrow = formats("precision.weights={base: nf4, adapters: fp32}", ADAPTERS)
    assert narrow == WeightFormats("nf4", "fp32", "bf16", "bf16", "bf16")
    assert str(narrow) == "{base: nf4, adapters: fp32, norms: bf16, embedding: bf16, head: bf16}"


def test_a_part_is_set_shown_and_compared_by_its_path() -> None:
    """`--set` reaches one part; a difference is one input, as a spec says it."""
    stored = "precision.weights={base: nf4, adapters: bf16}"
    before, after = loaded(stored, ADAPTERS), loaded(stored, ADAPTERS, "precision.weights.norms=fp32")
    assert value_at(after, "precision.weights.norms") == "fp32"
    (change,) = changes(before, after)
    assert (change.path, change.old) == ("precision.weights", str(before.precision.weights))
    assert formats(f"precision.weights={change.new}", ADAPTERS) == after.precision.weights


@pytest.mark.parametrize(
    ("train", "legal"),
    [
        ("all", False),
        ("{lora: {rank: 8, targets: [q]}}", True),
        ("{only: [head]}", True),
        ("{only: [head, mlp]}", False),
        ("{frozen: [attention, mlp]}", True),
        ("{frozen: [decoder]}", True),
        ("{frozen: [embedding]}", False),
    ],
)
def test_what_is_only_stored_is_frozen(train: str, legal: bool) -> None:
    """bitsandbytes gives Params4bit no gradient, so no matrix of a layer may be trained."""
    settings = "precision.weights={base: nf4}", f"train={train}"
    if legal:
        assert loaded(*settings).precision.weights.is_stored_only
    else:
        assert messages(*settings) == ["weights in nf4 cannot be trained, and this plan trains matrices of layers"]


def test_experts_that_are_stored_have_a_kernel_with_whole_matrices() -> None:
    """Rows of packed weights cannot be copied, and grouped products read what was brought back to bf16."""
    sparse = "model.layers.0.mlp={kind: experts, d_ff: 2048, activation: silu, experts: 4, top_k: 2}"
    stored = ["precision.weights={base: nf4}", "precision.autocast=true", ADAPTERS, sparse]
    assert messages(*stored, "kernels.experts=batched_mm") == [
        "batched_mm copies rows of the experts' weights, which are not there as rows in nf4"
    ]
    assert loaded(*stored, "kernels.experts=grouped_mm").precision.weights.is_stored_only


def test_experts_of_another_format_serve_and_are_there() -> None:
    """Nobody trains them so; where the format is that of the other matrices, nothing was said."""
    sparse = "model.layers.0.mlp={kind: experts, d_ff: 2048, activation: silu, experts: 4, top_k: 2}"
    own = "precision.weights={base: fp32, experts: bf16}"
    assert messages(own, sparse) == ["experts in bf16 beside other matrices in fp32 can serve, and this plan trains"]
    assert formats("precision.weights={base: bf16, experts: bf16}", sparse) == WeightFormats.alike("bf16")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qlora-peft", WeightFormats("nf4", "fp32", "fp32", "fp32", "fp32")),
        ("qlora-bf16", WeightFormats("nf4_double", "bf16", "bf16", "bf16", "bf16")),
        ("lora-peft", WeightFormats("bf16", "fp32", "bf16", "bf16", "bf16")),
    ],
)
def test_precisions_of_fine_tuning_keep_parts_as_their_code_does(name: str, expected: WeightFormats) -> None:
    """peft, prepare_model_for_kbit_training and cast_adapter_dtype; fsdp_qlora, `--precision bf16`."""
    precision = load_precision(name)
    assert precision.weights == expected
    assert precision.gradients == precision.weights.adapters
