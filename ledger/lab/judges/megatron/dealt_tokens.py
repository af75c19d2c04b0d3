"""How many rows each rank and each expert gets: fake tensors do not say, so rows are dealt evenly.

Imports Megatron-Core at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher


def dealt(rows: int, places: int) -> Any:
    """So many rows at each place, the first ones with one more where they do not come out even."""
    each, rest = divmod(rows, places)
    return np.array([each + (place < rest) for place in range(places)])


def _counted(arriving: Fraction) -> Callable[..., Any]:
    """What stands for counts that the dispatcher copies to the host."""

    def copy(dispatcher: Any, point: str, tokens_per_expert: Any = None) -> Any:
        if point != dispatcher.cuda_dtoh_point:
            return tokens_per_expert
        sent = dispatcher.routing_map.size(0) * dispatcher.config.moe_router_topk
        received = int(sent * arriving)
        dispatcher.input_splits = dealt(sent, dispatcher.ep_size)
        dispatcher.output_splits = dealt(received, dispatcher.ep_size)
        dispatcher.output_splits_tp = np.array([received] * dispatcher.tp_size)
        return dealt(received * dispatcher.tp_size, dispatcher.num_local_experts)

    return copy


@contextmanager
def dealt_evenly(arriving: Fraction) -> Iterator[None]:
    """Within, every rank sends as many rows to each, and this one gets `arriving` times as many as it sends."""
    name = "_maybe_dtoh_and_synchronize"
    with mock.patch.object(MoEAlltoAllTokenDispatcher, name, _counted(arriving)):
        yield
