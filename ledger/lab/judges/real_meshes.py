"""Meshes of ranks among fake tensors: they read tensors of their own, which must be real. Imports torch at its top."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import _disable_current_modes

READING = ("__init__", "__getitem__", "_concatenate", "_flatten", "_unflatten", "get_local_rank")


def _outside(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same outside every mode that sees operators."""

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return method(*args, **kwargs)

    return run


@contextmanager
def real_meshes() -> Iterator[None]:
    """Within, a mesh that is made of another, or asked where this rank is, reads real tensors."""
    with ExitStack() as patched:
        for name in READING:
            method = DeviceMesh.__dict__[name]
            static = isinstance(method, staticmethod)
            outside = staticmethod(_outside(method.__func__)) if static else _outside(method)
            patched.enter_context(mock.patch.object(DeviceMesh, name, outside))
        yield
