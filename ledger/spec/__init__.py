"""The first stage: texts -> plans. Its functions are loaded when asked for, since YAML and JSON Schema are heavy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.spec.load import (
        list_library,
        load_accelerator,
        load_cluster,
        load_model,
        load_optimizer,
        load_plan,
        load_precision,
        load_stack,
        render_problems,
        schema,
    )

__all__ = [
    "list_library",
    "load_accelerator",
    "load_cluster",
    "load_model",
    "load_optimizer",
    "load_plan",
    "load_precision",
    "load_stack",
    "render_problems",
    "schema",
]


def __getattr__(name: str) -> object:
    """The public functions, from `ledger.spec.load`."""
    if name in __all__:
        return getattr(import_module("ledger.spec.load"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
