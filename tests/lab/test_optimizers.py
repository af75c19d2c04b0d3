"""What torch.optim keeps, holds and moves in an update, against what the files of optimizers say."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ledger.lab.observed.one_device import one_device_step
from ledger.lab.reference.optimizers import CLASSES, KERNELS, reference_optimizer
from ledger.lab.reference.workload import workload
from ledger.lab.transformers.config import NoReferenceError
from ledger.model.update import PASSES
from ledger.spec.load import load_optimizer
from ledger.spec.plan import Precision
from ledger.spec.precision import WeightFormats
from tests.model import plans
from tests.sampling import sampled

BF16 = Precision("bf16", WeightFormats.alike("bf16"), "bf16", None, "bf16", "bf16", "bf16", "bf16")
LOSS = 4  # the scalar that backward began with is still there
STEP_COUNT = 4  # of each tensor, on the device where the kernel is fused
IMPLEMENTED = [(name, kernel) for name in sorted(CLASSES) for kernel in load_optimizer(name).update]

KINDS = ("bf16-true", "fp32", "bf16-mixed")


def held(case: tuple[str, str, str]) -> set[Any]:
    """What is there once: every optimizer, and every kernel in each precision."""
    name, kernel, precision = case
    return {name, (kernel, precision)}


def measured(optimizer: Any, kernel: str, precision: str) -> tuple[int, int, int, int]:
    """Bytes that persist and the peak of the update, both beyond PyTorch's by so much; step counts; rounding."""
    compiled = plans.compiled(
        model=plans.GPT2_NO_DROPOUT,
        optimizer=optimizer,
        precision=precision,
        kernels={"optimizer": kernel, "attention": "math"},
        run={"seq_len": 37, "micro_batch": 1, "global_batch": 1},
    )
    (role,) = compiled.roles
    update = next(moment for moment in role.moments if moment.name == "optimizer")
    found = one_device_step(workload(compiled.plan))
    tokens = 37 * 8
    kept = sum(compiled.totals[f"memory.static.{part}"] for part in ("weights", "master", "optimizer")) + tokens
    held = found.moments["optimizer"]
    counts = 28 * STEP_COUNT if kernel == "fused" and optimizer not in ("sgd", "momentum") else 0  # 28 parameters
    return int(kept) - found.moments["static"].requested, update.total - held.requested + LOSS, counts, held.rounding


@pytest.mark.parametrize(
    ("name", "kernel", "precision"),
    sampled([(*pair, kind) for pair in IMPLEMENTED if pair[0] not in ("adafactor", "muon") for kind in KINDS], held),
)
def test_states_and_peak_of_the_update(name: str, kernel: str, precision: str) -> None:
    """Every byte that torch.optim holds while it updates is in the ledger, with master weights and without."""
    if kernel == "fused" and precision == "bf16-mixed":
        pytest.skip("torch's fused kernels need gradients in the dtype of what they update")
    kept, held, counts, _ = measured(name, kernel, precision)
    assert (kept, held) == (-counts, -counts)


@pytest.mark.parametrize(("kernel", "precision"), sampled(product(("foreach", "loop"), KINDS)))
def test_factored_states_and_their_peak(kernel: str, precision: str) -> None:
    """Adafactor keeps a row and a column of each matrix; its peak is right to the rounding of small tensors."""
    kept, held, _, rounding = measured("adafactor", kernel, precision)
    assert kept == 0
    assert abs(held) <= rounding


@pytest.mark.parametrize("name", ["adagrad", "rmsprop", "adafactor"])
def test_a_loop_holds_what_the_weight_before_left(name: str) -> None:
    """Beside a wide embedding the fullest instant is the first matrix of the first layer: what is left of the table."""
    model = {**plans.LLAMA, "vocab": 4099}
    compiled = plans.compiled(
        model=model, optimizer=name, precision="fp32", kernels={"optimizer": "loop", "attention": "math"}
    )
    update = compiled.roles[0].moments[-1]
    found = one_device_step(workload(compiled.plan)).moments["optimizer"]
    rotary = 2 * 12 * 4  # transformers keeps inverse frequencies, twice
    assert abs(update.total + LOSS + rotary - found.requested) <= (512 if name == "adafactor" else 0)


@pytest.mark.parametrize("precision", [*(pytest.param(p, marks=pytest.mark.long) for p in KINDS[:2]), KINDS[2]])
def test_matrices_by_muon_and_the_rest_by_adamw(precision: str) -> None:
    """A momentum for the matrices of layers, two moments for all else; the peak is that of one orthogonalisation."""
    assert measured("muon", "foreach", precision)[:2] == (0, 0)


def test_master_weights_have_no_fused_reference() -> None:
    """A kernel that reads 16-bit gradients into fp32 weights is not torch's, and is not judged by one that copies."""
    with pytest.raises(NoReferenceError, match="fused"):
        measured("adamw", "fused", "bf16-mixed")


@pytest.mark.parametrize("name", ["lion", "adamw-8bit", "adamw-bf16"])
def test_what_torch_lacks_has_no_reference(name: str) -> None:
    """An optimizer that torch.optim does not have, or not with such states, is refused and not taken for another."""
    kernel = next(iter(load_optimizer(name).update))
    with pytest.raises(NoReferenceError):
        measured(name, kernel, "fp32")


class Traffic(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not followed
    """Elements that operators read and write; `products` apart where they are operations of their own."""

    def __init__(self, *, products: bool) -> None:
        super().__init__()
        self.products = products
        self.elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        returns = func._schema.returns
        view = any(r.alias_info and not r.alias_info.is_write for r in returns)
        if view or ("mm" in func.name() and not self.products):
            return result
        read = {id(leaf): leaf.numel() for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)}
        written = [a for a, s in zip(args, func._schema.arguments, strict=False) if s.alias_info]
        fresh = [] if written else [result]
        made = [leaf.numel() for leaf in tree_leaves([*written, *fresh]) if isinstance(leaf, torch.Tensor)]
        self.elements += sum(read.values()) + sum(made)
        return result


@pytest.mark.parametrize(("name", "kernel"), [pair for pair in IMPLEMENTED if pair[1] != "fused"])
def test_passes_of_an_update(name: str, kernel: str) -> None:
    """Reads and writes of operands of a weight's size, counted operator by operator."""
    rule = load_optimizer(name)
    layer = torch.nn.Linear(512, 256, bias=False, dtype=torch.bfloat16)
    optimizer = reference_optimizer(layer, [layer], rule, kernel, BF16)
    layer.weight.grad = torch.zeros_like(layer.weight)
    with Traffic(products=rule.newton_schulz is None) as traffic:
        optimizer.step()
    assert round(traffic.elements / layer.weight.numel()) == rule.update[kernel].passes


def test_copies_around_master_weights_are_passes() -> None:
    """Gradients to the master's dtype before the update, and weights from the master after it."""
    assert PASSES["copy"] == (("gradients",), ("master",))
    assert PASSES["cast"] == (("master",), ("weights",))


def test_every_kernel_of_torch_has_its_arguments() -> None:
    """A choice of kernel that a plan can make is one that torch.optim is asked for."""
    assert set(KERNELS) == {"foreach", "fused", "loop"}
