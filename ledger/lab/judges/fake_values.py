"""Values of fake tensors, where a framework reads them. Imports torch at its top."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

WAIT = torch.ops._c10d_functional.wait_tensor.default  # noqa: SLF001  # has no public name
DEVICE = torch.ops.prim.device.default
EQUAL = torch.ops.aten.equal.default
ITEM = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001  # what Tensor.item() dispatches to


class FakeValues(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not followed
    """Within, a fake tensor that is asked for a value that it cannot know says 1, or false; any two are equal."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled, and what keeps a compiler out would take a tenth of each operator's time."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is ITEM:
            known = getattr(args[0], "constant", None)  # what torch.tensor was given
            if known is not None:
                return known.item()
            dtype = args[0].dtype
            return False if dtype is torch.bool else 1.0 if dtype.is_floating_point else 1
        if func is DEVICE and isinstance(args[0], FakeTensor):  # more than half of what modes are asked
            return args[0].fake_device
        if func is WAIT:
            return args[0]  # of a fake tensor it would be another one
        if func is EQUAL:
            return True
        return func(*args, **(kwargs or {}))
