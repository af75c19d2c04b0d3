"""Rows of the table of schedules against the orders of PyTorch's schedules: what is held, and how long is waited."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.model.schedule import PIPELINES, Pace, PipelinePosition, PipelineWork, chunks_of_device
from tests.lab.orders import FORWARD, INPUTS, WEIGHTS, Order, Piece, Times, held, makespan, order, repeated, sent
from tests.model import plans

CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "zero_bubble": "ScheduleInterleavedZeroBubble",
}
CHUNKS = {"gpipe": (1,), "1f1b": (1,), "interleaved": (2, 3), "zero_bubble": (1, 2)}
SHAPES = [
    (name, devices, count, chunks)
    for name in CLASSES
    for devices, chunks in product((2, 3, 4, 8), CHUNKS[name])
    for count in sorted({1, 2, devices - 1, devices, devices + 1, 2 * devices, 4 * devices})
    if name != "1f1b" or count >= devices  # of which PyTorch takes no fewer
]
EVEN: Times = {FORWARD: 100.0, INPUTS: 110.0, WEIGHTS: 90.0}


def pace(times: Times, stages: int = 1) -> Pace:
    """The share of a device with so many equal stages."""
    return Pace(times[FORWARD] * stages, times[INPUTS] * stages, times[WEIGHTS] * stages)


@pytest.mark.parametrize(("name", "devices", "count", "chunks"), SHAPES)
def test_what_is_held_is_what_the_order_holds(name: str, devices: int, count: int, chunks: int) -> None:
    """On every device: micro-batches in flight of each chunk, and those whose weight gradients wait at that moment."""
    found = order(CLASSES[name], devices, count, chunks)
    row = PIPELINES[name]
    for device, blocks in found.items():
        place = PipelinePosition(device, devices, chunks, count)
        flying, waiting = held(blocks)
        mine = chunks_of_device(row, device, devices, chunks)
        assert dict(zip(mine, row.in_flight(place), strict=True)) == {stage: flying.get(stage, 0) for stage in mine}
        assert row.deferred_w_passes(place) == waiting
        assert max(row.in_flight(place)) <= count


@pytest.mark.parametrize(("name", "devices", "count", "chunks"), SHAPES)
def test_the_bubble_is_what_the_order_waits(name: str, devices: int, count: int, chunks: int) -> None:
    """With equal stages, the step takes as long as PyTorch's order of work takes, work by work."""
    found = order(CLASSES[name], devices, count, chunks)
    own = pace(EVEN, chunks)
    bubble = PIPELINES[name].bubble([(devices - 1, own)], own, PipelineWork(count, chunks))
    step = makespan(found, dict.fromkeys(range(devices * chunks), EVEN))
    few = name == "zero_bubble" and chunks > 1 and count < devices  # PyTorch's order then leaves some waits open
    assert step == pytest.approx(count * own.seconds + bubble, rel=0.06 if few else 1e-12)


@pytest.mark.parametrize("times", [(1, 1, 1), (10, 17, 7), (10, 11, 13), (5, 20, 2), (3, 2, 4)])
@pytest.mark.parametrize("devices", [2, 4, 6])
def test_zero_bubble_fills_with_weight_gradients(times: tuple[int, int, int], devices: int) -> None:
    """(P - 1)(F + B - W) as Qi et al. 2024 have it, never less than F or B where W is longer; more of few."""
    each = dict(zip((FORWARD, INPUTS, WEIGHTS), map(float, times), strict=True))
    own = pace(each)
    for count in (*range(1, devices + 1), 4 * devices):
        found = order(CLASSES["zero_bubble"], devices, count)
        step = makespan(found, dict.fromkeys(range(devices), each))
        bubble = PIPELINES["zero_bubble"].bubble([(devices - 1, own)], own, PipelineWork(count))
        assert step == pytest.approx(count * own.seconds + bubble, rel=1e-12)
    assert bubble == (devices - 1) * (own.forward + own.inputs - min(own.weights, own.forward, own.inputs))


def twice_as_deep(devices: int, count: int) -> Order:
    """ZB-H2 as Qi et al. 2024, figure 3, draw it: 2 (P - d) - 1 times F, then B, W two steps late for each device."""
    found = {}
    for device in range(devices):
        forward = [(Piece(FORWARD, device, batch),) for batch in range(count)]
        weights = [(Piece(WEIGHTS, device, batch),) for batch in range(count)]
        warm_up = min(count, 2 * (devices - 1 - device) + 1)
        blocks, late = forward[:warm_up], 2 * device
        for batch in range(count):
            blocks += [(Piece(INPUTS, device, batch),), *weights[max(0, batch - late) : max(0, batch - late + 1)]]
            blocks += forward[warm_up + batch : warm_up + batch + 1]
        found[device] = (*blocks, *weights[max(0, count - late) :])
    return found


@pytest.mark.parametrize("devices", [2, 4, 6])
def test_twice_as_deep_a_pipeline_holds_twice_as_much(devices: int) -> None:
    """What every device holds, 2 P - 1 in all."""
    row = PIPELINES["zero_bubble_h2"]
    for count in (1, 2, devices, 6 * devices):
        for device, blocks in twice_as_deep(devices, count).items():
            place = PipelinePosition(device, devices, 1, count)
            flying, waiting = held(blocks)
            assert (row.in_flight(place), row.deferred_w_passes(place)) == ((flying[device],), waiting)
            assert flying[device] + waiting == min(count, 2 * devices - 1)


@pytest.mark.parametrize("times", [(1, 1, 1), (10, 17, 7), (10, 11, 13), (5, 20, 2), (10, 12, 8)])
@pytest.mark.parametrize("devices", [2, 4, 6])
def test_twice_as_deep_a_pipeline_waits_from_step_to_step(times: tuple[int, int, int], devices: int) -> None:
    """(P - 1)(F + B - 2 W) as Qi et al. 2024 have it: from one step to the next, which begins while others end."""
    each = dict(zip((FORWARD, INPUTS, WEIGHTS), map(float, times), strict=True))
    row, own = PIPELINES["zero_bubble_h2"], pace(each)
    for count in (1, 2, devices, 2 * devices - 1, 6 * devices):
        found = twice_as_deep(devices, count)
        ends = [makespan(repeated(found, count, steps), dict.fromkeys(range(devices), each)) for steps in (8, 12)]
        bubble = row.bubble([(devices - 1, own)], own, PipelineWork(count))
        assert (ends[1] - ends[0]) / 4 == pytest.approx(count * own.seconds + bubble, rel=1e-12)
    published = (devices - 1) * (own.forward + own.inputs - 2 * min(own.weights, own.forward))
    assert bubble == max(0.0, published)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved"])
def test_a_slow_last_stage_sets_the_pace(name: str) -> None:
    """The head makes the last stage the slowest: then the closed form is exact, whatever the others take together."""
    chunks = CHUNKS[name][0]
    for devices, factor in product((2, 4, 5), (1.0, 1.4, 3.0)):
        stages, count = devices * chunks, 2 * devices
        times = dict.fromkeys(range(stages), EVEN)
        times[stages - 1] = {kind: factor * seconds for kind, seconds in EVEN.items()}
        others = [(devices - 1, pace(EVEN, chunks))]
        mine = [times[chunk * devices + devices - 1] for chunk in range(chunks)]
        own = Pace(*(sum(each[kind] for each in mine) for kind in EVEN))
        step = makespan(order(CLASSES[name], devices, count, chunks), times)
        assert step == pytest.approx(
            count * own.seconds + PIPELINES[name].bubble(others, own, PipelineWork(count, chunks)), rel=1e-12
        )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.7, 1.3), min_size=2, max_size=6), st.sampled_from((1, 2, 4)))
def test_one_forward_one_backward_never_takes_longer_than_its_closed_form(sizes: list[float], rounds: int) -> None:
    """Stages of unlike sizes: the closed form is a bound from above, by no more than a quarter of the step."""
    devices, count = len(sizes), rounds * len(sizes)
    times = {s: {kind: size * seconds for kind, seconds in EVEN.items()} for s, size in enumerate(sizes)}
    slowest = sizes.index(max(sizes))
    others = [(1, pace(times[stage])) for stage in range(devices) if stage != slowest]
    form = count * pace(times[slowest]).seconds + PIPELINES["1f1b"].bubble(
        others, pace(times[slowest]), PipelineWork(count)
    )
    step = makespan(order(CLASSES["1f1b"], devices, count), times)
    assert step <= form * (1 + 1e-12)
    assert form <= 1.25 * step


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from((("interleaved", 2), ("interleaved", 3), ("zero_bubble", 1), ("zero_bubble", 2))),
    st.tuples(st.floats(0.1, 1.2), st.floats(0.1, 1.2)),
    st.sampled_from((4, 6)),
    st.sampled_from((2, 4)),
)
def test_ends_of_another_size_are_close_to_the_closed_form(
    schedule: tuple[str, int], ends: tuple[float, float], devices: int, rounds: int
) -> None:
    """Fewer layers beside the embedding, more or fewer beside the head: off by less than a tenth of the step."""
    (name, chunks), count = schedule, rounds * devices
    sizes = [ends[0], *[1.0] * (devices * chunks - 2), ends[1]]
    times = {s: {kind: size * seconds for kind, seconds in EVEN.items()} for s, size in enumerate(sizes)}
    resource_shares = []
    for device in range(devices):
        mine = [times[stage] for stage in chunks_of_device(PIPELINES[name], device, devices, chunks)]
        resource_shares.append(Pace(*(sum(each[kind] for each in mine) for kind in EVEN)))
    slowest = max(range(devices), key=lambda device: resource_shares[device].seconds)
    others = [(1, each) for device, each in enumerate(resource_shares) if device != slowest]
    own = resource_shares[slowest]
    form = count * own.seconds + PIPELINES[name].bubble(others, own, PipelineWork(count, chunks))
    assert makespan(order(CLASSES[name], devices, count, chunks), times) == pytest.approx(form, rel=1 / 10)


@given(st.lists(st.tuples(*[st.floats(0.01, 9.0)] * 3), min_size=2, max_size=8), st.integers(0, 7), st.integers(1, 20))
def test_bubbles_are_in_order(times: list[tuple[float, float, float]], place: int, count: int) -> None:
    """Whatever the stages take: 0 <= ZB-H2 <= ZB-H1 <= 1F1B <= GPipe; several chunks wait no longer than one."""
    own = Pace(*times[place % len(times)])
    others = [(1, Pace(*t)) for i, t in enumerate(times) if i != place % len(times)]
    names = ("zero_bubble_h2", "zero_bubble", "1f1b", "gpipe")
    waits = [PIPELINES[name].bubble(others, own, PipelineWork(count)) for name in names]
    assert waits[0] >= 0
    assert all(less <= more * (1 + 1e-12) for less, more in pairwise(waits))
    assert PIPELINES["interleaved"].bubble(others, own, PipelineWork(count, 2)) <= waits[2] * (1 + 1e-12)
    assert PIPELINES["dual_pipe"].bubble(others, own, PipelineWork(count)) >= 0


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_h2"])
def test_one_micro_batch_passes_every_device_in_turn(name: str) -> None:
    """No order of work makes it faster than F and B of all devices, one after the other."""
    own, devices = pace(EVEN), 8
    for chunks in CHUNKS.get(name, (1,)):
        bubble = PIPELINES[name].bubble([(devices - 1, own)], own, PipelineWork(1, chunks))
        assert own.seconds + bubble >= devices * (own.forward + own.inputs)


@pytest.mark.parametrize(("name", "chunks"), [("interleaved", 2), ("zero_bubble", 1), ("zero_bubble", 2)])
def test_as_much_is_sent_as_pytorch_sends(name: str, chunks: int) -> None:
    """Results and gradients that leave each device in a step, and the bytes of each: the residual stream."""
    devices, count = 4, 8
    compiled = plans.compiled(
        model=plans.layer(plans.LLAMA, repeat=8),
        cluster={"base": "h100-400g", "devices": devices, "devices_per_node": devices},
        parallelism={"data": 1, "pipeline": devices, "schedule": name, "interleave": chunks},
        run={"seq_len": 37, "micro_batch": 3, "global_batch": 3 * count},
    )
    mine = dict.fromkeys(range(devices), (0, 0))
    for role in compiled.roles:
        rows = [a for a in compiled.accounts if a.role == role.name and a.resource.name == "comm.send.pipeline"]
        times = {a.when: a.times for a in rows}
        assert {int(a.amount) for a in rows} == {2 * 3 * 37 * 102}
        mine |= dict.fromkeys(role.stages, (times.get("forward", 0), times.get("backward", 0)))
    assert mine == sent(CLASSES[name], devices, count, chunks)


# --- from both ends -----------------------------------------------------------------------------
# PyTorch has DualPipeV, in which one device plays both of the mirror images of DualPipe with twice as many.


def mirrored(devices: int, count: int) -> Order:
    """DualPipe on `devices`, of which PyTorch's order has one for each pair; `count` micro-batches from each end."""
    return order("ScheduleDualPipeV", devices // 2, count, 2)


@pytest.mark.parametrize(("devices", "count"), [(2, 4), (4, 4), (4, 8), (8, 12), (16, 32)])
def test_both_ways_hold_one_more_than_the_stages(devices: int, count: int) -> None:
    """P + 1 micro-batches of a stage (DeepSeek-AI 2024, table 2), those of each stage as in 1F1B from its own end."""
    row = PIPELINES["dual_pipe"]
    for device, blocks in mirrored(devices, count).items():
        flying, waiting = held(blocks)
        place = PipelinePosition(device, devices, 1, count)
        assert dict(zip(chunks_of_device(row, device, devices, 1), row.in_flight(place), strict=True)) == flying
        assert sum(row.in_flight(place)) == devices + 1
        assert row.deferred_w_passes(place) == waiting == 0


@pytest.mark.parametrize(("devices", "count"), [(2, 4), (4, 8), (8, 16), (16, 32)])
def test_both_ways_wait_as_published(devices: int, count: int) -> None:
    """(P/2 - 1)(F&B + B - 3W) where F = B = W, which is when PyTorch's order takes that; else it waits less."""
    row = PIPELINES["dual_pipe"]
    for times, exact in (((1.0, 1.0, 1.0), True), ((100.0, 110.0, 90.0), False), ((10.0, 17.0, 7.0), False)):
        each = dict(zip((FORWARD, INPUTS, WEIGHTS), times, strict=True))
        forward, inputs, weights = times
        own = pace(each, 2)
        bubble = row.bubble([(devices - 1, own)], own, PipelineWork(count))
        both, backward = forward + inputs + weights, inputs + weights
        assert bubble == pytest.approx((devices / 2 - 1) * (both + backward - 3 * weights))
        waits = makespan(mirrored(devices, count), dict.fromkeys(range(devices), each)) - count * own.seconds
        assert waits == pytest.approx(bubble) if exact else 0.8 * bubble <= waits <= bubble
