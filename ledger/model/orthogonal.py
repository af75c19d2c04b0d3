"""Newton-Schulz iterations: an update of a matrix that is made of products of matrices."""

from __future__ import annotations

from collections.abc import Iterator

import sympy

from ledger.model import dtypes
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim, listed
from ledger.model.operations import total
from ledger.model.optimizers import Owned, Value, matrix
from ledger.model.sharding import Exchange, Sharding
from ledger.model.tensors import CeilDiv, Tensor, sized
from ledger.spec.kernel_classes import KernelClass, matmul


def products(one: Owned, sharding: Sharding, value: Value) -> Iterator[tuple[sympy.Expr, Contraction]]:
    """The three products of an iteration, each with how often a step has it: X X', its square, and that times X.

    X has the shorter side first (torch/optim/_muon.py). Where states are held split, whole matrices are dealt out to
    the devices that share them, and this is the device with most.
    """
    schulz = one.rule.newton_schulz
    if schulz is None:
        return
    count, rows, columns = matrix(one.weight)
    short, long = sorted((rows, columns), key=value)
    name = f"{one.weight.name}.orthogonal"
    sizes = {"short": short, "other": short, "third": short, "long": long}

    def over(of: str, dims: str) -> Tensor:
        return Tensor(f"{name}.{of}", tuple(Dim(dim, sizes[dim]) for dim in listed(dims)), schulz.dtype)

    steps = (
        ("gram", "x", "short long", "x", "other long", "short other"),
        ("square", "gram", "short other", "gram", "other third", "short third"),
        ("apply", "square", "short other", "x", "other long", "short long"),
    )
    matrices = one.count * count
    dealt = CeilDiv(matrices, sharding.degree(one.weight)) if sharding.splits("optimizer") else matrices
    kernel = matmul(dtypes.rate(schulz.dtype))
    for step, first, left, second, right, out in steps:
        operands = (over(first, left), over(second, right))
        einsum = f"{left}, {right} -> {out}"
        product = Contraction(f"{name}.{step}", kernel, operands, (over(step, out),), einsum=einsum)
        yield dealt * schulz.iterations, product


def exchanges(mine: tuple[Owned, ...], sharding: Sharding) -> Iterator[tuple[str, sympy.Expr, str, Exchange]]:
    """What is held split is brought together on the device that a matrix is dealt to, and its update brought back.

    Ahn et al. 2025, Dion, arXiv 2504.05295 (microsoft/dion, dion/muon.py): every device sends its part of each matrix.
    """
    if not sharding.splits("optimizer"):
        return
    for unit, count in dict.fromkeys((one.unit, one.count) for one in mine):
        found = [(one.weight, one.rule.newton_schulz) for one in mine if one.unit == unit]
        sent = total(sized(s.dtype, sharding.held("optimizer", weight)) for weight, s in found if s is not None)
        for way in ("together", "back") if sent != 0 else ():
            yield unit, count, "optimizer", _to_all(f"update/{way}", sent)


def _to_all(name: str, amount: sympy.Expr) -> Exchange:
    return Exchange(name, KernelClass("all_to_all"), (), (), collective="all_to_all", amount=amount, per_step=True)
