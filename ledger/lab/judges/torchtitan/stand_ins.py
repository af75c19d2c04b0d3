"""torchtitan's own Python where nothing is compiled, no data is loaded and nothing is logged. Imports torch at its top.

torch must have been imported as a whole before, since it looks for Triton as well.
"""

from __future__ import annotations

import torch._dynamo
import torch._functorch.partitioners
import torch._inductor.codecache
from torch.utils import _triton

from ledger.lab.judges import unlaunched

UNUSED = ("datasets", "datasets.distributed", "torch.utils.tensorboard")


def install() -> None:
    """Lets this process import torchtitan; for good, so call it in a process of its own."""
    _triton.has_triton = _triton.has_triton_package = lambda *_, **__: False
    unlaunched.install((*unlaunched.TRITON, *UNUSED))
