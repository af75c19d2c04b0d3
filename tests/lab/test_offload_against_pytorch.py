"""Activations in host memory, judged by a training step of PyTorch: what is left on the device, what lies on the host.

Shards of weights in host memory are among the layouts of `test_layouts_against_pytorch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
from torch import nn
from torch.autograd.graph import save_on_cpu

from ledger.books.compiled import Compiled
from ledger.lab.observed import metered_step
from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.one_device import one_device_step
from ledger.lab.reference.workload import workload
from ledger.lab.verification.layouts import unjudged
from tests.model import plans
from tests.sampling import sampled

SCALARS = 1024  # bytes: positions, frequencies and scalars of the loss, which the ledger leaves out
LAYERS = 5


def both(host: str, **parts: Any) -> tuple[Compiled, DeviceStep]:
    """The same plan on one device compiled, and run."""
    whole: dict[str, Any] = {
        "model": plans.layer(plans.LLAMA, repeat=LAYERS),
        "precision": "bf16-true",
        "cluster": {"base": "h100-400g", "devices": 1, "devices_per_node": 1},
        "parallelism": {"data": 1, "offload": ["activations"]},
        "run": {"seq_len": 39, "micro_batch": 3, "global_batch": 3},
        "stack": {"base": "pytorch-fsdp2-2025", "overlap": {"host": host}},
        **parts,
    }
    compiled = plans.compiled(**whole)
    return compiled, one_device_step(workload(compiled.plan))


@pytest.mark.parametrize(("host", "parts"), sampled(product(("none", "compute"), ({}, {"recompute": "full"}))))
def test_what_is_left_on_the_device(host: str, parts: plans.Mapped) -> None:
    """From the end of forward on, moment by moment to the byte; and all that lies on the host, each storage once.

    Copies that go on beside the neighbouring layer leave one more layer on the device.
    """
    compiled, found = both(host, **parts)
    (role,) = compiled.roles
    moments = {moment.name: moment.total for moment in role.moments}
    judged = ("backward/loss", "backward/decoder", "backward/decoder/end", "backward/input", "optimizer")
    for name in judged:
        assert 0 <= found.moments[name].requested - moments[name] <= SCALARS, name
    fullest = max(held.requested for name, held in found.moments.items() if name.startswith("backward/"))
    assert 0 <= fullest - max(total for name, total in moments.items() if name.startswith("backward/")) <= SCALARS
    assert found.host == compiled.totals["memory.host"]
    assert not unjudged(compiled.plan)


@contextmanager
def torch_s_own(layers: Sequence[nn.Module], _: str) -> Iterator[None]:
    """torch.autograd.graph.save_on_cpu around each layer."""
    contexts = [save_on_cpu() for _ in layers]
    handles = [
        handle
        for layer, context in zip(layers, contexts, strict=True)
        for handle in (
            layer.register_forward_pre_hook(lambda *_, entered=context: entered.__enter__() and None),
            layer.register_forward_hook(lambda *_, entered=context: entered.__exit__()),
        )
    ]
    yield
    for handle in handles:
        handle.remove()


@pytest.mark.long
def test_save_on_cpu_leaves_as_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """When forward is over, PyTorch's own hooks leave on the device what ours do, but for tables that layers share.

    They send those as well, and weights.
    """
    compiled, ours = both("none")
    monkeypatch.setattr(metered_step, "offload_activations", torch_s_own)
    found = one_device_step(workload(compiled.plan))
    tables = {row.account: int(row.amount) for row in compiled.accounts if row.account.endswith(".table")}
    for name in ("after forward", "backward/loss"):
        assert found.moments[name].requested == ours.moments[name].requested - sum(tables.values())
    assert found.peak("forward") <= ours.peak("forward")
    assert found.host > ours.host  # a weight, and an input of several products, as often as they are saved
