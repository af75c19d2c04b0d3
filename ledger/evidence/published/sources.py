"""What each publication says of its own software: the stack, number formats, and which memory it prints.

The rows are facts about code bases, found in their public code; none is chosen by how well it predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

ALLOCATED, RESERVED, DRIVER = "allocated", "reserved", "driver"


@dataclass(frozen=True)
class Software:
    """How the runs of one publication were made.

    `compiled` is the stack of rows with torch.compile; `precisions` goes from a row's dtype to a spec; `memory` is what
    is printed (torch's allocated or reserved bytes, or the driver's), of the `first` rank or of the `worst`;
    `recompute` says what the words of the table mean, `sequence` how sequence parallelism is done, `balanced` whether
    stages are cut by their matmuls; `architecture` and `optimizer` are what the columns leave out.
    """

    stack: str
    why: str
    compiled: str = ""
    precisions: Mapping[str, Any] = field(default_factory=dict)
    memory: str = RESERVED
    rank: str = "worst"
    recompute: Mapping[str, Any] = field(default_factory=dict)
    sequence: str = "regather"
    balanced: bool = False
    architecture: str = "llama"
    optimizer: str = "adamw"


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
# Publications whose rows were made at different times: a word of the source and one of the hardware, and the software.
DATED: Mapping[str, tuple[tuple[str, str, Software], ...]] = {
    # pytorch/ao docs/source/workflows/training.md: H100 in April 2025 (PyTorch 2.6, before the loss was compiled)
    "torchao": (
        ("workflows/training.md", "H100", BEFORE_APRIL_2025),
        # B200 in August 2025 (pytorch/ao pull request 2777), after torchtitan wrapped embedding and head apart
        ("workflows/training.md", "B200", replace(TORCHTITAN, compiled="torchtitan-compile-2025")),
        ("workflows/training.md", "MI300X", replace(TORCHTITAN, compiled="torchtitan-rocm-2025")),
    ),
}


def software(source_id: str, source: str, hardware: str) -> Software | None:
    """The software of a row; None where its publication is not known."""
    for word, device, made in DATED.get(source_id, ()):
        if word in source and device in hardware:
            return made
    return SOFTWARE.get(source_id or source)


SOFTWARE: Mapping[str, Software] = {
    "torchtitan-202412": BEFORE_APRIL_2025,
    "torchtitan-202506": TORCHTITAN,
    "torchtitan-2024-history": BEFORE_APRIL_2025,
    "torchtitan-nvfp4": TORCHTITAN,
    "torchao": TORCHTITAN,
    "nanotron": Software(
        stack="nanotron-2024",
        why="huggingface/nanotron, nanotron/helpers.py: the table's memory is torch.cuda.max_memory_reserved / 2**30",
        precisions={"bf16": "bf16-fp32-gradients"},
        rank="first",
        sequence="save_gathered",
        balanced=True,
    ),
    "internevo": Software(
        stack="internevo-2023",
        why="InternLM/InternEvo doc/en/train_performance.md: GPU memory in whole GB, which is what nvidia-smi shows",
        precisions={"bf16": "bf16-mixed"},
        memory=DRIVER,
        optimizer="adamw-flat",
    ),
    "nvidia-dgxc": MEGATRON,
    "nvidia-nemo-24.07": MEGATRON,
    "nvidia-mbridge": MEGATRON,
    "korthikanti22": Software(
        stack="megatron-lm-2022",
        why="Korthikanti et al. 2022",
        precisions={"fp16": "fp16-mixed"},
        architecture="gpt",
        optimizer="adam",
    ),
    "megatron-sc21": Software(
        stack="megatron-lm-2022",
        why="Narayanan et al. 2021",
        precisions={"fp16": "fp16-mixed"},
        architecture="gpt",
        optimizer="adam",
    ),
    "mt-nlg": Software(
        stack="megatron-lm-2022",
        why="Smith et al. 2022",
        precisions={"bf16": "bf16-mixed"},
        architecture="gpt",
        optimizer="adam",
    ),
    "llm-foundry": Software(
        stack="llm-foundry-2024",
        why="mosaicml/llm-foundry scripts/train/benchmarking",
        precisions={"bf16": "bf16-autocast"},
        architecture="mpt",
    ),
    "fms-fsdp": Software(
        stack="pytorch-fsdp2-2025",
        compiled="pytorch-fsdp2-compile-2025",
        why="foundation-model-stack/fms-fsdp",
        precisions={"bf16": "bf16-autocast"},
    ),
}
