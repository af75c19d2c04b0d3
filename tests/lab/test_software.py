"""What rows of published tables say of their own software and network, and what the stacks make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.evidence.tables import read_table
from ledger.lab.score.facts import NEEDED_COLUMNS, Facts, facts
from ledger.lab.score.row_plans import row_plan
from ledger.lab.score.spelled import SkippedError, software_of
from ledger.spec.library import default_library
from ledger.spec.load import load_stack
from tests.lab.published_rows import TORCHTITAN, written


def typed(folder: Path, **changes: str) -> Facts:
    """The torchtitan row with these cells."""
    return facts(read_table(written(folder, {**TORCHTITAN, **changes}), NEEDED_COLUMNS)[0])


@pytest.mark.parametrize(
    ("cells", "stack"),
    [
        ({}, "torchtitan-2024"),
        ({"torch_compile": "true"}, "torchtitan-compile-2024"),
        ({"notes": "AsyncTP", "torch_compile": "true"}, "torchtitan-compile-2024-async"),
        ({"dtype": "fp8", "torch_compile": ""}, "torchtitan-compile-2024"),
        ({"source_id": "llm-foundry", "model_name": "mpt-7b", "n_gpus": "8"}, "llm-foundry-2023"),
        ({"source_id": "llm-foundry", "model_name": "mpt-7b", "n_gpus": "256"}, "llm-foundry-flash-2023"),
        ({"source_id": "llm-foundry", "model_name": "mpt-13b", "n_gpus": "256"}, "llm-foundry-2023"),
        ({"source_id": "mt-nlg"}, "megatron-deepspeed-2021"),
        ({"source_id": "internevo", "data_parallel_kind": "zero1"}, "internevo-2023"),
        ({"source_id": "internevo", "data_parallel_kind": "fsdp"}, "internevo-fsdp-2023"),
        ({"source_id": "nanotron", "pp": "2", "n_gpus": "16", "data_parallel_kind": "zero1"}, "nanotron-2024"),
        ({"source_id": "nobody", "stack": "megatron-lm-2022"}, "megatron-lm-2022"),
        ({"stack": "pytorch-fsdp2-2025", "torch_compile": "true"}, "pytorch-fsdp2-2025"),
    ],
)
def test_a_row_names_its_stack(tmp_path: Path, cells: dict[str, str], stack: str) -> None:
    """The publication, and what the row says of itself, choose; nothing else does."""
    assert software_of(typed(tmp_path, **cells), default_library()).stack.name == stack


@pytest.mark.parametrize(
    ("stack", "flash", "kernel"),
    [
        ("megatron-te-2024", "false", "fused_softmax"),
        ("megatron-te-2024", "true", None),
        ("megatron-lm-2022", "true", "flash"),
        ("megatron-lm-2022", "false", None),
        ("pytorch-fsdp2-2025", "false", "math"),
    ],
)
def test_rows_say_whether_attention_is_flash(tmp_path: Path, stack: str, flash: str, kernel: str | None) -> None:
    """Where that is not so of the stack's own kernel, another one is taken."""
    settings = row_plan(
        typed(tmp_path, stack=stack, flash_attention=flash, recompute="none"), default_library()
    ).settings
    stated = [one.partition("=")[2] for one in settings if one.startswith("kernels.attention")]
    assert stated == ([kernel] if kernel else [])


def test_runs_of_other_software_are_skipped_until_they_name_a_stack(tmp_path: Path) -> None:
    """A publication of several frameworks says which of its runs no stack on file is of."""
    jax = {"source_id": "nvidia-dgxc", "source": "NVIDIA/dgxc-benchmarking v24.11.1:maxtext/README_70b.md"}
    with pytest.raises(SkippedError, match="no stack on file is of MaxText or Paxml on JAX"):
        software_of(typed(tmp_path, **jax), default_library())
    named = typed(tmp_path, **jax, stack="pytorch-fsdp2-2025")
    assert software_of(named, default_library()).stack.name == "pytorch-fsdp2-2025"


@pytest.mark.parametrize(
    ("source_id", "hardware", "rate"),
    [
        ("internevo", "A100-SXM4-80GB", "50 Gb/s"),  # 4 x 100 Gb/s for eight devices
        ("fms-fsdp", "A100-SXM4-80GB", "50 Gb/s"),  # 400 Gb/s between nodes of eight
        ("fms-fsdp", "H100-SXM5-80GB", "100 Gb/s"),  # 800 Gb/s
        ("llm-foundry", "A100-80GB", "200 Gb/s"),  # 1600 Gb/s
        ("korthikanti22", "A100-SXM4-80GB", "200 Gb/s"),  # an HDR adapter for each device
        ("llm-foundry", "H100-SXM5-80GB", None),
    ],
)
def test_networks_are_those_that_publications_state(
    tmp_path: Path, source_id: str, hardware: str, rate: str | None
) -> None:
    """A line rate is stated for a node, and a plan wants it for a device; where none is, the library's is assumed."""
    dtype = "fp16" if source_id == "korthikanti22" else "bf16"
    row = typed(tmp_path, source_id=source_id, hardware=hardware, dtype=dtype, recompute="none")
    cluster = row_plan(row, default_library()).plan["cluster"]
    stated = cluster.get("scaleout", {}).get("bandwidth")
    assert (stated["value"] if isinstance(stated, dict) else stated) == rate


@pytest.mark.parametrize(
    ("source_id", "exchange"), [("torchtitan-202412", "ring"), ("nvidia-dgxc", "ring"), ("fms-fsdp", "all_gather")]
)
def test_a_cut_sequence_is_exchanged_as_the_software_does(tmp_path: Path, source_id: str, exchange: str) -> None:
    """PyTorch works block by block, Megatron-Core around a ring; what is not cut is not exchanged."""
    row = typed(tmp_path, source_id=source_id, n_gpus="16", cp="2", dp="8", recompute="none")
    assert row_plan(row, default_library()).plan["parallelism"]["context_exchange"] == exchange
    whole = typed(tmp_path, source_id=source_id, n_gpus="8", dp="8", recompute="none")
    assert "context_exchange" not in row_plan(whole, default_library()).plan["parallelism"]


def test_hybrid_sharding_keeps_a_copy_in_each_node(tmp_path: Path) -> None:
    """HYBRID_SHARD splits weights within a node of eight: 16 devices hold two copies."""
    row = typed(tmp_path, data_parallel_kind="hsdp", n_gpus="16", dp="16", global_batch="32")
    assert row_plan(row, default_library()).plan["parallelism"]["replicate"] == 2


def test_stacks_of_pytorch_share_their_constants() -> None:
    """One level, one count of channels: a factor of a publication's own would be fitted to it."""
    common = load_stack("pytorch-aten")
    names = [name for name in default_library().names("stack") if name.startswith(("torchtitan", "llm-foundry", "fms"))]
    for name in (*names, "nanotron-2024", "internevo-2023", "pytorch-fsdp2-2025"):
        stack = load_stack(name)
        assert (stack.matmul_level, stack.transfer_channels) == (common.matmul_level, common.transfer_channels)
