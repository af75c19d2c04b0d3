"""What may hide behind what: a row for each kind of transfer and each choice that a software stack has for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ledger.arithmetic.values import Amount, divide, maximum, minimum, real, smallest_of, where
from ledger.books import prices
from ledger.books.results import KernelTime
from ledger.model.causes import ENDS, ROOT, HostTransfer, HostWork, Purpose, Transfer
from ledger.model.collectives import quantised_between
from ledger.model.experts import SHARED
from ledger.spec.kernel_classes import ATTENTION, MATMUL, KernelClass
from ledger.spec.plan import Overlap, Plan

NONE = "none"


def is_transfer(row: KernelTime) -> bool:
    """Whether a row is a transfer."""
    return isinstance(row.kind, (Transfer, HostTransfer))


def on_host(row: KernelTime) -> bool:
    """Whether a row is work of the host in its own memory."""
    return isinstance(row.kind, HostWork)


def computes(row: KernelTime) -> bool:
    """Whether a row is a kernel of the device."""
    return not is_transfer(row) and not on_host(row)


def transfer_kind(row: KernelTime) -> str:
    """What a transfer moves; what goes to host memory and back is a kind of its own. Nothing of a kernel."""
    if isinstance(row.kind, HostTransfer):
        return "host"
    return row.kind.content if isinstance(row.kind, Transfer) else ""


def _runs_over(axis: str) -> Callable[[KernelTime, str], bool]:
    """Whether a transfer runs over a mesh axis."""
    return lambda row, _: isinstance(row.kind, Transfer) and row.kind.axis == axis


def _is_of_family(family: str) -> Callable[[KernelTime], bool]:
    """Whether a kernel is of a family."""
    return lambda row: isinstance(row.kind, KernelClass) and row.kind.family == family


def _is_any_kernel(_: KernelTime) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """Where a stack says `choice` for a `kind` of transfer, `transfers` may run beside `cover_text`.

    `moved` picks those transfers from the rows of a unit's pass, `covers` what hides them; neither is there where the
    rule is about more than one unit. `reach` is the share of the cover that comes after the first transfer.
    """

    kind: str
    choice: str
    transfers: str
    cover_text: str
    source: str
    moved: Callable[[KernelTime, str], bool] | None = None
    covers: Callable[[KernelTime], bool] | None = None
    reach: Callable[[Plan], Amount] = lambda _: 1


def _is_column_parallel(row: KernelTime, name: str) -> bool:
    late = row.cause.purpose in (Purpose.COLUMN_INPUT_GRADIENT, Purpose.GATHERED_AGAIN)
    return _runs_over("tensor")(row, name) and name == "backward" and late


def _is_input_gradient(row: KernelTime, name: str) -> bool:
    return _runs_over("tensor")(row, name) and row.cause.purpose is Purpose.COLUMN_INPUT_GRADIENT


def _is_weight_gradient(row: KernelTime) -> bool:
    return _is_of_family(MATMUL)(row) and row.cause.purpose is Purpose.WEIGHT_GRADIENT


def _is_ring_send(row: KernelTime, name: str) -> bool:
    return _runs_over("context")(row, name) and isinstance(row.kind, Transfer) and row.kind.collective == "send"


RULES = (
    Rule(
        "tensor",
        "matmul",
        "every tensor-parallel transfer",
        "the matmuls of the same block (attention or MLP) and pass",
        "Transformer Engine, userbuffers: split into chunks beside the matmul that it feeds or follows",
        moved=_runs_over("tensor"),
        covers=_is_of_family(MATMUL),
    ),
    Rule(
        "tensor",
        "userbuffers",
        "gradients of column-parallel inputs",
        "the weight gradients of the same block (attention or MLP): frozen weights have none",
        "Transformer Engine, ub_bulk_wgrad (pytorch/module/layernorm_linear.py)",
        moved=_is_input_gradient,
        covers=_is_weight_gradient,
    ),
    Rule(
        "tensor",
        "userbuffers",
        "every other tensor-parallel transfer",
        "the matmuls of the same block (attention or MLP) and pass",
        "Transformer Engine, userbuffers: in chunks beside the matmul that it feeds or follows, and ub_bulk_dgrad",
        moved=lambda row, name: _runs_over("tensor")(row, name) and not _is_input_gradient(row, name),
        covers=_is_of_family(MATMUL),
    ),
    Rule(
        "tensor",
        "weight_gradient",
        "in backward, inputs gathered again and gradients of column-parallel inputs",
        "the matmuls of the same block (attention or MLP)",
        "Korthikanti et al. 2022, arXiv 2205.05198; Megatron-LM, core/tensor_parallel/layers.py",
        moved=_is_column_parallel,
        covers=_is_of_family(MATMUL),
    ),
    Rule(
        "context",
        "attention",
        "blocks of keys and values (and their gradients) that go around a ring",
        "the attention of the block before; the first one waits for none",
        "Liu et al. 2023, arXiv 2310.01889",
        moved=_is_ring_send,
        covers=_is_of_family(ATTENTION),
        reach=lambda plan: 1 - divide(1, plan.parallelism.context),
    ),
    Rule(
        "expert",
        "shared",
        "tokens to and from their experts",
        "the shared experts of the same layer and pass",
        "Megatron-LM, --moe-shared-expert-overlap",
        moved=_runs_over("expert"),
        covers=lambda row: SHARED in row.cause.region,
    ),
    Rule(
        "expert",
        "micro_batch",
        "tokens to and from their experts",
        "everything that another micro-batch computes meanwhile, as much as one pass of the same layer",
        "DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1; Megatron-LM, --overlap-moe-expert-parallel-comm",
        moved=_runs_over("expert"),
        covers=_is_any_kernel,
    ),
    Rule(
        "gather",
        "layer",
        "weights gathered for the next layers",
        "the compute of the layer that runs, while no other transfer runs beside it; the root's gather delays the "
        "step, and that of the first set of several layers",
        "Zhao et al. 2023, arXiv 2304.11277; Megatron-LM, --overlap-param-gather",
    ),
    Rule(
        "data",
        "backward",
        "gradients that are summed over data",
        "the backward of earlier layers, while no other transfer runs beside it; the last reduction delays the step",
        "Li et al. 2020, arXiv 2006.15704; Megatron-LM, --overlap-grad-reduce",
    ),
    Rule(
        "data",
        "replicas",
        "gradients that are summed over data, where no device updates a share alone",
        "the backward of earlier layers, while no other transfer runs beside it; the last reduction delays the step",
        "huggingface/nanotron, trainer.py: only DistributedDataParallel reduces as backward goes",
    ),
    Rule(
        "pipeline",
        "compute",
        "sends between stages",
        "the chunks of layers that a device has in turn",
        "Megatron-LM, --overlap-p2p-communication",
    ),
    Rule(
        "host",
        "compute",
        "copies to host memory and back, each direction by itself",
        "the compute of the layer that runs, beside transfers over other links: activations, and shares of weights and"
        " gradients as far as the gather or reduction of the same layer leaves room. Once a step, gradients behind"
        " backward but for the largest piece; updated weights, and all where gradients are summed late, are waited for",
        "Ren et al. 2021, arXiv 2101.06840, section 4; torch.distributed.fsdp, CPUOffloadPolicy; Transformer Engine,"
        " get_cpu_offload_context",
    ),
    Rule(
        "update",
        "backward",
        "the update on the host",
        "the backward of earlier layers of the last micro-batch, layer by layer as their gradients arrive: no norm of "
        "all of them is waited for",
        "Lian et al. 2025, arXiv 2509.21271 (SuperOffload), speculation then validation",
    ),
)


# What each kind of transfer is, where no rule says which of them may hide.
TRANSFERS = {
    "tensor": "tensor-parallel transfers",
    "data": "gradients that are summed over data",
    "gather": "weights gathered for use",
    "pipeline": "sends between stages",
    "context": "blocks that go around a ring",
    "expert": "tokens to and from their experts",
    "host": "copies to host memory and back",
    "update": "the update on the host",
}


def in_force(overlap: Overlap) -> tuple[Rule, ...]:
    """The rules of a stack."""
    return tuple(rule for rule in RULES if getattr(overlap, rule.kind) == rule.choice)


@dataclass(frozen=True)
class Said:
    """What a stack says of one kind of transfer, for people."""

    kind: str
    choice: str
    transfers: str
    behind: str
    source: str


def rules_in_words(overlap: Overlap) -> Iterator[Said]:
    """The rules of a stack in words, kind by kind."""
    for kind in vars(overlap):
        rules = [rule for rule in in_force(overlap) if rule.kind == kind]
        yield from (Said(kind, rule.choice, rule.transfers, rule.cover_text, rule.source) for rule in rules)
        if not rules:
            yield Said(kind, NONE, TRANSFERS[kind], "nothing", "")


def kinds_behind_any_kernel(overlap: Overlap) -> tuple[str, ...]:
    """The kinds of transfers that every kernel of their unit hides, whatever it is for."""
    return tuple(rule.kind for rule in in_force(overlap) if rule.covers is _is_any_kernel)


def _picks(rule: Rule, row: KernelTime, name: str, plan: Plan) -> bool:
    """Whether a rule is about this transfer."""
    if rule.moved is None or not rule.moved(row, name):
        return False
    sent = row.kind.collective if isinstance(row.kind, Transfer) else ""
    return rule.choice != "matmul" or not quantised_between(sent, row.cause.unit, plan)


def overlapped_seconds(name: str, rows: Sequence[KernelTime], plan: Plan) -> Iterator[tuple[str, Amount]]:
    """Seconds of each kind of transfer of one unit's pass that its kernels hide; no kernel hides two transfers at once.

    Seconds are of all times that the rows run in a step.
    """
    claims: list[tuple[frozenset[str], Amount]] = []
    compute = [row for row in rows if computes(row)]
    for rule in in_force(plan.stack.overlap):
        if rule.moved is None or rule.covers is None:
            continue
        moving = [row for row in rows if is_transfer(row) and _picks(rule, row, name, plan)]
        cover = [row for row in compute if rule.covers(row)]
        for kernels, transfers in _block_pairs(cover, moving) if rule.kind == "tensor" else ((cover, moving),):
            names = frozenset(row.account for row in kernels)
            room = total_seconds(kernels) * real(rule.reach(plan)) - sum(
                used for accounts, used in claims if accounts & names
            )
            seconds = maximum(0.0, minimum(room, total_seconds(transfers)))
            claims.append((names, seconds))
            yield rule.kind, seconds


def _block_pairs(cover: Sequence[KernelTime], moving: Sequence[KernelTime]) -> Iterator[tuple[list[KernelTime], ...]]:
    """What covers and what moves within each part of a layer; nothing covers what belongs to none."""
    for block in dict.fromkeys(row.cause.block for row in moving):
        if block:
            yield [r for r in cover if r.cause.block == block], [r for r in moving if r.cause.block == block]


def gradients_hide(plan: Plan) -> bool:
    """Whether gradients are summed over data while earlier layers run backward."""
    choice = plan.stack.overlap.data
    return choice == "backward" or (choice == "replicas" and plan.parallelism.zero == 0)


def slowdown(plan: Plan) -> float:
    """The share of its own time that a transfer takes from the compute beside it: the multiprocessors that it holds."""
    multiprocessors = plan.accelerator.multiprocessors
    return max(plan.stack.overlap_tax, plan.stack.transfer_channels / multiprocessors if multiprocessors else 0.0)


def total_seconds(rows: Iterable[KernelTime]) -> Amount:
    """Seconds of these rows in a step, one after the other."""
    return sum(row.seconds * row.times for row in rows)


# --- launches, calls and comparisons of the host ---

MESSAGES = 4  # of a comparison, one after the other, for each rank but the first


# What hosts compare once a step before it runs: seconds of each comparison and how often, by transfer and phase.
Comparisons = Mapping[tuple[Transfer, str], tuple[Amount, Amount]]


def launches(rows: Sequence[KernelTime], plan: Plan) -> Amount:
    """Host seconds that launch the kernels and transfers of a unit's pass, all of them in a step."""
    return plan.stack.launch * sum(row.times for row in rows if not on_host(row)) + comparison_seconds(rows, plan)


def host_calls(name: str, unit: str, rows: Sequence[KernelTime], plan: Plan) -> Amount:
    """Kernels of a layer that no operation stands for: each is a call by itself, without autograd, views or hooks."""
    forward, backward = (0, 0) if unit in (*ENDS, ROOT) else plan.stack.beside
    layers = smallest_of(row.times for row in rows if computes(row))
    return plan.stack.call * layers * (forward if name == "forward" else backward)


def comparison_seconds(rows: Iterable[KernelTime], plan: Plan) -> Amount:
    """What hosts pay to compare collectives before they run them (TORCH_DISTRIBUTED_DEBUG=DETAIL).

    Of n ranks all others report to the first and hear from it, one by one, and two all-gathers of a fingerprint go
    around: 4 (n - 1) messages (pytorch/pytorch, ProcessGroupWrapper.cpp; ProcessGroupGloo.cpp, monitoredBarrier). What
    two devices send each other is not compared.
    """
    if not plan.stack.check:
        return 0.0
    compared = ((row.kind, row.times) for row in rows if isinstance(row.kind, Transfer) and _is_compared(row))
    return sum(_check_seconds(kind, plan) * times for kind, times in compared)


def comparisons(rows: Iterable[KernelTime], plan: Plan) -> Comparisons:
    """What hosts compare of what moves once a step."""
    compared: dict[tuple[Transfer, str], tuple[Amount, Amount]] = {}
    for row in rows:
        if plan.stack.check and isinstance(row.kind, Transfer) and _is_compared(row):
            call = row.kind, row.when
            compared[call] = _check_seconds(row.kind, plan), compared.get(call, (0, 0))[1] + row.times
    return compared


def compared_once(compared: Comparisons, backward: Amount, plan: Plan) -> Amount:
    """Host seconds of these comparisons, as far as the last micro-batch's `backward` does not hide them.

    What is not reduced in buckets moves as one (nanotron, distributed.py: all_reduce_coalesced, all_gather_coalesced).
    """
    at_once = sum(seconds for seconds, _ in compared.values())
    if not compared or not (plan.stack.buckets and plan.parallelism.zero == 0):
        return at_once
    exposed = maximum(0.0, sum(seconds * calls for seconds, calls in compared.values()) - backward)
    return where(plan.parallelism.data * plan.parallelism.context > 1, exposed, at_once)


def _is_compared(row: KernelTime) -> bool:
    return isinstance(row.kind, Transfer) and row.kind.collective != "send"


def _check_seconds(kind: Transfer, plan: Plan) -> Amount:
    ranks = prices.mesh(kind.axis, plan.parallelism, plan.accelerator, plan.cluster).size
    return plan.stack.check * MESSAGES * (ranks - 1)
