"""The grid on which saved bytes of the compiler and of PyTorch are compared, and how each is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import combinations

from ledger.books.compiled import Compiled
from tests.model import plans

FAMILIES = {
    "llama": plans.LLAMA,
    "gpt2": plans.GPT2,
    "gpt2 without dropout": plans.GPT2_NO_DROPOUT,
    "gpt_neox": plans.NEOX,
    "qwen2": plans.QWEN2,
    "mistral": plans.MISTRAL,
    "gemma2": plans.GEMMA2,
    "llama with biases": plans.BIASED_LLAMA,
    "llama4, dense": plans.LLAMA4,
    "olmo2": plans.OLMO2,
    "phi": plans.PHI,
    "qwen3": plans.QWEN3,
    "phi3": plans.PHI3,
    "phi3, partly rotary": plans.PHI4,
    "granite": plans.GRANITE,
    "starcoder2": plans.STARCODER2,
    "glm4": plans.GLM4,
    "stablelm": plans.STABLELM,
    "cohere": plans.COHERE,
    "cohere, normed heads": plans.COHERE_NORMED,
    "cohere2": plans.COHERE2,
    "bert": plans.BERT,
    "vit": plans.VIT,
    "vit without dropout": plans.VIT_NO_DROPOUT,
    "mamba2": plans.MAMBA2,
    "gemma3": plans.GEMMA3,
    "deepseek_v3, dense": plans.LATENT,
    "deepseek_v2, dense": plans.LATENT_COMPLEX,
    "deepseek_v3, dense, queries from the stream, biases": plans.LATENT_KEYS,
}
EXPERTS = {
    "mixtral": plans.MIXTRAL,
    "qwen3_moe": plans.QWEN3_EXPERTS,
    "qwen2_moe": plans.QWEN2_EXPERTS,
    "deepseek_v3": plans.DEEPSEEK3,
    "deepseek_v2": plans.DEEPSEEK2,
}
OTHERS = {  # which the grid below does not fit
    "gpt_oss": plans.GPT_OSS,
    "llama4": plans.LLAMA4_EXPERTS,
    "llama4, some layers dense": plans.LLAMA4_MIXED,
    "mixtral, balanced": plans.layer(plans.MIXTRAL, mlp={"router": {"normalize": True, "auxiliary_loss": True}}),
    "qwen3_moe, balanced": plans.layer(
        plans.QWEN3_EXPERTS, mlp={"router": {"weights": "input", "auxiliary_loss": True}}
    ),
}
SCANS = {"mamba2"}  # whose other kernels rebuild what they save
PRECISIONS = ("bf16-true", "bf16-autocast", "fp32")
CORES = ("flash", "cudnn", "efficient", "math", "eager")
HALF_ONLY = ("flash", "cudnn")


@dataclass(frozen=True)
class Case:
    """One model family under one choice of kernels and one precision."""

    family: str
    precision: str
    attention: str
    norm: str
    activation: str
    experts: str = ""

    def __str__(self) -> str:
        core = f"{self.attention}, norm {self.norm}, activation {self.activation}"
        return ", ".join(part for part in (self.family, self.precision, core, self.experts) if part)

    def compiled(self) -> Compiled:
        """The plan through the public interface."""
        kernels = {"attention": self.attention, "norm": self.norm, "activation": self.activation}
        if self.experts:
            kernels["experts"] = self.experts
        if self.family in SCANS:
            kernels["scan"] = "eager"
        model = (FAMILIES | EXPERTS | OTHERS)[self.family]
        return plans.compiled(model=model, precision=self.precision, kernels=kernels)


def cases() -> Iterator[Case]:
    """Every core in every precision with all fused and all eager; norm and activation apart with one fused core.

    LayerNorm is one kernel however it is called, so GPT-2 and GPT-NeoX have no eager norm of their own.
    """
    for family in FAMILIES:
        for precision in PRECISIONS:
            for attention in CORES:
                if attention in HALF_ONLY and precision == "fp32":
                    continue
                yield Case(family, precision, attention, "fused", "fused")
                if family not in {"gpt2 without dropout", "mistral", "qwen2", "llama with biases"}:
                    yield Case(family, precision, attention, "eager", "eager")
        yield Case(family, "bf16-true", "flash", "fused", "eager")
        yield Case(family, "bf16-autocast", "flash", "eager", "fused")


def expert_cases() -> Iterator[Case]:
    """Experts as groups of rows where weights are in bf16, and as copies for each row in every precision."""
    for family in EXPERTS:
        for activation in ("fused", "eager"):
            yield Case(family, "bf16-true", "flash", "fused", activation, "grouped_mm")
            yield Case(family, "bf16-true", "flash", "fused", activation, "batched_mm")
        yield Case(family, "bf16-autocast", "flash", "fused", "fused", "batched_mm")
        yield Case(family, "bf16-autocast", "eager", "eager", "eager", "batched_mm")
        yield Case(family, "fp32", "math", "fused", "fused", "batched_mm")
    for family, core in (("mixtral, balanced", "flash"), ("qwen3_moe, balanced", "math")):
        yield Case(family, "bf16-true", core, "fused", "fused", "grouped_mm")
    yield Case("qwen3_moe, balanced", "bf16-autocast", "flash", "fused", "fused", "batched_mm")
    for precision in ("bf16-true", "bf16-autocast", "fp32"):
        for kind in ("fused", "eager"):
            yield Case("llama4", precision, "math" if precision == "fp32" else "efficient", kind, kind, "dense")
    yield Case("llama4, some layers dense", "bf16-autocast", "flash", "eager", "fused", "dense")
    for norm in ("fused", "eager"):
        yield Case("gpt_oss", "bf16-true", "eager", norm, "fused", "grouped_mm")
        for precision in ("bf16-true", "bf16-autocast", "fp32"):
            yield Case("gpt_oss", precision, "eager", norm, "fused", "batched_mm")


def together(case: Case) -> frozenset[tuple[tuple[int, str], ...]]:
    """Every two choices of precision and kernels that a case makes together, and its family."""
    family, *others = enumerate(astuple(case))
    return frozenset({(family,), *combinations(others, 2)})


def predicted(compiled: Compiled) -> dict[str, int]:
    """The compiler's own figures: bytes of a layer of each group, and of the model."""
    found = {key: int(value) for key, value in compiled.totals.items() if key.startswith("saved.")}
    return {key.removeprefix("saved."): value for key, value in found.items()}


def packed(compiled: Compiled) -> dict[str, int]:
    """What autograd packed when PyTorch ran the same plan: the last layer of each group, and everything."""
    from ledger.lab.observed.one_device import saved_storages
    from ledger.lab.reference.workload import workload

    storages = saved_storages(workload(compiled.plan))
    found = {"total": sum(storage.bytes for storage in storages)}
    for index, group in enumerate(compiled.plan.model.layers):
        # Position tables are packed by the first layer and shared by all, so the last one of a group is its own.
        found[f"per_layer.{group.name}"] = sum(storage.bytes for storage in storages if storage.layer == index)
    return found
