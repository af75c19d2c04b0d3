"""torchtitan's own Python without what it compiles, loads and logs. Imports torch at its top."""

from __future__ import annotations

from importlib import import_module

from torch.utils import _triton

from ledger.lab.judges import unlaunched

LOOKING = ("torch._dynamo", "torch._functorch.partitioners", "torch._inductor.codecache")  # for Triton, when imported
UNUSED = ("datasets", "datasets.distributed", "torch.utils.tensorboard")


def install() -> None:
    """Lets this process import torchtitan; for good, so call it in a process of its own."""
    for name in LOOKING:
        import_module(name)
    _triton.has_triton = _triton.has_triton_package = lambda *_, **__: False
    unlaunched.install((*unlaunched.TRITON, *UNUSED))
