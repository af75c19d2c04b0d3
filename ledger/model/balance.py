"""The loss that keeps experts evenly used (Fedus et al. 2021, arXiv 2101.03961, equations 4 to 6), as in transformers.

The router's logits of all layers wait for the end of the forward pass, where their shares are computed once more.
"""

from __future__ import annotations

from dataclasses import replace

from ledger.model.dims import Dim, symbol
from ledger.model.elementwise import Pointwise
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.spec.kernel_classes import LOSS, REDUCTION, SOFTMAX
from ledger.spec.plan import Group


def balance(tape: Tape, group: Group) -> None:
    """Of all layers of a group: the softmax of the logits, how often each expert was chosen, and the loss of both."""
    router = group.mlp.router
    wide = router.dtype == "fp32" and not tape.precision.autocast
    layers = Dim("layers", symbol("layers", tape.suffix))
    dims = (layers, *tape.dims("batch seq routes"))
    name = f"balance/{group.name}"
    logits = tape.activation(f"{name}.logits", dims, "fp32" if wide else tape.matmul_result, tape.layout.inputs)
    dtype = "fp32" if tape.precision.autocast else logits.dtype  # autocast takes a softmax in fp32
    shares = tape.pointwise(f"{name}.scores", logits, dtype=dtype, kernel=SOFTMAX, flops=5, saves=["out"])
    counts = Tensor(f"{name}.counts", dims[-1:], "fp32", "statistic")
    seen = replace(shares, role="statistic", view_of=shares.storage)
    tape.record(Pointwise(f"{name}.chosen", REDUCTION, (seen,), (counts,), flops=0))
    means = tape.pointwise(f"{name}.means", shares, dims=dims[-1:], dtype="fp32", kernel=REDUCTION)
    tape.pointwise(f"{name}.loss", means, counts, dims=(), dtype="fp32", kernel=LOSS, saves=[counts])
