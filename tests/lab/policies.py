"""One micro-batch under a recompute policy or with frozen weights, as the ledger and as PyTorch hold and count it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ledger.books.compiled_roles import CompiledRole, compile_roles
from ledger.books.memory.passing import standing
from ledger.books.results import Compiled
from ledger.lab.observed.device_step import DeviceStep
from ledger.lab.observed.flop_counts import flop_counts
from ledger.lab.observed.one_device import one_device_step
from ledger.lab.reference.model import workload
from ledger.model.fsdp_units import ENDS
from ledger.model.operations import total
from ledger.model.schedule import roles
from ledger.spec.plan import Recompute
from tests.model import plans

BLOCK = 512  # bytes: every storage is rounded up to this


@dataclass(frozen=True)
class Compared:
    """The ledger's own plan, and PyTorch's step of it."""

    compiled: Compiled
    found: DeviceStep

    @property
    def book(self) -> CompiledRole:
        """The books of the one device."""
        (book,) = compile_roles(self.compiled.plan, roles(self.compiled.plan))
        return book

    def saved(self) -> tuple[int, int]:
        """Bytes from forward to backward that belong to layers and ends: the ledger's, and PyTorch's."""
        book = self.book
        kept = [(unit.count, tensor) for unit in book.program.units for tensor in unit.kept.saved]
        mine = sum(book.value(count * tensor.bytes()) for count, tensor in kept if not standing(tensor))
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
        return int(sum(self.book.value(unit.count) * (len(unit.kept.saved) + 2) for unit in self.book.program.units))

    def again(self) -> tuple[int, int]:
        """FLOPs that backward repeats, as FlopCounterMode counts: the ledger's, and PyTorch's with and without."""
        book = self.book
        units = [unit for unit in book.program.units if unit.name not in ENDS]
        mine = total(unit.count * total(op.counted() for op in unit.kept.again) for unit in units)
        work = workload(self.compiled.plan)
        return int(book.value(mine)), flop_counts(work).step - flop_counts(replace(work, recompute=Recompute())).step

    def run(self) -> tuple[int, int]:
        """FLOPs of forward, and of the whole step, as FlopCounterMode counts: less PyTorch's."""
        book, found = self.book, flop_counts(workload(self.compiled.plan))
        forward, backward = 0, 0
        for unit in book.program.units:
            forward += int(book.value(unit.count * total(op.times * op.counted() for op in unit.forward)))
            later = (*unit.kept.again, *unit.backward)
            backward += int(book.value(unit.count * total(op.times * op.counted() for op in later)))
        return forward - found.forward, forward + backward - found.step

    def peak(self, phase: str) -> tuple[int, int]:
        """The fullest moment of a phase."""
        (role,) = self.compiled.roles
        mine = max(moment.total for moment in role.moments if moment.name.startswith(phase))
        return mine, int(getattr(self.found, f"peak_{phase}"))


def compared(model: str, core: str, vocab: int = 512, loss: Any = "eager", chunks: int = 0, **parts: Any) -> Compared:
    """A published model, with a narrow vocabulary unless told, so that layers and not the loss are the fullest."""
    kernels: plans.Mapped = {"norm": "fused", "optimizer": "foreach", "loss": loss}
    kernels |= {"activation": "eager" if model == "gpt2" else "fused"} | ({"loss_chunks": chunks} if chunks else {})
    compiled = plans.compiled(
        model={"base": model, "vocab": vocab},
        precision="bf16-true",
        kernels={**kernels, "attention": core},
        run={"seq_len": 1024 if model == "gpt2" else 8192, "micro_batch": 1, "global_batch": 1},
        **parts,
    )
    return Compared(compiled, one_device_step(workload(compiled.plan)))
