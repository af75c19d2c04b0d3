"""One micro-batch under a recompute policy or with frozen weights, as the ledger and as PyTorch hold and count it.

PyTorch runs all layers of the published model, or few, whose difference stands for each further one; or the model
itself is cut, as it always is where layers differ by where they stand, so that none stands for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ledger.books.compiled import Compiled
from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.compiler import compile_plan
from ledger.books.memory.steps import outlives_unit
from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.one_device import FlopCounts, flop_counts, one_device_step
from ledger.lab.reference.workload import Workload, workload
from ledger.lab.verification.depth import Sample, limit_layers, sum_weighted_figures, with_counts
from ledger.lab.verification.suites import Depth, depths, has_uneven_layers
from ledger.model.causes import ENDS
from ledger.model.operations import total
from ledger.model.schedule import roles
from ledger.spec.plan import Recompute
from tests.model import plans

Judged = Literal["cut", "few", "all"]
BLOCK = 512  # bytes: every storage is rounded up to this
EVEN = 3  # layers, where they are equal: the first, the last and one between
CUT = 8  # where they are not: two of segments of five and of three, and the second of every third
COUNTED: dict[str, FlopCounts] = {}


@dataclass(frozen=True)
class Compared:
    """The ledger's own plan, and PyTorch's step of it, which a few runs stand for."""

    compiled: Compiled
    runs: tuple[Sample, ...]
    found: DeviceStep = field(init=False)

    def __post_init__(self) -> None:
        steps = [(run.weight, one_device_step(work).moments) for run, work in self.works()]
        object.__setattr__(self, "found", DeviceStep(sum_weighted_figures(steps)))

    def works(self) -> Iterator[tuple[Sample, Workload]]:
        """What PyTorch is asked to run."""
        plan = self.compiled.plan
        for run in self.runs:
            yield run, workload(replace(plan, model=with_counts(plan.model, run.layers)))

    def flops(self, **changes: Any) -> FlopCounts:
        """PyTorch's FLOPs of a micro-batch."""
        counted = [(run.weight, counts(replace(work, **changes))) for run, work in self.works()]
        return FlopCounts(
            sum(w * count.forward for w, count in counted), sum(w * count.backward for w, count in counted)
        )

    @property
    def book(self) -> CompiledRole:
        """The books of the one device."""
        (book,) = compile_roles(self.compiled.plan, roles(self.compiled.plan))
        return book

    def saved(self) -> tuple[int, int]:
        """Bytes from forward to backward that belong to layers and ends: the ledger's, and PyTorch's."""
        book = self.book
        kept = [(unit.count, tensor) for unit in book.program.units for tensor in unit.saving.saved]
        mine = sum(book.value(count * tensor.bytes()) for count, tensor in kept if not outlives_unit(tensor))
        return int(mine), self.found.activations

    def tables(self) -> int:
        """Bytes that all layers share: positions and masks. PyTorch's figure has those that anything keeps.

        A checkpoint holds the numbers of the positions, too.
        """
        units = self.book.program.units
        shared = {t.name: t for unit in units for op in unit.forward for t in op.inputs if t.role == "table"}
        numbers = 8 * self.compiled.plan.run.seq_len
        return int(sum(self.book.value(tensor.bytes()) for tensor in shared.values())) + numbers

    def storages(self) -> int:
        """How many storages are rounded, at most."""
        return int(sum(self.book.value(unit.count) * (len(unit.saving.saved) + 2) for unit in self.book.program.units))

    def again(self) -> tuple[int, int]:
        """FLOPs that backward repeats, as FlopCounterMode counts: the ledger's, and PyTorch's with and without."""
        book = self.book
        units = [unit for unit in book.program.units if unit.name not in ENDS]
        mine = total(unit.count * total(op.counted() for op in unit.saving.again) for unit in units)
        return int(book.value(mine)), self.flops().step - self.flops(recompute=Recompute()).step

    def run(self) -> tuple[int, int]:
        """FLOPs of forward, and of the whole step, as FlopCounterMode counts: less PyTorch's."""
        book, found = self.book, self.flops()
        forward, backward = 0, 0
        for unit in book.program.units:
            forward += int(book.value(unit.count * total(op.in_all(lambda run: run.counted()) for op in unit.forward)))
            later = (*unit.saving.again, *unit.backward)
            backward += int(book.value(unit.count * total(op.in_all(lambda run: run.counted()) for op in later)))
        return forward - found.forward, forward + backward - found.step

    def peak(self, phase: str) -> tuple[int, int]:
        """The fullest moment of a phase."""
        (role,) = self.compiled.roles
        mine = max(moment.total for moment in role.moments if moment.name.startswith(phase))
        return mine, self.found.peak(phase)


def counts(work: Workload) -> FlopCounts:
    """PyTorch's FLOPs, counted once: those of a step without recomputation stand beside every policy's."""
    if repr(work) not in COUNTED:  # a workload holds mappings, which have no hash
        COUNTED[repr(work)] = flop_counts(work)
    return COUNTED[repr(work)]


def trained(model: str, core: str, vocab: int = 512, **parts: Any) -> Compiled:
    """A published model, with a narrow vocabulary unless told, so that layers and not the loss are the fullest."""
    kernels: plans.Mapped = {"norm": "fused", "optimizer": "foreach", "attention": core}
    kernels |= {"activation": "eager" if model == "gpt2" else "fused", "loss": "eager", **parts.pop("kernels", {})}
    run = {"seq_len": 1024 if model == "gpt2" else 8192, "micro_batch": 1, "global_batch": 1, **parts.pop("run", {})}
    return plans.compiled(
        model={"base": model, "vocab": vocab},
        precision="bf16-true",
        kernels=kernels,
        run=run,
        **parts,
    )


def compared(model: str, core: str, vocab: int = 512, *, depth: Judged = "cut", **parts: Any) -> Compared:
    """The same compiled and before the judge: the model cut, all of it by few layers, or by all of them."""
    compiled = trained(model, core, vocab, **parts)
    if depth == "cut" or (depth == "few" and has_uneven_layers(compiled.plan)):
        compiled = compile_plan(limit_layers(compiled.plan, CUT if has_uneven_layers(compiled.plan) else EVEN))
    return Compared(compiled, depths(compiled.plan, Depth(full=depth != "few")))
