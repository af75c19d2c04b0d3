"""What each publication says of its own software: the stack, number formats, and which memory it prints.

The rows are facts about code bases, found in their public code; none is chosen by how well it predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ledger.lab.score.facts import Facts

ALLOCATED, RESERVED, DRIVER = "allocated", "reserved", "driver"


@dataclass(frozen=True)
class Software:
    """How the runs of one publication were made.

    `compiled` is the stack of rows with torch.compile; `precisions` goes from a row's dtype to a spec; `memory` is what
    is printed (torch's allocated or reserved bytes, or the driver's), of the `first` rank or of the `worst`;
    `networks` is the line rate between nodes, one way, for each device, by a word of the hardware; `devices` the part
    that a name stands for on the machines of this publication. `recompute` says what the words of the table mean,
    `sequence` how sequence parallelism is done, `exchange` how attention sees a sequence that is cut, `balanced`
    whether stages are cut by their matmuls; `architecture`, `optimizer`, `attention` and `sequence_parallel` are what
    the columns leave out and the publication says elsewhere.
    """

    stack: str
    why: str
    compiled: str = ""
    precisions: Mapping[str, Any] = field(default_factory=dict)
    memory: str = RESERVED
    rank: str = "worst"
    recompute: Mapping[str, Any] = field(default_factory=dict)
    sequence: str = "regather"
    exchange: str = "all_gather"
    balanced: bool = False
    architecture: str = "llama"
    optimizer: str = "adamw"
    attention: Mapping[str, Any] = field(default_factory=dict)
    sequence_parallel: bool | None = None
    networks: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)


# torchtitan, _apply_ac_to_transformer_block: results of attention and reduce-scatters are kept, and of every second mm
SELECTIVE_OPERATIONS: Mapping[str, Any] = {"keep": ["matmul", "attention", "reduce_scatter"], "matmuls": "every_second"}
TORCHTITAN = Software(
    stack="pytorch-fsdp2-2025",
    compiled="pytorch-fsdp2-compile-2025",
    why="pytorch/torchtitan, torchtitan/metrics.py: reserved_bytes.all.peak in GiB",
    precisions={
        "bf16": "bf16-autocast",
        "fp8": "fp8-tensorwise",
        "fp8-rowwise": "fp8-rowwise",
        "mxfp8": "mxfp8-torchao",
    },
    recompute={"selective-op": SELECTIVE_OPERATIONS, "selective-layer": {"every": 2}},
    sequence="save_gathered",
    # torch.distributed.tensor.experimental, _templated_ring_attention: block by block also where one gather brings them
    exchange="ring",
)
BEFORE_APRIL_2025 = replace(TORCHTITAN, stack="torchtitan-2024", compiled="torchtitan-compile-2024")
MEGATRON = Software(
    stack="megatron-te-2024",
    why="NVIDIA/dgxc-benchmarking and the NeMo recipes it runs: distributed optimizer, fp32 main gradients",
    precisions={
        "bf16": "bf16-fp32-gradients",
        "fp8": {"base": "fp8-delayed", "gradients": "fp32", "reduction": "fp32"},
        "fp8-cs": {"base": "fp8-current", "gradients": "fp32", "reduction": "fp32"},
        "mxfp8": {"base": "mxfp8", "gradients": "fp32", "reduction": "fp32"},
        "nvfp4": {"base": "nvfp4", "gradients": "fp32", "reduction": "fp32"},
    },
)


def software_of(row: Facts) -> Software | None:
    """The software of a row; None where its publication is not known."""
    software = SOFTWARE.get(row.source_id or row.source)
    change = BY_ROW.get(row.source_id)
    return change(row, software) if software and change else software


def _torchao(row: Facts, software: Software) -> Software:
    """pytorch/ao docs/source/workflows/training.md: H100 in April 2025 (PyTorch 2.6, before the loss was compiled).

    B200 and MI300X in August 2025 (pytorch/ao pull request 2777), after torchtitan wrapped embedding and head apart.
    """
    if "workflows/training.md" not in row.source:
        return software
    if "H100" in row.hardware:
        return replace(software, compiled="torchtitan-compile-2024")
    return replace(
        software, compiled="torchtitan-rocm-2025" if "MI300X" in row.hardware else "torchtitan-blackwell-2025"
    )


def _torchtitan(row: Facts, software: Software) -> Software:
    """Rows that say in their notes that tensor parallelism is asynchronous, which needs torch.compile.

    fp8 was compiled as well (pytorch/torchtitan docs/float8.md), whether a row says so or not.
    """
    if "AsyncTP" in row.notes or "Async TP" in row.notes:
        return replace(software, compiled=f"{software.compiled}-async", stack=f"{software.compiled}-async")
    return replace(software, stack=software.compiled) if row.dtype.startswith("fp8") else software


def _llm_foundry(row: Facts, software: Software) -> Software:
    """scripts/train/benchmarking/sweep.py: from 128 devices on, these models ran flash-attn, all others Triton's."""
    flash = (row.n_gpus or 0) >= LARGE_SCALE and row.model_name.removeprefix("mpt-") in {"1b", "3b", "7b", "70b"}
    return replace(software, stack="llm-foundry-flash-2023") if flash else software


def _internevo(row: Facts, software: Software) -> Software:
    """doc/en/train_performance.md tests FSDP beside the framework's own ZeRO, which updates one flat tensor."""
    return replace(software, stack="internevo-fsdp-2023") if row.data_parallel_kind.startswith("fsdp") else software


def _nanotron(row: Facts, software: Software) -> Software:
    """Runs whose script had hosts compare collectives, which shows in their own tests of transfers.

    A node sums at 425 GB/s in those, at 459 GB/s in the others (columns `AR Intra-node (GB/s)` and `job_id` of the copy
    below): pipelines, but for those of DistributedDataParallel on one node; several sequences at once on 4 or 8 nodes,
    but for tensor parallelism over 32.
    """
    devices, stages = row.n_gpus or 0, row.pp or 1
    piped = stages > 1 and (devices > NODE or row.data_parallel_kind != "ddp")
    several = stages == 1 and devices in (4 * NODE, 8 * NODE) and (row.micro_batch or 1) > 1 and (row.tp or 1) < 32
    return replace(software, stack="nanotron-2025-checked") if piped or several else software


NODE = 8  # devices
LARGE_SCALE = 128  # devices; the section "Large Scale" of llm-foundry's table
# Publications whose rows were made at different times or in different ways.
BY_ROW: Mapping[str, Callable[[Facts, Software], Software]] = {
    "torchao": _torchao,
    "torchtitan-202412": _torchtitan,
    "torchtitan-202506": _torchtitan,
    "torchtitan-2024-history": _torchtitan,
    "llm-foundry": _llm_foundry,
    "internevo": _internevo,
    "nanotron": _nanotron,
}

# Narayanan et al. 2021, arXiv 2104.04473, section 5: eight 200 Gb/s HDR InfiniBand adapters in each node of eight A100
SELENE = {"A100": "200 Gb/s"}
MEGATRON_2022 = Software(
    stack="megatron-lm-2022",
    why="Korthikanti et al. 2022",
    precisions={"fp16": "fp16-mixed"},
    architecture="gpt",
    optimizer="adam",
    networks=SELENE,
)
SOFTWARE: Mapping[str, Software] = {
    "torchtitan-202412": BEFORE_APRIL_2025,
    "torchtitan-202506": TORCHTITAN,
    "torchtitan-2024-history": BEFORE_APRIL_2025,
    "torchtitan-nvfp4": TORCHTITAN,
    # docs/source/eager_tutorials/pretraining.rst logs hosts with 96 GB of HBM2e; the rows of April are taken for theirs
    "torchao": replace(TORCHTITAN, devices={"H100-SXM5-80GB": "h100-sxm-500w"}),
    "nanotron": Software(
        stack="nanotron-2024",
        # The benchmark's own results name the mode of every run: REDUCE_SCATTER with asynchronous communication, whose
        # gathered inputs are not kept (tp_recompute_allgather, pull request 208). A copy of them: eyao600/Rapid-LLM,
        # validation_scripts/huggingface_data/bench_final2_mod_add.csv (columns tp_mode, tp_async_comm, Mem Res).
        why="huggingface/nanotron, nanotron/helpers.py: the table's memory is torch.cuda.max_memory_reserved / 2**30",
        precisions={"bf16": "bf16-fp32-gradients"},
        rank="first",
        sequence_parallel=True,
        attention={"fused_qkv": True},
        balanced=True,
    ),
    "internevo": Software(
        stack="internevo-2023",
        why="InternLM/InternEvo doc/en/train_performance.md: GPU memory in whole GB, which is what nvidia-smi shows",
        precisions={"bf16": "bf16-mixed"},
        memory=DRIVER,
        optimizer="adamw-flat",
        networks={"A100": "50 Gb/s"},  # the same page: 4 x 100 Gb/s RoCE between machines of 8
    ),
    "nvidia-dgxc": MEGATRON,
    "nvidia-nemo-24.07": MEGATRON,
    "nvidia-mbridge": MEGATRON,
    "korthikanti22": MEGATRON_2022,
    "megatron-sc21": replace(MEGATRON_2022, why="Narayanan et al. 2021"),
    "mt-nlg": replace(
        MEGATRON_2022,
        stack="megatron-deepspeed-2021",
        why="Smith et al. 2022",
        precisions={"bf16": "bf16-mixed"},
    ),
    "llm-foundry": Software(
        stack="llm-foundry-2023",
        why="mosaicml/llm-foundry scripts/train/benchmarking",
        precisions={"bf16": "bf16-autocast"},
        architecture="mpt",
        networks={"A100": "200 Gb/s"},  # the sections' titles: 1600 Gb/s of RoCE between nodes of 8
    ),
    "fms-fsdp": Software(
        stack="fms-fsdp-2024",
        compiled="fms-fsdp-2024",
        why="foundation-model-stack/fms-fsdp, README.md",
        networks={"A100": "50 Gb/s", "H100": "100 Gb/s"},  # 400 and 800 Gb/s between nodes of 8 (README.md)
        precisions={"bf16": {"base": "bf16-autocast", "reduction": "bf16"}},
    ),
}
