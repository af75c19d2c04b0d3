"""What a question of a lecture may ask for: a frozen record for each kind, everything it names being read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.spec.plan import Accelerator, Optimizer, Plan, Precision

# --- operations and tensors ---------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One operation: an einsum of `left` and `right` (roles), or `flops` for each element `over` some dims."""

    einsum: str = ""
    name: str = ""
    over: tuple[str, ...] = ()
    into: tuple[str, ...] = ()  # dims of the result; those of `over` where empty
    flops: int = 1
    left: str = "activation"
    right: str = "weight"


@dataclass(frozen=True)
class OperationAsk:
    """Operations in a row. A size is a number, or the name of another dim of the same size."""

    steps: tuple[Step, ...]
    sizes: Mapping[str, int | str]
    dtype: str
    accelerator: Accelerator | None = None


@dataclass(frozen=True)
class ActivationAsk:
    """A nonlinearity over (rows x columns), spelt out in its operators and as the one kernel that runs them."""

    kind: str
    elements: int
    precision: Precision
    accelerator: Accelerator


@dataclass(frozen=True)
class TensorAsk:
    """So many tensors of one shape; `memory` is a device's, to be compared with."""

    shape: Mapping[str, int]
    dtype: str
    copies: int = 1
    memory: int | None = None


@dataclass(frozen=True)
class DtypeAsk:
    """A number format."""

    name: str


@dataclass(frozen=True)
class RidgeAsk:
    """An accelerator's rate in a dtype over its bandwidth."""

    accelerator: Accelerator
    dtype: str


# --- state --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateAsk:
    """Bytes of state of so many parameters; `memory` is a device's, to be compared with `parts` of the state."""

    precision: Precision
    optimizer: Optimizer
    parameters: int = 1
    parts: tuple[str, ...] = ()
    memory: int | None = None


@dataclass(frozen=True)
class OptimizerAsk:
    """What an optimizer keeps for one matrix, per element."""

    rule: Optimizer
    dtype: str
    rows: int
    columns: int


@dataclass(frozen=True)
class OffloadAsk:
    """Optimizer states in host memory: what that frees, and what the host link then carries each step."""

    state: StateAsk
    accelerator: Accelerator


@dataclass(frozen=True)
class SolveAsk:
    """The largest model whose state fits `devices` of a kind: the closed form, inverted."""

    precision: Precision
    optimizer: Optimizer
    devices: int
    accelerator: Accelerator


# --- plans --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanAsk:
    """Totals of a compiled plan by the names they go by here, and ratios of two."""

    plan: Plan
    totals: Mapping[str, str]
    ratios: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class LevelsAsk:
    """Plans by the headroom policy that each is to leave free."""

    plans: Mapping[str, Plan]


@dataclass(frozen=True)
class CompareAsk:
    """Totals of a plan, and of the same plan with something changed."""

    plan: Plan
    changed: Mapping[str, Plan]
    totals: Mapping[str, str]


@dataclass(frozen=True)
class AccountsAsk:
    """Matmul FLOPs of the forward pass per token and occurrence, summed over accounts."""

    plan: Plan
    sums: Mapping[str, tuple[str, ...]]
    totals: Mapping[str, str]


@dataclass(frozen=True)
class MomentsAsk:
    """What is alive at each moment of a step."""

    plan: Plan


@dataclass(frozen=True)
class ChecksAsk:
    """Lines of plans' checklists whose names begin with `only`."""

    plans: Mapping[str, Plan]
    only: str = ""


@dataclass(frozen=True)
class FitAsk:
    """The largest model of one shape that really fits, by depth, beside the bound that counts only state."""

    plan: Plan
    others: Mapping[str, Plan]


@dataclass(frozen=True)
class SegmentsAsk:
    """Layers recomputed in segments: what is kept and what is run again, by the length of a segment."""

    plan: Plan


@dataclass(frozen=True)
class StorageAsk:
    """Weights and states written to storage at so many bytes per second; `restart` in seconds."""

    plan: Plan
    bandwidth: float


@dataclass(frozen=True)
class InferenceAsk:
    """Prefill and decoding on one device, with `context` tokens in the cache, for several batch sizes."""

    plan: Plan
    context: int
    batches: tuple[int, ...]


@dataclass(frozen=True)
class Offer:
    """An accelerator with the price of an hour of it, and where and when that was asked."""

    accelerator: Accelerator
    price: float
    date: str
    source: str


@dataclass(frozen=True)
class BudgetAsk:
    """What an amount of money trains: the model for which `tokens_per_parameter` tokens are just paid for."""

    dollars: float
    mfu: float
    tokens_per_parameter: int
    precision: Precision
    optimizer: Optimizer
    offers: tuple[Offer, ...]
    plans: Mapping[str, Plan] = field(default_factory=dict)
