"""One training step of a model on fake tensors, metered: what all judged devices have in common.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn, zeros_like
from torch._subclasses.fake_tensor import FakeTensorMode

from ledger.lab.observed.collective_log import CollectiveLog
from ledger.lab.observed.device_step import AllocatedBytes, DeviceStep
from ledger.lab.observed.offloaded_activations import offload_activations
from ledger.lab.observed.step_moments import StepMoments
from ledger.lab.observed.storage_meter import StorageMeter
from ledger.lab.reference.model import Workload, layers_of
from ledger.lab.reference.optimizers import FakeScalars, ReferenceOptimizer, reference_optimizer


@dataclass(frozen=True)
class TrainedModel:
    """A transformers model with its decoder layers, the group of each, and its optimizer, whose states are in place."""

    built: Any
    layers: Sequence[nn.Module]
    groups: Sequence[str]
    optimizer: ReferenceOptimizer
    encoder: int = 0  # of the layers, those of an encoder, which are the first

    def resident(self) -> Iterator[Tensor]:
        """What is there before the step and after it; of a DTensor, this rank's part."""
        for tensor in (*self.built.buffers(), *self.built.parameters(), *self.optimizer.states()):
            yield tensor.to_local() if hasattr(tensor, "to_local") else tensor


def trained_model(built: Any, work: Workload) -> TrainedModel:
    """`built` with the optimizer of `work`. Call it inside the fake mode and within `FakeScalars`."""
    layers = layers_of(built, work.model)
    optimizer = reference_optimizer(built, layers, work.optimizer, work.kernels.optimizer, work.precision)
    groups = work.model.layers
    encoder = sum(group.encodes_source for group in groups)
    return TrainedModel(built, layers, [group.name for group in groups], optimizer, encoder)


def causal_loss(model: Any, tokens: Tensor, positions: Tensor) -> Tensor:
    """The loss of transformers, taken outside the model: inside, FSDP2 would gather the root anew for its backward."""
    inner = getattr(model, "module", model)
    types = {"token_type_ids": zeros_like(tokens)} if getattr(inner.config, "type_vocab_size", 0) else {}
    logits = model(tokens, position_ids=positions, use_cache=False, **types).logits
    loss: Tensor = inner.loss_function(logits, tokens, logits.shape[-1])
    return loss


def run_micro_batches(
    moments: StepMoments, contexts: Iterable[AbstractContextManager[Any]], loss: Callable[[], Tensor]
) -> AllocatedBytes:
    """Forward and backward of a micro-batch within each of the contexts; what is allocated after the last forward."""
    after = AllocatedBytes()
    for context in contexts:
        with context:
            moments.begin_forward()
            value = loss()
            after = moments.meter.allocated
            moments.begin_backward()
            value.backward()
            del value
    return after


@dataclass(frozen=True)
class MeteredStep:
    """A step that is about to run on `device`, with what is there before it.

    `axes`: process group name -> axis. `hosting` as in `Workload`. `host` counts what lies in host memory meanwhile.
    """

    model: TrainedModel
    batch: Sequence[Tensor]
    device: str
    fake: FakeTensorMode
    axes: Mapping[str, str]
    hosting: str = ""
    host: StorageMeter | None = None

    def run(self, passes: Callable[[StepMoments], AllocatedBytes | None]) -> DeviceStep:
        """Both passes of all micro-batches, which `passes` runs, then the update.

        `passes` tells the moments which pass begins, and returns what is allocated after the last forward pass.
        """
        meter, host = StorageMeter(self.device), self.host or StorageMeter("none")
        meter.watch([*self.batch, *self.model.resident()])
        static = meter.allocated
        host.enter("passes")
        moments = StepMoments(meter, self.model.layers, self.model.groups, self.model.encoder)
        log = CollectiveLog(self.axes, lambda: moments.phase)
        offloaded = offload_activations(self.model.layers, self.hosting)
        with self.fake, meter.resizes_seen(), host, meter, log, offloaded, moments.followed():
            after = passes(moments)
        moments.begin_optimizer()
        with self.fake, meter, log, FakeScalars():
            self.model.optimizer.step()
        between = {} if after is None else {"after forward": after}
        waiting = host.moments.get("passes", AllocatedBytes()).requested
        return DeviceStep({"static": static, **between, **meter.moments}, log.collectives(), waiting)
