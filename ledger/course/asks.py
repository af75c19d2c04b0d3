"""What a question of a lecture may ask for: a frozen record for each kind, everything it names being read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from ledger.course.asked import (
    A_PLAN,
    ACCELERATOR,
    CHANGES,
    COUNT,
    FIGURES,
    LISTS,
    OPTIMIZER,
    PLAN,
    PRECISION,
    SET,
    TEXTS,
    WORDS,
    AskOf,
    Changes,
)
from ledger.spec.parts import DTYPE, At, PartHeader
from ledger.spec.plan import DATE, Accelerator, Optimizer, Plan, Precision
from ledger.spec.structures import NEEDED, SOURCED, AnyOf, Fields, ListOf, MappingOf, Row, quantity
from ledger.spec.values import Choice, Constant, Integer, Quantity, String

MEMORY = "Memory of a device, to be compared with."
ROLE = Choice("activation", "data", "weight")
TOTALS = "Figures and the totals they show; a key may hold a `*`, for the sum of all that match."
CHANGED = "Names, each with the `key=value` overrides that make its plan."

# --- operations and tensors ---------------------------------------------------------------------


@dataclass(frozen=True)
class AskedStep:
    """One operation: an einsum of `left` and `right` (roles), or `flops` for each element `over` some dims."""

    einsum: Annotated[str, "`m k, k n -> m n`"] = ""
    name: Annotated[str, "What the operation goes by."] = ""
    over: Annotated[tuple[str, ...], WORDS, "Dims of an elementwise operation."] = ()
    into: Annotated[tuple[str, ...], WORDS, "Dims of its result, where it is a reduction."] = ()
    flops: Annotated[int, Integer(0), "For each element."] = 1
    left: Annotated[str, ROLE, "What the first operand is: data needs no gradient."] = "activation"
    right: Annotated[str, ROLE, "What the second operand is."] = "weight"


@dataclass(frozen=True)
class OperationAsk:
    """Operations in a row. A size is a number, or the name of another dim of the same size."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Operations in a row: FLOPs, bytes, intensity.")

    steps: Annotated[tuple[AskedStep, ...], "The operations, in order."]
    sizes: Annotated[
        Mapping[str, int | str],
        MappingOf(AnyOf((Integer(), String()))),
        "Sizes by dim; a name stands for the size of that dim.",
    ]
    dtype: Annotated[str, DTYPE, "A number format."] = "bf16"
    accelerator: Annotated[Accelerator | None, ACCELERATOR, "The device that runs them."] = None


@dataclass(frozen=True)
class ActivationAsk:
    """A nonlinearity over (rows x columns), spelt out in its operators and as the one kernel that runs them."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="A nonlinearity, as one kernel and spelt out.")

    kind: Annotated[str, Choice("gelu_tanh", "silu"), "Which one."]
    elements: Annotated[int, COUNT, "Elements that it is applied to."]
    precision: Annotated[Precision, PRECISION, "The number formats."]
    accelerator: Annotated[Accelerator, ACCELERATOR, "The device that runs it."]


@dataclass(frozen=True)
class TensorAsk:
    """So many tensors of one shape; `memory` is a device's, to be compared with."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Bytes of a tensor.")

    shape: Annotated[Mapping[str, int], MappingOf(COUNT, 1), "Its sizes by dim."]
    dtype: Annotated[str, DTYPE, "A number format."]
    copies: Annotated[int, COUNT, "How many there are."] = 1
    memory: Annotated[int | None, quantity("B"), MEMORY] = None


@dataclass(frozen=True)
class DtypeAsk:
    """A number format."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="A number format.")

    name: Annotated[str, DTYPE, "Its name."]


@dataclass(frozen=True)
class RidgeAsk:
    """An accelerator's rate in a dtype over its bandwidth."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Rate over bandwidth of a device.")

    accelerator: Annotated[Accelerator, ACCELERATOR, "The device."]
    dtype: Annotated[str, DTYPE, "The number format it multiplies."]


# --- state --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateAsk:
    """Bytes of state of so many parameters; `memory` is a device's, to be compared with `parts` of the state."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Bytes of weights, gradients and optimizer states.",
        extra=(Row("accelerator", ACCELERATOR, "The device whose memory it is."),),
    )

    precision: Annotated[Precision, PRECISION, "The number formats."]
    optimizer: Annotated[Optimizer, OPTIMIZER, "What updates the weights."]
    parameters: Annotated[int, Quantity("parameters"), "How many there are: `70e9`."] = 1
    parts: Annotated[tuple[str, ...], TEXTS, "Parts of the state that memory is compared with."] = ()
    memory: Annotated[int | None, quantity("B"), MEMORY] = None


@dataclass(frozen=True)
class OffloadAsk(StateAsk):
    """Optimizer states in host memory: what that frees, and what the host link then carries each step."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="Bytes of weights, gradients and states, with the states in host memory."
    )

    accelerator: Annotated[Accelerator, ACCELERATOR, "The device whose link to the host it is."] = field(kw_only=True)


@dataclass(frozen=True)
class OptimizerAsk:
    """What an optimizer keeps for one matrix, per element."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="What an optimizer keeps for a matrix.")

    rule: Annotated[Optimizer, At("name"), OPTIMIZER, "The optimizer."]
    dtype: Annotated[str, DTYPE, "The dtype of the matrix."]
    rows: Annotated[int, COUNT, "Rows of the matrix."]
    columns: Annotated[int, COUNT, "Columns of the matrix."]


@dataclass(frozen=True)
class SolveAsk:
    """The largest model whose state fits `devices` of a kind: the closed form, inverted."""

    spec: ClassVar[PartHeader] = PartHeader(
        meaning="The largest model whose state fits: memory <= devices x capacity.",
        extra=(Row("for", Constant("parameters"), "What is looked for.", needed=NEEDED),),
    )

    precision: Annotated[Precision, PRECISION, "The number formats."]
    optimizer: Annotated[Optimizer, OPTIMIZER, "What updates the weights."]
    devices: Annotated[int, COUNT, "How many devices there are."]
    accelerator: Annotated[Accelerator, ACCELERATOR, "The device."]


# --- plans --------------------------------------------------------------------------------------

OF_PLANS = (Row("plan", PLAN, A_PLAN, "plan", NEEDED), SET)  # of records that keep only what is made of the plan
LEVEL = "Overrides of the plan that is to leave so much free."
LEVELS = Fields(tuple(Row(name, TEXTS, LEVEL, name) for name in ("minimum", "typical", "production", "cloud")), Changes)


@dataclass(frozen=True)
class PlanAsk:
    """Totals of a compiled plan by the names they go by here, and ratios of two."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Totals of a compiled plan.", extra=(SET,))

    plan: Annotated[Plan, PLAN, A_PLAN]
    totals: Annotated[Mapping[str, str], FIGURES, TOTALS] = field(default_factory=dict)
    ratios: Annotated[Mapping[str, tuple[str, str]], MappingOf(ListOf(String(), 2, 2)), "One total over another."] = (
        field(default_factory=dict)
    )


@dataclass(frozen=True)
class LevelsAsk:
    """Plans by the headroom policy that each is to leave free."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="The peak and what a headroom policy keeps free.", extra=OF_PLANS)

    plans: Annotated[Mapping[str, Plan], At("levels"), LEVELS, "Headroom policies, each with its plan."]


@dataclass(frozen=True)
class CompareAsk:
    """Totals of a plan, and of the same plan with something changed."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Totals of a plan with and without a change.", extra=(SET,))

    plan: Annotated[Plan, PLAN, A_PLAN]
    changed: Annotated[Mapping[str, Plan], CHANGES, CHANGED]
    totals: Annotated[Mapping[str, str], FIGURES, TOTALS]


@dataclass(frozen=True)
class AccountsAsk:
    """Matmul FLOPs of the forward pass per token and occurrence, summed over accounts."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Forward matmul FLOPs a token of some accounts.", extra=(SET,))

    plan: Annotated[Plan, PLAN, A_PLAN]
    sums: Annotated[Mapping[str, tuple[str, ...]], LISTS, "Figures, each with the accounts it sums."]
    totals: Annotated[Mapping[str, str], FIGURES, TOTALS] = field(default_factory=dict)


@dataclass(frozen=True)
class MomentsAsk:
    """What is alive at each moment of a step."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="What is alive at each moment of a step.", extra=(SET,))

    plan: Annotated[Plan, PLAN, A_PLAN]


@dataclass(frozen=True)
class ChecksAsk:
    """Lines of plans' checklists whose names begin with `only`."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Lines of a checklist.", extra=OF_PLANS)

    plans: Annotated[Mapping[str, Plan], CHANGES, CHANGED]
    only: Annotated[str, "How the lines to show begin."] = ""


@dataclass(frozen=True)
class FitAsk:
    """The largest model of one shape that really fits, by depth, beside the bound that counts only state."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="The deepest model of a shape that really fits.", extra=(SET,))

    plan: Annotated[Plan, PLAN, A_PLAN]
    others: Annotated[Mapping[str, Plan], CHANGES, CHANGED]


@dataclass(frozen=True)
class SegmentsAsk:
    """Layers recomputed in segments: what is kept and what is run again, by the length of a segment."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Layers recomputed in segments of each length.", extra=(SET,))

    plan: Annotated[Plan, PLAN, A_PLAN]


@dataclass(frozen=True)
class StorageAsk:
    """Weights and states written to storage at so many bytes per second; `restart` in seconds."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Weights and states written to storage.", extra=(SET,))

    plan: Annotated[Plan, PLAN, A_PLAN]
    bandwidth: Annotated[float, quantity("B/s"), "What storage takes in: `100 GB/s`."]


@dataclass(frozen=True)
class InferenceAsk:
    """Prefill and decoding on one device, with `context` tokens in the cache, for several batch sizes."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="Prefill and decoding.", extra=(SET,))

    plan: Annotated[Plan, PLAN, A_PLAN]
    context: Annotated[int, COUNT, "Tokens in the cache."]
    batches: Annotated[tuple[int, ...], ListOf(COUNT, 1), "Sequences that are decoded at once."]


@dataclass(frozen=True)
class Offer:
    """An accelerator with the price of an hour of it, and where and when that was asked."""

    accelerator: Annotated[Accelerator, ACCELERATOR, "The device."]
    price: Annotated[float, quantity("USD"), "Of one device for an hour."]
    date: Annotated[str, DATE, "Date of the offer: `2026-05-18`."]
    source: Annotated[str, SOURCED.type, SOURCED.meaning]


@dataclass(frozen=True)
class BudgetAsk:
    """What an amount of money trains: the model for which `tokens_per_parameter` tokens are just paid for."""

    spec: ClassVar[PartHeader] = PartHeader(meaning="What an amount of money trains.")

    dollars: Annotated[float, quantity("USD"), "What there is to spend."]
    mfu: Annotated[float, quantity("1", greatest=1), "The utilisation that is assumed."]
    tokens_per_parameter: Annotated[int, COUNT, "How long the model is trained."]
    precision: Annotated[Precision, PRECISION, "The number formats."]
    optimizer: Annotated[Optimizer, OPTIMIZER, "What updates the weights."]
    offers: Annotated[tuple[Offer, ...], ListOf(AskOf(Offer), 1), "Devices and what they cost."]
    plans: Annotated[tuple[MomentsAsk, ...], ListOf(AskOf(MomentsAsk)), "Plans to be compared with."] = ()


ASKS: Mapping[str, type] = {
    "operation": OperationAsk,
    "activation": ActivationAsk,
    "tensor": TensorAsk,
    "dtype": DtypeAsk,
    "ridge": RidgeAsk,
    "state": StateAsk,
    "offload": OffloadAsk,
    "optimizer": OptimizerAsk,
    "solve": SolveAsk,
    "totals": PlanAsk,
    "compare": CompareAsk,
    "levels": LevelsAsk,
    "accounts": AccountsAsk,
    "moments": MomentsAsk,
    "segments": SegmentsAsk,
    "checks": ChecksAsk,
    "fit": FitAsk,
    "storage": StorageAsk,
    "inference": InferenceAsk,
    "budget": BudgetAsk,
}
