"""Kernel classes by family, as price lists and measurements name them: `matmul.bf16`, `norm.forward`, `all_reduce`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Bytes of an element of a number format that matrix units multiply.
NUMBER_FORMATS: Mapping[str, float] = {
    "fp64": 8.0,
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp6": 0.75,
    "fp4": 0.5,
}
ATTENTION_KERNELS = ("flash", "flash3", "triton", "efficient", "cudnn", "math")
ACTIVATIONS = ("gelu", "gelu_tanh", "silu")  # relu is an elementwise kernel
PASSES = ("forward", "backward")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SCALEOUT = "scaleout"  # a transfer between nodes or domains
# Kernels that memory limits, each a class of its own.
STREAMS = (
    *("elementwise", "copy", "cast", "quantise", "reduction", "softmax", "cross_entropy", "loss"),
    *("dropout", "embedding", "rotary", "optimizer"),
)


@dataclass(frozen=True)
class KernelFamily:
    """Kernel classes that one form of `ledger.price_forms` prices: `family.variant`, and `family` where it is `alone`.

    `together`: variants that are measured with both of their passes in one time, and priced as these passes.
    """

    form: str
    variants: tuple[str, ...] = ()
    alone: bool = False
    together: tuple[str, ...] = ()


KERNEL_FAMILIES: Mapping[str, KernelFamily] = {
    "matmul": KernelFamily("matmul", tuple(NUMBER_FORMATS)),
    "grouped": KernelFamily("grouped", tuple(NUMBER_FORMATS)),
    "attention": KernelFamily(
        "attention",
        tuple(f"{kernel}.{each}" for kernel in ATTENTION_KERNELS for each in PASSES),
        together=ATTENTION_KERNELS,
    ),
    "norm": KernelFamily("bandwidth", PASSES, alone=True),
    "activation": KernelFamily("bandwidth", ACTIVATIONS),
    **{family: KernelFamily("bandwidth", alone=True) for family in STREAMS},
    "host_link": KernelFamily("send", ("down", "up"), alone=True),
    "send": KernelFamily("send", (SCALEOUT,), alone=True),
    **{family: KernelFamily("collective", (SCALEOUT,), alone=True) for family in COLLECTIVES},
}
UNPRICED = ("launch",)  # measured, and no part of a price list: a software stack says what a launch costs


def classes_of(family: str) -> tuple[str, ...]:
    """The classes of a family that a price list may have."""
    row = KERNEL_FAMILIES[family]
    return (*((family,) if row.alone else ()), *(f"{family}.{variant}" for variant in row.variants))


def price_classes() -> tuple[str, ...]:
    """Every class that a price list may have."""
    return tuple(name for family in KERNEL_FAMILIES for name in classes_of(family))


def measured_classes() -> tuple[str, ...]:
    """Every class that a measurement may be of."""
    timed = (f"{family}.{kernel}" for family, row in KERNEL_FAMILIES.items() for kernel in row.together)
    return (*price_classes(), *timed, *UNPRICED)


def form_of(what: str) -> str:
    """The form that prices a class; empty where nothing is priced as one."""
    family = KERNEL_FAMILIES.get(what.partition(".")[0])
    return family.form if family else ""


def passes_of(what: str) -> tuple[str, ...]:
    """The classes that a measurement gives a price to: of both passes where they were timed as one, else its own."""
    family, _, variant = what.partition(".")
    together = variant in KERNEL_FAMILIES[family].together
    return tuple(f"{what}.{each}" for each in PASSES) if together else (what,)


def number_format(what: str, attention: str) -> str:
    """The row of a data sheet's peaks that a class is priced by, `attention` being that of attention; else empty."""
    family, _, variant = what.partition(".")
    return {"matmul": variant, "grouped": variant, "attention": attention}.get(family, "")
