"""Classes of kernels and transfers: what a price list has one price for, and what a record of evidence measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

FORWARD, BACKWARD = "forward", "backward"
PASSES = (FORWARD, BACKWARD)
DECODE = "decode"  # a pass of serving: few tokens, each of another sequence


@dataclass(frozen=True)
class KernelClass:
    """The kernels that one curve prices: products of a dtype, one pass of an attention kernel, copies, all-reduces, ...

    `variant` is the dtype of matrix products, the kernel of attention, the function of an activation, the direction of
    a copy to the host; `pass_` is `forward` or `backward`, where the two have prices of their own, or `decode`.
    """

    family: str
    variant: str = ""
    pass_: str = ""

    def __str__(self) -> str:
        """The class as price lists write it: `matmul.bf16`, `attention.flash.forward`, `norm.backward`."""
        return ".".join(part for part in (self.family, self.variant, self.pass_) if part)

    def backward(self) -> KernelClass:
        """The backward kernel of a forward one."""
        return KernelClass(self.family, self.variant, BACKWARD)


@cache
def kernel_class(text: str) -> KernelClass:
    """The class that a price list or a record of evidence names."""
    family, *variant = text.split(".")
    pass_ = variant.pop() if variant and variant[-1] in (*PASSES, DECODE) else ""
    return KernelClass(family, ".".join(variant), pass_)


MATMUL, GROUPED, ATTENTION, NORM, ACTIVATION, HOST_LINK = (
    "matmul",
    "grouped",
    "attention",
    "norm",
    "activation",
    "host_link",
)

ELEMENTWISE = KernelClass("elementwise")
REDUCTION = KernelClass("reduction")
COPY = KernelClass("copy")
CAST = KernelClass("cast")
QUANTISE = KernelClass("quantise")
SOFTMAX = KernelClass("softmax")
CROSS_ENTROPY = KernelClass("cross_entropy")
LOSS = KernelClass("loss")
DROPOUT = KernelClass("dropout")
EMBEDDING = KernelClass("embedding")
ROTARY = KernelClass("rotary")
OPTIMIZER = KernelClass("optimizer")
NORM_FORWARD = KernelClass(NORM, pass_=FORWARD)
NORM_BACKWARD = KernelClass(NORM, pass_=BACKWARD)
SCAN = KernelClass("scan", pass_=FORWARD)  # of a recurrence: no price list has one, so a data sheet prices it
NO_KERNEL = KernelClass("none")  # what runs nothing


@cache
def matmul(dtype: str, *, grouped: bool = False) -> KernelClass:
    """Matrix products of operands in a dtype; `grouped`: of groups of rows, each with a matrix of its own."""
    return KernelClass(GROUPED if grouped else MATMUL, dtype)


# --- families of kernel classes ---

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
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SCALEOUT = "scaleout"  # a transfer between nodes or domains
ONE_SHOT = "one_shot"  # one kernel that reads the buffers of all ranks of a domain, and no ring
# Kernels that memory limits, each a class of its own.
STREAMS = (
    *("elementwise", "copy", "cast", "quantise", "reduction", "softmax", "cross_entropy", "loss"),
    *("dropout", "embedding", "rotary", "optimizer"),
)
CACHED = ("flash", "flash3", "masked", "cudnn", "triton", "efficient")  # attention over a cache, also in fp8
BYTE_CACHES = ("fp8_e4m3", "fp8_e5m2", "int8")  # formats of a cache whose kernels were timed, beside wider ones
STORED_FORMATS = ("int8_weights", "int4_weights")  # of weights that a product reads as they are stored, and widens
# Products of one row, for which libraries have kernels of their own: the class of each, by number format, and back.
ROW_FORMATS: Mapping[str, str] = {name: f"{name}_row" for name in ("bf16", "fp16")}
FORMAT_OF_ROW: Mapping[str, str] = {row: name for name, row in ROW_FORMATS.items()}
# Kernels of attention over a cache, in two bytes an element or in one: the kernel over whole prompts.
OVER_PROMPTS: Mapping[str, str] = {f"{kernel}{cache}": kernel for kernel in CACHED for cache in ("", "_fp8")}
NEITHER = ("",)  # no variant, or both passes alike


@dataclass(frozen=True)
class Decoding:
    """Classes of a pass that decodes, where they have prices of their own: their form and their variants."""

    form: str
    variants: tuple[str, ...]


@dataclass(frozen=True)
class KernelFamily:
    """The classes of every variant and pass, and the form of `ledger.price_forms` that prices them.

    `together`: measurements may have both passes in one time, of which each pass is priced.
    """

    form: str
    variants: tuple[str, ...] = NEITHER
    passes: tuple[str, ...] = NEITHER
    together: bool = False
    decoding: Decoding | None = None


KERNEL_FAMILIES: Mapping[str, KernelFamily] = {
    MATMUL: KernelFamily(
        "matmul", tuple(NUMBER_FORMATS), decoding=Decoding("matmul", (*NUMBER_FORMATS, *FORMAT_OF_ROW, *STORED_FORMATS))
    ),
    GROUPED: KernelFamily("grouped", tuple(NUMBER_FORMATS), decoding=Decoding("matmul", tuple(NUMBER_FORMATS))),
    ATTENTION: KernelFamily(
        "attention",
        ("flash", "flash3", "triton", "efficient", "cudnn", "math"),
        PASSES,
        together=True,
        decoding=Decoding("cached", tuple(OVER_PROMPTS)),
    ),
    NORM: KernelFamily("bandwidth", passes=("", *PASSES), decoding=Decoding("bandwidth", NEITHER)),
    ACTIVATION: KernelFamily(
        "bandwidth", ("gelu", "gelu_tanh", "silu"), decoding=Decoding("bandwidth", ("gelu", "gelu_tanh", "silu"))
    ),  # relu is an elementwise kernel
    **{family: KernelFamily("bandwidth", decoding=Decoding("bandwidth", NEITHER)) for family in STREAMS},
    HOST_LINK: KernelFamily("send", ("", "down", "up")),
    "send": KernelFamily("send", ("", SCALEOUT)),
    **{family: KernelFamily("collective", ("", SCALEOUT)) for family in COLLECTIVES[1:]},
    COLLECTIVES[0]: KernelFamily("collective", ("", SCALEOUT, ONE_SHOT)),
}
UNPRICED = ("launch",)  # measured, and no part of a price list: a software stack says what a launch costs


def classes_of(family: str) -> tuple[KernelClass, ...]:
    """The classes of a family that a price list may have."""
    row = KERNEL_FAMILIES[family]
    decoding = row.decoding.variants if row.decoding else ()
    return (
        *(KernelClass(family, variant, pass_) for variant in row.variants for pass_ in row.passes),
        *(KernelClass(family, variant, DECODE) for variant in decoding),
    )


def price_classes() -> tuple[str, ...]:
    """Every class that a price list may have, as it is written."""
    return _written_classes(tuple(KERNEL_FAMILIES.items()))


@lru_cache(maxsize=4)
def _written_classes(families: tuple[tuple[str, KernelFamily], ...]) -> tuple[str, ...]:
    """The classes of families as they are written; each price of a list asks for them."""
    return tuple(str(class_) for family, _ in families for class_ in classes_of(family))


def measured_classes() -> tuple[str, ...]:
    """Every class that a measurement may be of, as it is written."""
    together = (
        str(KernelClass(family, variant))
        for family, row in KERNEL_FAMILIES.items()
        if row.together
        for variant in row.variants
    )
    return (*price_classes(), *together, *UNPRICED)


def form_of(kernel: KernelClass) -> str:
    """The form that prices a class; empty where nothing is priced as one."""
    family = KERNEL_FAMILIES.get(kernel.family)
    if family and family.decoding and kernel.pass_ == DECODE:
        return family.decoding.form
    return family.form if family else ""


def passes_of(kernel: KernelClass) -> tuple[KernelClass, ...]:
    """The classes that a measurement gives a price to: of both passes where they were timed as one, else its own."""
    together = KERNEL_FAMILIES[kernel.family].together and not kernel.pass_
    return tuple(replace(kernel, pass_=pass_) for pass_ in PASSES) if together else (kernel,)


def number_format(kernel: KernelClass, attention: str) -> str:
    """The row of a data sheet's peaks that a class is priced by, `attention` being that of attention; else empty."""
    if kernel.family == ATTENTION:
        return attention
    return FORMAT_OF_ROW.get(kernel.variant, kernel.variant) if kernel.family in (MATMUL, GROUPED) else ""
