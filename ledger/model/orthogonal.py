"""Newton-Schulz iterations: an update of a matrix that is made of products of matrices."""

from __future__ import annotations

from collections.abc import Iterator

import sympy

from ledger.model import dtypes
from ledger.model.contraction import Contraction
from ledger.model.dims import Dim
from ledger.model.operations import total
from ledger.model.optimizers import Owned, Value, matrix
from ledger.model.sharding import Exchange, Sharding, gathered
from ledger.model.tensors import Tensor


def products(one: Owned, value: Value) -> Iterator[tuple[sympy.Expr, Contraction]]:
    """The three products of an iteration, each with how often a step has it: X X', its square, and that times X.

    X has the shorter side first (torch/optim/_muon.py); every device computes all of its matrix.
    """
    schulz = one.rule.newton_schulz
    if schulz is None:
        return
    count, rows, columns = matrix(one.weight)
    short, long = sorted((rows, columns), key=value)
    name = f"{one.weight.name}/orthogonal"
    sizes = {"short": short, "other": short, "third": short, "long": long}

    def over(of: str, dims: str) -> Tensor:
        return Tensor(f"{name}.{of}", tuple(Dim(dim, sizes[dim]) for dim in dims.split()), schulz.dtype)

    steps = (
        ("gram", "x", "short long", "x", "other long", "short other"),
        ("square", "gram", "short other", "gram", "other third", "short third"),
        ("apply", "square", "short other", "x", "other long", "short long"),
    )
    kernel = f"matmul.{dtypes.rate(schulz.dtype)}"
    for step, first, left, second, right, out in steps:
        operands = (over(first, left), over(second, right))
        einsum = f"{left}, {right} -> {out}"
        product = Contraction(f"{name}.{step}", kernel, operands, (over(step, out),), einsum=einsum)
        yield one.count * count * schulz.iterations, product


def gathers(mine: tuple[Owned, ...], sharding: Sharding) -> Iterator[tuple[str, sympy.Expr, str, Exchange]]:
    """What is held split is gathered before its products (Liu et al. 2025, arXiv 2502.16982, algorithm 1, line 3)."""
    if not sharding.splits("optimizer"):
        return
    units = dict.fromkeys((one.unit, one.count) for one in mine if one.rule.newton_schulz)
    for unit, count in units:
        found = [one for one in mine if one.unit == unit and one.rule.newton_schulz]
        amount = total(
            gathered([one.weight], sharding, one.rule.newton_schulz.dtype) for one in found if one.rule.newton_schulz
        )
        name = "update/all_gather"
        moved = Exchange(name, "all_gather.data", (), (), collective="all_gather", amount=amount, per_step=True)
        yield unit, count, "optimizer", moved
