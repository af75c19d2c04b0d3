"""Causes of amounts, as records: the operation, in which unit and block, and what it is there for.

Names of accounts are printed from these records here, and nothing reads them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from ledger.spec.kernel_classes import HOST_LINK, KernelClass


class Purpose(Enum):
    """The purpose of an operation, as far as a rule asks."""

    RESULT = auto()  # what the pass computes
    WEIGHT_GRADIENT = auto()  # the contraction that gives the gradient of a weight
    COLUMN_INPUT_GRADIENT = auto()  # the transfer of the gradient of what all devices of an axis use whole
    GATHERED_AGAIN = auto()  # what forward gathered, and did not save, gathered once more for a weight's gradient
    GRADIENT_SUM = auto()  # of a weight's gradient over devices that see a part of the sequence each
    QUANTISED_WEIGHT = auto()  # a quantised copy of a weight, or its scales, which the next micro-batch finds


@dataclass(frozen=True)
class Transfer:
    """A transfer between devices: a `collective` over a mesh `axis`.

    `content` is what moves: activations of a layer, by the axis (`tensor`, `context`, `expert`); those between stages
    (`pipeline`); weights and their gradients (`data`).
    """

    collective: str
    axis: str
    content: str

    def __str__(self) -> str:
        """The name in lists of kernels: `all_gather.tensor`."""
        return f"{self.collective}.{self.axis}"


@dataclass(frozen=True)
class HostTransfer:
    """A copy between a device and its host of a kind of thing (gradients, weights, activations), `down` or `up`."""

    of: str
    direction: str

    def __str__(self) -> str:
        """The name in lists of kernels: `host_link.down`."""
        return f"host_link.{self.direction}"

    @property
    def price_class(self) -> KernelClass:
        """The class whose curve prices it."""
        return KernelClass(HOST_LINK, self.direction)


@dataclass(frozen=True)
class HostWork:
    """Work of a host for a device: `update` or `sum` of gradients in its memory, `read` or `write` of its drives."""

    of: str

    @property
    def drives(self) -> bool:
        """Whether it is with drives, not in memory."""
        return self.of in ("read", "write")

    def __str__(self) -> str:
        """The name in lists of kernels: `host_memory.update`."""
        return f"{'nvme' if self.drives else 'host_memory'}.{self.of}"

    @property
    def price_class(self) -> KernelClass:
        """A class that no curve prices: the memory of a host is no accelerator's."""
        return KernelClass("host_memory")


@dataclass(frozen=True)
class Cause:
    """The cause of an amount that is spent or held: `name` is `component/operation` within a `unit` of the model.

    A unit may also be what belongs to no layer: the `pipeline`, the `optimizer`. `block` is the part of a layer that an
    operation belongs to, attention or mlp, each with the norm before it; `region` its parts that policies can name. Of
    what is held, `state` says which state of an optimizer, which copy, or when in its life.
    """

    unit: str
    name: str
    block: str = ""
    region: tuple[str, ...] = ()
    purpose: Purpose = Purpose.RESULT
    state: str = ""

    @cached_property
    def account(self) -> str:
        """The name of the account: `unit/component/operation`, and what of it."""
        name = f"{self.name}.{self.state}" if self.state else self.name
        return f"{self.unit}/{name}" if self.unit else name


# --- modules and their parameters, as frameworks name them ---

WEIGHT, BIAS = "weight", "bias"


@dataclass(frozen=True)
class Module:
    """A part of a `component` that multiplies, norms or looks up: `attention/q`, `mlp_norm/norm`.

    `of_layer`: a norm of the layer itself, not one inside attention. `adapter`: a low-rank factor beside another one.
    """

    component: str
    name: str
    of_layer: bool = False
    adapter: bool = False

    def __str__(self) -> str:
        """The name in operations, targets of adapters and rules of optimizers."""
        return f"{self.component}/{self.name}"


@dataclass(frozen=True)
class Parameter:
    """A tensor that a module learns; one that is the module itself (attention sinks) has no kind.

    `elementwise`: it multiplies element by element, as that of a norm does, and is no matrix whatever its dims are.
    """

    module: Module
    kind: str = WEIGHT
    elementwise: bool = False

    def __str__(self) -> str:
        """The name in state dictionaries: `attention/q.weight`."""
        return f"{self.module}.{self.kind}" if self.kind else str(self.module)


# --- units that are not layers ---

INPUT, BRIDGE, OUTPUT, LOSS = "input", "bridge", "output", "loss"
ENDS = (INPUT, BRIDGE, OUTPUT, LOSS)  # the ends of a model, or of its encoder and its decoder
ROOT = "root"  # the weights of these units, which move together
