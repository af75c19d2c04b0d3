"""The loss: cross-entropy of the next token over logits that may be split over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy

from ledger.model.dims import Dim
from ledger.model.operations import Operation, Pointwise, gradient
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor


@dataclass(frozen=True)
class SplitLogSoftmax(Pointwise):
    """Log-softmax over a split vocabulary, whose gradient PyTorch spells out: (one-hot + exp(result)) x upstream.

    So one more tensor of the logits' size exists than in the fused kernel (torch.distributed.tensor.parallel.loss).
    """

    def gradients(self) -> tuple[Operation, ...]:
        """Probabilities are written out before they join the upstream gradient."""
        logs, upstream = self.output, gradient(self.output)
        shares = replace(logs, name=f"{self.name}.probabilities")
        wanted = (gradient(self.inputs[0]),)
        return (
            Pointwise(f"{shares.name}", "elementwise", (logs,), (shares,), flops=4),
            Pointwise(f"{self.name}.gradient", "elementwise", (logs, upstream, shares), wanted, flops=2),
        )


def loss(tape: Tape, logits: Tensor) -> Tensor:
    """Cross-entropy of the next token; a split vocabulary needs the sums of its three reductions."""
    labels = Tensor("cross_entropy/labels.index", logits.dims[:2], "int64", "index", tape.layout.inputs)
    total = Tensor("cross_entropy/weight", (Dim("one", sympy.Integer(1)),), "fp32", "statistic")
    if tape.kernels.loss == "eager":
        logits = tape.cast(logits, tape.precision.logits)
    axes = sorted({axis for dim, axis in logits.split if dim == "vocab"})
    logs = _log_softmax(tape, logits, spelt_out=bool(axes) and tape.kernels.loss == "eager")
    for axis in axes:
        for step in ("maximum", "sum", "target"):
            part = Tensor(f"cross_entropy/{step}", logits.dims[:2], "fp32", "statistic", tape.layout.inputs)
            tape.summed(part, axis)
    return tape.pointwise(
        "cross_entropy/nll", logs, labels, dims=(), kernel="loss", saves=[logs, labels], extras=[total]
    )


def _log_softmax(tape: Tape, logits: Tensor, *, spelt_out: bool) -> Tensor:
    logs = tape.activation("cross_entropy/log_softmax", logits.dims, logits.dtype, logits.split)
    kind = SplitLogSoftmax if spelt_out else Pointwise
    return tape.record(kind(logs.name, "cross_entropy", (logits,), (logs,), (logs,), flops=5))
