"""A stack as an engine that serves: how steps are batched and launched, and what its host spends on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ledger.spec.parts import PartHeader
from ledger.spec.structures import ListOf, quantity
from ledger.spec.values import Choice, Integer, String

HOST_TIME = quantity("s", zero=True)


@dataclass(frozen=True)
class Engine:
    """The engine of a stack that serves; times in s, sizes in B, counts of sequences and tokens."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="What a stack does as an engine that serves; no plan of training reads it.", sourced=True
    )

    batching: Annotated[
        str,
        Choice("continuous", "static"),
        "Sequences join and leave at every step, or all begin and end as one batch.",
    ] = "continuous"
    graphs: Annotated[
        bool,
        "Whether steps of decoding are replayed as CUDA graphs: the host launches each as one, and "
        "`launch.per_operation` counts for prompts alone.",
    ] = True
    step: Annotated[
        float,
        HOST_TIME,
        "Host time of a step that the device waits for: scheduling, inputs, sampled tokens, their text.",
    ] = 0.0
    sequence: Annotated[float, HOST_TIME, "The same for each sequence of the step."] = 0.0
    memory: Annotated[
        float,
        quantity("1", least=1e-3, greatest=1),
        "Share of device memory that it takes (`gpu_memory_utilization`, `free_gpu_memory_fraction`).",
    ] = 1.0
    memory_of: Annotated[
        str,
        Choice("device", "left"),
        "Of what that is a share: of the device, for all that there is, or of what weights and activations leave, for "
        "the cache.",
    ] = "device"
    sequences: Annotated[int, Integer(0), "Sequences of a step at most (`max_num_seqs`); 0: as many as fit."] = 0
    tokens: Annotated[int, Integer(0), "Tokens of prompts that a step takes at most; 0: whole prompts."] = 0
    one_shot: Annotated[
        int,
        quantity("B", zero=True),
        "All-reduces inside a domain up to this size are one kernel that reads the buffers of all ranks; others are "
        "NCCL's.",
    ] = 0
    decode_attention: Annotated[
        str,
        Choice("", "masked"),
        "The kernel of attention over a cache, where it is not that of `kernels.attention`: `masked`, one block for a "
        "head (TensorRT-LLM's masked multi-head attention and XQA).",
    ] = ""
    cache_reads: Annotated[
        str,
        Choice("shared", "each_head"),
        "Whether attention reads a head of the cache once for all heads of queries that share it, or once for each.",
    ] = "shared"
    shared_groups: Annotated[
        tuple[int, ...],
        ListOf(Integer(1), unique=True),
        "With `cache_reads: each_head`: numbers of query heads to a head of the cache that have a kernel which reads "
        "it once.",
    ] = ()
    tile_rows: Annotated[
        int,
        Integer(0, 65_536),
        "Rows of queries that attention over a cache multiplies at least, on matrix units; 0: as many as there are.",
    ] = 0
    score_bytes: Annotated[
        int,
        quantity("B", zero=True),
        "Of attention of prompts that is not fused: bytes that kernels between its two products move of each score. "
        "20: written in fp32, read and written by the softmax, written in 16 bits, and read.",
    ] = 20
    stored_level: Annotated[
        float,
        quantity("1", least=1e-3, greatest=1000),
        "Of products of prompts whose kernel widens quantised weights as it reads them: their rate over that of "
        "products whose weights are wide.",
    ] = 1.0
    partial_sums: Annotated[
        int,
        Integer(1),
        "Parts of the inner size that such kernels sum apart: each is written, and another kernel adds them.",
    ] = 1
    row_by_row: Annotated[
        tuple[str, ...],
        ListOf(String(least=1), unique=True),
        "Products of prompts with stored weights that run as products of one row each, on scalar units (`mlp/gate`).",
    ] = ()
    vector_level: Annotated[
        float,
        quantity("1", least=1e-3, greatest=1),
        "Their rate over the data sheet's of scalar units (`accelerator.vector`).",
    ] = 1.0
    widens: Annotated[
        bool, "Whether a kernel writes quantised weights out wide before products of prompts, which read them so."
    ] = False
    drained: Annotated[
        int,
        Integer(0),
        "Tokens of a prompt after which stages of a pipeline wait for each other (llama.cpp's `n_batch`); 0: never.",
    ] = 0
    fp16_sums: Annotated[
        bool,
        "Whether products of prompts in fp16 keep their sums in fp16 too, which some devices do faster "
        "(`accelerator.fp16_sums`).",
    ] = False
    wide_activations: Annotated[
        bool,
        "Whether activations are fp32: each product of a prompt converts its operand to 16 bits before, and its result "
        "back after.",
    ] = False
    cache_copies: Annotated[
        bool, "Whether each new token is joined with the cache in a new tensor, so that all of it is read and written."
    ] = False
    repeats_heads: Annotated[
        bool,
        "With `cache_copies`: whether heads of the cache are written out once for every head of queries that shares "
        "them, before each attention (`repeat_kv`).",
    ] = False
    joint_sums: Annotated[
        bool, "Whether attention and feed-forward parts that stand beside each other are added before one all-reduce."
    ] = False
    peers: Annotated[
        str,
        Choice("measured", "direct"),
        "Of devices without links of their own: their collectives as they were measured, or every pair of a node at "
        "the rate of two, on machines whose devices reach each other over PCIe.",
    ] = "measured"
