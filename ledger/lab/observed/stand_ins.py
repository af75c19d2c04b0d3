"""What stands in for a GPU where there is none, so that a rank's step runs as it would on one.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import torch
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import _disable_current_modes

from ledger.lab.reference.cuda_guard import install_cuda_guard
from ledger.lab.reference.modules import imaginary_gpu

FSDP = "torch.distributed.fsdp._fully_shard"
FSDP_MODULES = ("_fsdp_collectives", "_fsdp_init", "_fsdp_param_group", "_fsdp_state", "_fully_shard")
STREAMS: dict[str, Any] = {
    "_get_device_handle": lambda *_: torch.cpu,  # its streams and events do nothing
    "_get_device_from_mesh": lambda _: torch.device("cuda", 0),
}


@contextmanager
def imaginary_rank(device: str) -> Iterator[None]:
    """Within, fake tensors of `device` are a GPU's; where that is not the host, FSDP2 finds streams for it as well."""
    if device == "cpu":
        with imaginary_gpu("CPU"):
            yield
        return
    install_cuda_guard()
    with imaginary_gpu(), _imaginary_streams(), torch.autograd.set_multithreading_enabled(False):
        yield


@contextmanager
def _imaginary_streams() -> Iterator[None]:
    """Within, FSDP2 takes the streams of a CPU for those of a mesh of GPUs: work is done in the order it is given."""
    recorded = mock.patch.object(torch.cpu.Stream, "record_event", return_value=torch.cpu.Event())
    with recorded, ExitStack() as patched:
        for module in (import_module(f"{FSDP}.{name}") for name in FSDP_MODULES):
            for name, stand_in in STREAMS.items():
                if hasattr(module, name):
                    patched.enter_context(mock.patch.object(module, name, stand_in))
        yield


@contextmanager
def isolated_propagation() -> Iterator[None]:
    """Within, DTensor works out shapes unseen: it runs operators at global shape, which would be counted as real."""
    name = "_propagate_tensor_meta_non_cached"
    original = getattr(ShardingPropagator, name)

    def unseen(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return original(*args, **kwargs)

    with mock.patch.object(ShardingPropagator, name, unseen):
        yield
