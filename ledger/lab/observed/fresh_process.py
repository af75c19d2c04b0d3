"""A fresh process for each judged rank, forked from one that has imported PyTorch and run nothing.

What PyTorch keeps in module globals has no public way back: process groups and meshes, DTensor's caches, the methods
that ring attention rotates by, attention functions that transformers registers. So no rank is judged where another one
was. Spawned, such a process takes 6 s to import PyTorch and transformers; forked, it has them within 0.05 s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.context import BaseContext
from typing import ParamSpec, TypeVar

from ledger.processes import interrupt_held, process_pool

Given = ParamSpec("Given")
Result = TypeVar("Result")

# Libraries alone: the parent of the forks may find another `ledger` than the caller, whose path a fork gets later.
IMPORTED_ONCE = (
    "jsonschema",
    "sympy",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.experimental._context_parallel._attention",
    "torch.distributed.tensor.parallel",
    "torch.testing._internal.distributed.fake_pg",
    "transformers.integrations.moe",
    "transformers.models.llama.modeling_llama",
    "yaml",
)


def run_in_fresh_process(function: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs) -> Result:
    """What a picklable function returns or raises in a process in which PyTorch has run nothing before."""
    with process_pool(1, _context()) as process:
        with interrupt_held(_context()):
            begun = process.submit(function, *arguments, **named)
        return begun.result()


@cache
def _context() -> BaseContext:
    """Forks of one server where the platform has them; else processes that import everything themselves."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED_ONCE))
    return context
