"""What goes around a ring, against PyTorch's own ring attention on a fake process group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.model import plans

RANKS, LAYERS, MICRO_BATCHES = 4, 2, 3
HEADS, KV_HEADS, HEAD_DIM, SEQ = 6, 3, 24, 40
Sent = Counter[tuple[str, int]]  # (pass, bytes): how often


@pytest.fixture
def group() -> Iterator[Any]:
    """One imaginary rank of a ring."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    ring.set_rotate_method("alltoall")  # a send to the next rank; the other way gathers everything once
    yield init_device_mesh("cpu", (RANKS,)).get_group()
    ring.set_rotate_method("allgather")
    dist.destroy_process_group()


def passed_by_pytorch(group: Any, kv_heads: int) -> Sent:
    """What one layer's attention sends for one micro-batch: bytes of each tensor that leaves the rank, by pass."""
    import torch
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring
    from torch.utils._python_dispatch import TorchDispatchMode

    found: Sent = Counter()

    class Watch(TorchDispatchMode):
        """Counts the sends to the next rank, which PyTorch makes as all-to-alls."""

        now = "forward"

        def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function.__name__.startswith("all_to_all_single"):
                found[self.now, args[0].numel() * args[0].element_size()] += 1
            return function(*args, **(kwargs or {}))

    def empty(heads: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(1, heads, SEQ // RANKS, HEAD_DIM, dtype=dtype, device="meta")

    def attention(query: Any, **_: Any) -> Any:
        return torch.empty_like(query), torch.empty(query.shape[:3], dtype=torch.float32, device="meta")

    def gradients(query: Any, key: Any, value: Any, **_: Any) -> Any:
        return tuple(torch.empty_like(tensor) for tensor in (query, key, value))

    query, key, value = empty(HEADS), empty(kv_heads), empty(kv_heads)
    with Watch() as watch:
        out, sums = ring._templated_ring_attention(
            group, 2, lambda q, k, v, **_: attention(q), query, key, value, is_causal=True
        )[:2]
        watch.now = "backward"
        upstream = torch.empty_like(out)
        ring._templated_ring_attention_backward(
            group, 2, gradients, upstream, "grad_out", query, key, value, out, sums, is_causal=True
        )
    return found


@pytest.mark.parametrize(("kernel", "kv_heads"), [("flash", KV_HEADS), ("flash_repeated", HEADS)])
def test_a_ring_passes_what_pytorch_passes(group: Any, kernel: str, kv_heads: int) -> None:
    """Keys and values go all the way round but one step, in both passes; their gradients in fp32 one step more.

    They are what attention is called with: repeated for every query head where the model repeats them.
    """
    attention = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
    compiled = plans.compiled(
        model=plans.layer(plans.LLAMA, repeat=LAYERS, attention=attention),
        cluster={"base": "h100-400g", "devices": RANKS, "devices_per_node": RANKS},
        parallelism={"context": RANKS, "context_exchange": "ring"},
        kernels={"attention": kernel},
        run={"seq_len": SEQ, "micro_batch": 1, "global_batch": MICRO_BATCHES},
    )
    mine: Sent = Counter()
    for account in compiled.accounts:
        if account.resource.name == "comm.send.context":
            mine[account.when, int(account.amount)] += account.times
    one = passed_by_pytorch(group, kv_heads)
    assert mine == Counter({key: LAYERS * MICRO_BATCHES * count for key, count in one.items()})
    block = 2 * 2 * kv_heads * HEAD_DIM * SEQ // RANKS  # keys and values, two bytes each
    assert one == {
        ("forward", block): RANKS - 1,
        ("backward", block): RANKS - 1,
        ("backward", 2 * block): RANKS,
    }
