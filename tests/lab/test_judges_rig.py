"""What lets a framework run without a GPU: answers, meters and stand-ins, each alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ledger.lab.judges.fakes import FakeValues
from ledger.lab.judges.imaginary_cuda import ImaginaryDevice, imaginary_cuda
from ledger.lab.judges.megatron import kernels
from ledger.lab.judges.metered_rank import RankCollectives, RankMeter, SavedStorages, as_one_kernel, by_layer
from ledger.lab.observed.fresh_process import run_in_fresh_process

KIB = 1024


@pytest.fixture
def fake() -> Iterator[FakeTensorMode]:
    """Fake tensors of an imaginary GPU."""
    with imaginary_cuda(ImaginaryDevice()), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


def test_torch_finds_a_gpu_within_and_none_after() -> None:
    """The answers last as long as the context."""
    before = torch.cuda.is_available()
    with imaginary_cuda(ImaginaryDevice(capability=(10, 0), count=4)):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (10, 0)
        assert torch.cuda.device_count() == 4
    assert torch.cuda.is_available() == before


def test_tensors_know_their_kinds(fake: FakeTensorMode) -> None:
    """Frameworks choose by `isinstance(x, torch.cuda.FloatTensor)` and make tensors by calling it."""
    wide = torch.zeros(3, device="cuda")
    assert isinstance(wide, torch.cuda.FloatTensor)
    assert not isinstance(wide.bfloat16(), torch.cuda.FloatTensor)
    assert torch.cuda.IntTensor([1, 2]).dtype is torch.int


def test_backward_runs_on_the_imaginary_gpu(fake: FakeTensorMode) -> None:
    """In this thread, where the meters are."""
    weight = torch.zeros(4, 4, device="cuda", requires_grad=True)
    (weight @ weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.device.type == "cuda"


def test_values_are_those_that_are_known(fake: FakeTensorMode) -> None:
    """What torch.tensor was given is read back; another number is 1, another truth false, and tensors are equal."""
    with FakeValues():
        assert torch.tensor([7]).item() == 7
        assert torch.zeros(1, device="cuda").item() == 1.0
        assert not bool(torch.zeros(1, dtype=torch.bool, device="cuda"))
        assert torch.equal(torch.zeros(2, device="cuda"), torch.ones(2, device="cuda"))


def test_a_fused_function_allocates_its_result(fake: FakeTensorMode) -> None:
    """Of three tensors of 4 KiB that it makes, one is left; without the compiler two are there at once."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        return ((x + 1) * 2).exp()

    x = torch.zeros(KIB, device="cuda")
    peaks = []
    for function in (chain, as_one_kernel(chain)):
        with RankMeter("cuda") as meter:
            meter.enter("chain")
            function(x)
        peaks.append(meter.moments["chain"].bytes)
    assert peaks == [8 * KIB, 4 * KIB]


def test_single_numbers_are_left_out(fake: FakeTensorMode) -> None:
    """A loss takes a block of the allocator, and no plan states it."""
    with RankMeter("cuda") as meter:
        loss = torch.zeros((), device="cuda")
        pair = torch.zeros(3, device="cuda")
    assert meter.live == 512
    assert loss.numel() + pair.numel() == 4


def test_quantised_tensors_count_as_what_they_wrap() -> None:
    """A wrapper has a nominal dtype; its bytes and scales are what is held."""

    class Wrapper:
        _quantizer = object()

        def __init__(self) -> None:
            self._data = torch.zeros(KIB, dtype=torch.uint8)
            self._scale = torch.zeros(4 * 128)
            self._columnwise = None

    meter = RankMeter("cpu")
    wrapper: Any = Wrapper()
    meter.watch([wrapper])
    assert meter.live == KIB + 4 * 4 * 128


def test_what_outlives_a_pass_is_not_saved_by_a_layer() -> None:
    """A table that the layers share and keep is no part of what one of them saves; its own input is."""
    table = torch.zeros(16, 16)
    layers = [torch.nn.Linear(16, 16, bias=False) for _ in range(2)]
    found = SavedStorages(layers, ())
    x = torch.zeros(8, 16, requires_grad=True)
    with found.observed():
        result = x
        for layer in layers:
            result = layer(result) * table[:8]
        storages = found.storages()
    del result
    sizes = by_layer(storages)
    assert sizes[1] == 4 * 8 * 16  # its input; the product saves the table alone


def _log() -> tuple[int, dict[tuple[str, str, str], tuple[int, int]]]:
    from torch import distributed

    from ledger.lab.judges.fakes import fake_group

    with fake_group(4, 1):
        gathered = [None] * 4
        distributed.all_gather_object(gathered, "mine")
        assert gathered == ["mine"] * 4
        axes = {distributed.group.WORLD.group_name: "data"}
        with RankCollectives(axes, lambda: "forward") as log:
            distributed.all_reduce(torch.zeros(KIB))
            distributed.all_reduce(torch.zeros(1))
            distributed.all_gather([torch.zeros(KIB) for _ in range(4)], torch.zeros(KIB))
            with log.during("backward"):
                distributed.all_to_all_single(torch.zeros(KIB), torch.zeros(KIB))
    return log.agreements, {(c.kind, c.axis, c.phase): (c.count, c.bytes) for c in log.collectives()}


def test_numbers_that_ranks_agree_on_are_counted_apart() -> None:
    """A norm of gradients is one number; of a list of parts, all count; a phase that is given wins."""
    agreements, calls = run_in_fresh_process(_log)
    assert agreements == 1
    assert calls == {
        ("all_reduce", "data", "forward"): (1, 4 * KIB),
        ("all_gather", "data", "forward"): (1, 16 * KIB),
        ("all_to_all", "data", "backward"): (1, 4 * KIB),
    }


def test_stand_ins_give_what_kernels_give(fake: FakeTensorMode) -> None:
    """Products by layout, statistics of attention, and both statistics of a LayerNorm."""
    weight, rows = torch.zeros(5, 3, device="cuda"), torch.zeros(7, 2, 3, device="cuda")
    call = (None, None, None, None, None, None, False, None, False)
    assert kernels.generic_gemm(weight, True, rows, False, *call)[0].shape == (7, 2, 5)
    upstream = torch.zeros(7, 2, 5, device="cuda")
    assert kernels.generic_gemm(weight, False, upstream, False, *call)[0].shape == (7, 2, 3)
    result, mean, rstd = kernels.layernorm_fwd(rows, None, None, 1e-5, None, None, torch.float32)
    assert (result.shape, mean.shape, rstd.shape) == (rows.shape, (14,), (14,))
    assert kernels.swiglu(torch.zeros(4, 6, device="cuda"), None).shape == (4, 3)


def test_a_kernel_without_a_stand_in_says_its_name() -> None:
    """It fails where it is called, not where it is imported."""
    extension = kernels.extension()
    with pytest.raises(NotImplementedError, match="nvfp4_data_copy"):
        extension.nvfp4_data_copy()
    assert extension.NVTE_Mask_Type.NVTE_CAUSAL_MASK == extension.NVTE_Mask_Type.NVTE_CAUSAL_MASK
