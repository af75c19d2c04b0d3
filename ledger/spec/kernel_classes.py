"""Classes of kernels and transfers: what a price list has one price for, and what a record of evidence measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

FORWARD, BACKWARD = "forward", "backward"
PASSES = (FORWARD, BACKWARD)
DECODE = "decode"  # a pass of serving: few tokens, each of another sequence


@dataclass(frozen=True)
class KernelClass:
    """What one curve prices: products of a dtype, one pass of an attention kernel, copies, all-reduces, ...

    `variant` is the dtype of matrix products, the kernel of attention, the function of an activation, the direction of
    a copy to the host; `pass_` is `forward` or `backward`, where the two have prices of their own, or `decode`.
    """

    family: str
    variant: str = ""
    pass_: str = ""

    def __str__(self) -> str:
        """As price lists and evidence write it: `matmul.bf16`, `attention.flash.forward`, `norm.backward`."""
        return ".".join(part for part in (self.family, self.variant, self.pass_) if part)

    def backward(self) -> KernelClass:
        """The backward kernel of a forward one."""
        return KernelClass(self.family, self.variant, BACKWARD)


@cache
def kernel_class(text: str) -> KernelClass:
    """The class that a price list or a record of evidence names."""
    family, *rest = text.split(".")
    pass_ = rest.pop() if rest and rest[-1] in (*PASSES, DECODE) else ""
    return KernelClass(family, ".".join(rest), pass_)


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
