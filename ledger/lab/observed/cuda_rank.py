"""fully_shard on fake cuda tensors where there is no GPU, so that a device can be told from its host.

Imports torch at its top; import it inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import torch

FOLDER = "torch.distributed.fsdp._fully_shard"
MODULES = ("_fsdp_collectives", "_fsdp_init", "_fsdp_param_group", "_fsdp_state", "_fully_shard")
STANDS_IN: dict[str, Any] = {
    "_get_device_handle": lambda *_: torch.cpu,  # its streams and events do nothing
    "_get_device_from_mesh": lambda _: torch.device("cuda", 0),
}


@contextmanager
def imaginary_streams() -> Iterator[None]:
    """Within, FSDP2 takes the streams of a CPU for those of a mesh of GPUs: work is done in the order it is given."""
    recorded = mock.patch.object(torch.cpu.Stream, "record_event", return_value=torch.cpu.Event())
    with recorded, ExitStack() as patched:
        for module in MODULES:
            found = import_module(f"{FOLDER}.{module}")
            for name, stand_in in STANDS_IN.items():
                if hasattr(found, name):
                    patched.enter_context(mock.patch.object(found, name, stand_in))
        yield
