"""Roles of a pipeline's devices, and its schedules: layers, micro-batches in flight, sends and idle seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.arithmetic.values import Amount, divide, maximum, minimum
from ledger.spec.plan import Model, Parallelism, Plan
from ledger.spec.stages import chunks, slots


@dataclass(frozen=True)
class Role:
    """One kind of device: the stages that hold equal layers and equally many micro-batches.

    `layers` counts layers per group; `in_flight` the micro-batches whose activations of all its layers are held, and
    `flying` those of each group's layers; `deferred_w_passes` those whose weight gradients are still to come. `sends`
    and `returns` count the results and the gradients of a micro-batch that go to another stage.
    """

    name: str
    stages: tuple[int, ...]
    devices: int
    layers: tuple[int, ...]
    first: bool
    last: bool
    in_flight: Amount
    deferred_w_passes: Amount = 0
    sends: int = 0
    returns: int = 0
    flying: tuple[Amount, ...] = ()

    def in_flight_of_group(self, group: int) -> Amount:
        """Micro-batches whose activations the layers of a group hold, on average over these layers."""
        return self.flying[group] if self.flying else self.in_flight


def schedule(mesh: Parallelism) -> Pipeline:
    """The schedule of a pipeline."""
    return PIPELINES[mesh.scheduled]


def micro_batches(plan: Plan) -> Amount:
    """Micro-batches that each layer of a device runs in a step: half of them where the others enter at the far end."""
    mesh = plan.parallelism
    return plan.run.global_batch // (mesh.data * plan.run.micro_batch * schedule(mesh).pipeline_ends)


def roles(plan: Plan) -> tuple[Role, ...]:
    """The roles of a plan's devices, from the first stage to the last."""
    stages = plan.parallelism.pipeline
    per_stage = plan.cluster.devices // stages
    dealt = dealt_layers(plan.model, plan.parallelism)
    alike: dict[Role, list[int]] = {}
    for device in range(stages):
        alike.setdefault(role_of_device(plan, device, dealt), []).append(device)
    unnamed = [replace(role, stages=tuple(places), devices=per_stage * len(places)) for role, places in alike.items()]
    return tuple(_named_roles(unnamed))


def role_of_device(plan: Plan, device: int, dealt: Sequence[tuple[int, ...]]) -> Role:
    """The layers and sends of one device, a role without name and place; `dealt`: the layers of every chunk."""
    mesh, rule = plan.parallelism, schedule(plan.parallelism)
    final = slots(mesh) - 1
    own_chunks = chunks_of_device(rule, device, mesh.pipeline, mesh.interleave)
    place = PipelinePosition(device, mesh.pipeline, mesh.interleave, micro_batches(plan))
    layers = [dealt[chunk] for chunk in own_chunks]
    depths = [sum(counts) for counts in layers]
    in_flight = rule.in_flight(place)
    even = _mean_in_flight(in_flight, depths, maximum(*in_flight))
    return Role(
        name="",
        stages=(),
        devices=0,
        layers=tuple(sum(counts) for counts in zip(*layers, strict=True)),
        first=0 in own_chunks,
        last=final in own_chunks,
        in_flight=even,
        flying=tuple(_mean_in_flight(in_flight, group_layers, even) for group_layers in zip(*layers, strict=True)),
        deferred_w_passes=divide(rule.deferred_w_passes(place), len(own_chunks)),
        sends=len([chunk for chunk in own_chunks if chunk != final]),
        returns=len([chunk for chunk in own_chunks if chunk != 0]),
    )


def _mean_in_flight(in_flight: Sequence[Amount], layers: Sequence[int], otherwise: Amount) -> Amount:
    """Micro-batches that chunks hold, averaged over their layers; `otherwise` where there is none."""
    count = sum(layers)
    if not count:
        return otherwise
    return divide(sum(number * depth for number, depth in zip(in_flight, layers, strict=True)), count)


def whole_role(model: Model) -> Role:
    """One device that runs every layer."""
    counts = tuple(group.repeat for group in model.groups)
    return Role("all", (0,), 1, counts, first=True, last=True, in_flight=1)


def _named_roles(unnamed: list[Role]) -> Iterator[Role]:
    inner = [role for role in unnamed if not (role.first or role.last)]
    for role in unnamed:
        if role.first and role.last:
            name = "ends" if len(role.stages) > 1 else "all"
        elif role.first:
            name = "first"
        elif role.last:
            name = "last"
        else:
            name = "inner" if len(inner) == 1 else f"inner.{role.stages[0]}"
        yield replace(role, name=name)


def dealt_layers(model: Model, mesh: Parallelism) -> list[tuple[int, ...]]:
    """Layers of each group in every chunk, from the embedding to the head."""
    sequence, begin, dealt = group_order(model), 0, []
    for size in chunks(model, mesh):
        chunk_groups = sequence[begin : begin + size]
        begin += size
        dealt.append(tuple(chunk_groups.count(group) for group in range(len(model.groups))))
    return dealt


def group_order(model: Model) -> list[int]:
    """The group of each layer, from the embedding to the head."""
    places = {group.name: place for place, group in enumerate(model.groups)}
    return [places[group.name] for group in model.layers]


# --- schedules ---


@dataclass(frozen=True)
class PipelinePosition:
    """Device `device` of the `devices` of a pipeline, each with so many `chunks`; `count` micro-batches a step."""

    device: int
    devices: int
    chunks: int
    count: Amount

    @property
    def after(self) -> int:
        """Devices further from the start."""
        return self.devices - 1 - self.device


@dataclass(frozen=True)
class Pace:
    """Seconds of one device's share of a micro-batch: F, B with what is rebuilt, and W."""

    forward: Amount
    inputs: Amount
    weights: Amount

    @property
    def seconds(self) -> Amount:
        """Seconds of a micro-batch: forward, gradients of inputs and gradients of weights."""
        return self.forward + self.inputs + self.weights


Peers = Sequence[tuple[Amount, Pace]]  # how many devices have which pace


@dataclass(frozen=True)
class PipelineWork:
    """The work of each device in a step: so many micro-batches, each in so many chunks of layers."""

    count: Amount
    chunks: Amount = 1


@dataclass(frozen=True)
class Pipeline:
    """One schedule. `in_flight`: micro-batches whose activations wait, for each chunk of a device, where most are held.

    `deferred_w_passes`: micro-batches that have had B but not W at that moment, all chunks together. `bubble`: seconds
    that the slowest device waits in a step, from the paces of the others and its own, and `waits` the same in words.
    `pipeline_ends`: 2 where micro-batches enter at both ends, so that every device holds two stages. `delays`: whether
    W is put off.
    """

    title: str
    waits: str
    in_flight: Callable[[PipelinePosition], tuple[Amount, ...]]
    deferred_w_passes: Callable[[PipelinePosition], Amount]
    bubble: Callable[[Peers, Pace, PipelineWork], Amount]
    source: str
    pipeline_ends: int = 1
    delays: bool = False
    keeps_output: bool = False  # the last stage has done all of F before the first B


def chunks_of_device(schedule: Pipeline, device: int, devices: int, chunks: int) -> tuple[int, ...]:
    """The chunks of the model that a device runs: dealt out in turn, or its own and its mirror image's."""
    if schedule.pipeline_ends == 2:
        return (device, devices - 1 - device)
    return tuple(chunk * devices + device for chunk in range(chunks))


# --- micro-batches in flight ---


def _gpipe_in_flight(place: PipelinePosition) -> tuple[Amount, ...]:
    return (place.count,) * place.chunks


def _one_f_one_b_in_flight(place: PipelinePosition) -> tuple[Amount, ...]:
    """1F1B: one micro-batch for each later stage, and the one that runs."""
    return (minimum(place.count, place.after + 1),)


def _micro_batches_per_round(place: PipelinePosition) -> Amount:
    """Micro-batches that a chunk runs before it is the next one's turn, as many as there are devices or some more.

    Source: torch/distributed/pipelining/schedules.py, ScheduleInterleaved1F1B, microbatches_per_round.
    """
    return place.count // maximum(1, place.count // place.devices)


def _dealt_in_flight(place: PipelinePosition, ahead: int) -> tuple[Amount, ...]:
    """Micro-batches of the other chunks' round, those `ahead` and the one after, dealt out to the chunks by rounds."""
    most = _micro_batches_per_round(place)
    started = minimum(place.count * place.chunks, (place.chunks - 1) * most + ahead + 1)
    every = most * place.chunks
    rounds, further = started // every, started % every
    return tuple(rounds * most + minimum(most, maximum(0, further - chunk * most)) for chunk in range(place.chunks))


def _interleaved_in_flight(place: PipelinePosition) -> tuple[Amount, ...]:
    return _dealt_in_flight(place, 2 * place.after)


def _zero_bubble_in_flight(place: PipelinePosition) -> tuple[Amount, ...]:
    return _dealt_in_flight(place, place.after)


def _zero_bubble_h2_in_flight(place: PipelinePosition) -> tuple[Amount, ...]:
    """ZB-H2: F goes on until W can fill every wait: two micro-batches for each later stage, and the one that runs."""
    return (minimum(place.count, 2 * place.after + 1),)


def _zero_bubble_h2_waiting(place: PipelinePosition) -> Amount:
    """W falls two steps behind B for each device before this one, as far as there are micro-batches."""
    return minimum(2 * place.device, place.count - sum(_zero_bubble_h2_in_flight(place)))


def _dual_pipe_in_flight(place: PipelinePosition) -> tuple[Amount, ...]:
    """Each stage as in 1F1B, seen from its own end: one more than the stages in all."""
    return place.after + 1, place.device + 1


def _none_waiting(_: PipelinePosition) -> int:
    return 0


def _zero_bubble_waiting(place: PipelinePosition) -> Amount:
    """W falls one step behind B for each device before this one, as far as there are micro-batches."""
    return minimum(place.device, place.count * place.chunks - sum(_zero_bubble_in_flight(place)))


# --- idle seconds ---


def _device_count(peers: Peers) -> Amount:
    """Devices of a pipeline but one, over all paces."""
    return sum(number for number, _ in peers)


def _fill_idle(peers: Peers, pace: Pace, work: PipelineWork) -> Amount:
    """One micro-batch of every other device, or a chunk of it; of few micro-batches the first is waited for each round.

    A chunk begins when the first micro-batch has been through the chunks before it, on all devices.
    """
    passing = sum(number * peer.seconds for number, peer in peers)
    return _idle_over_rounds(passing, pace.seconds, work) / work.chunks


def _idle_over_rounds(passing: Amount, own_seconds: Amount, work: PipelineWork) -> Amount:
    """Seconds that pass by on the peers, and those by which a round of each further chunk exceeds its work."""
    if isinstance(work.chunks, int) and work.chunks == 1:  # no term of a page for what is zero
        return passing
    return passing + (work.chunks - 1) * maximum(0.0, passing + own_seconds - work.count * own_seconds)


def _zero_bubble_idle(peers: Peers, pace: Pace, work: PipelineWork) -> Amount:
    """While F and B of the others pass by, W that was put off is done, but for the last, if not longer than F or B."""
    passing = sum(number * (peer.forward + peer.inputs) for number, peer in peers)
    steps = minimum(_device_count(peers), work.count * work.chunks - 1)
    filled = steps * minimum(pace.forward, pace.inputs, pace.weights)
    return maximum(0.0, _idle_over_rounds(passing, pace.forward + pace.inputs, work) - filled) / work.chunks


def _zero_bubble_h2_idle(peers: Peers, pace: Pace, work: PipelineWork) -> Amount:
    """Two of W for each other device fill what F and B of it take, as steps follow each other without a wait."""
    passing = sum(number * (peer.forward + peer.inputs) for number, peer in peers)
    filled = minimum(2 * _device_count(peers), work.count - 1) * minimum(pace.forward, pace.weights)
    return maximum(0.0, passing - filled)


def _dual_pipe_idle(peers: Peers, pace: Pace, _: PipelineWork) -> Amount:
    """(P/2 - 1) (F&B + B - 3 W), F&B being forward and full backward of two micro-batches at once, B full backward.

    Stages are half of what a device holds, and the mirror image of the slowest device is no wait.
    """
    count = _device_count(peers)
    share = (count - 1) / maximum(1, count)
    passing = sum(number * (peer.forward + 2 * peer.inputs) for number, peer in peers)
    return maximum(0.0, share * (passing - count * pace.weights) / 4)


FILL = "sum of F + B + W of a micro-batch of the other devices"
PIPELINES: Mapping[str, Pipeline] = {
    "gpipe": Pipeline(
        "all forward, then all backward",
        FILL,
        _gpipe_in_flight,
        _none_waiting,
        _fill_idle,
        "Huang et al. 2019, arXiv 1811.06965",
        keeps_output=True,
    ),
    "1f1b": Pipeline(
        "one forward, one backward",
        FILL,
        _one_f_one_b_in_flight,
        _none_waiting,
        _fill_idle,
        "Narayanan et al. 2021, arXiv 2104.04473",
    ),
    "interleaved": Pipeline(
        "one forward, one backward, of several chunks in turn",
        f"({FILL}) / interleave",
        _interleaved_in_flight,
        _none_waiting,
        _fill_idle,
        "Narayanan et al. 2021, arXiv 2104.04473, section 2.2",
    ),
    "zero_bubble": Pipeline(
        "gradients of weights fill the waits (ZB-H1)",
        "(sum of F + B of the other devices - (pipeline - 1) min(F, B, W) of the slowest) / interleave",
        _zero_bubble_in_flight,
        _zero_bubble_waiting,
        _zero_bubble_idle,
        "Qi et al. 2024, arXiv 2401.10241, table 2",
        delays=True,
    ),
    "zero_bubble_h2": Pipeline(
        "gradients of weights fill the waits, with twice as many micro-batches in flight (ZB-H2)",
        "sum of F + B of the other devices - 2 (pipeline - 1) min(F, W) of the slowest; steps follow without a wait",
        _zero_bubble_h2_in_flight,
        _zero_bubble_h2_waiting,
        _zero_bubble_h2_idle,
        "Qi et al. 2024, arXiv 2401.10241, section 2.2 and table 2",
        delays=True,
    ),
    "dual_pipe": Pipeline(
        "micro-batches from both ends, every stage held twice",
        "(pipeline / 2 - 1) (F + 2 B - W) of a stage, on average over the other devices",
        _dual_pipe_in_flight,
        _none_waiting,
        _dual_pipe_idle,
        "DeepSeek-AI 2024, arXiv 2412.19437, table 2",
        pipeline_ends=2,
    ),
}
