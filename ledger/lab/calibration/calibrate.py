"""Files of evidence -> what their measurements say of each device's prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.evidence.microbenchmarks.identity import identity
from ledger.evidence.microbenchmarks.measured import Evidence, read_evidence
from ledger.evidence.microbenchmarks.samples import COLLECTIVES, form_of
from ledger.evidence.microbenchmarks.sets import Series, sets
from ledger.lab.calibration import text
from ledger.lab.calibration.curves import Calibration, calibrated, chosen, curves
from ledger.lab.calibration.device import Device, device
from ledger.spec.library import default_library
from ledger.spec.plan import Accelerator, Curve
from ledger.spec.problems import Location, Problem, SpecError

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Fitted:
    """A device with every set that was measured on it, and how its spec begins."""

    device: Device
    found: tuple[Calibration, ...]

    @property
    def accelerator(self) -> Accelerator:
        """The price list with fitted prices in place of its own; classes that nobody measured here keep theirs."""
        made = curves(chosen(self.found))
        fresh = {_key(curve) for curve in made}
        kept = (curve for curve in self.device.accelerator.calibration if _key(curve) not in fresh)
        return replace(self.device.accelerator, calibration=(*made, *kept))

    @property
    def spec(self) -> str:
        """The calibrated accelerator as a spec."""
        prices = self.accelerator.calibration
        if self.device.parts is not None:
            return text.fresh(self.device.parts, prices)
        return text.derived(self.device.base, f"{self.device.accelerator.title}, calibrated", prices)


def _key(curve: Curve) -> tuple[str, str, int, int]:
    return curve.what, curve.regime, curve.ranks, curve.head_dim


def read_all(paths: Sequence[Path]) -> tuple[Evidence, ...]:
    """The files; raises SpecError with what is wrong in any of them."""
    found, problems, sources = [], list[Problem](), dict[str, str]()
    for path in paths:
        try:
            found.append(read_evidence(path))
        except SpecError as error:
            problems += error.problems
            sources |= error.sources
    problems += _shared(found)
    if problems:
        raise SpecError(problems, sources)
    return tuple(found)


def _shared(files: Sequence[Evidence]) -> Iterator[Problem]:
    """Files that hold the same measurements: each would count twice in a fit."""
    seen: dict[tuple[str, str, object, object], Path] = {}
    for evidence in files:
        keys = {(evidence.device, identity(one), one.get("regime"), one.get("value")) for one in evidence.records}
        for other, count in Counter(seen[key] for key in keys if key in seen).items():
            message = f"{count} of its {len(evidence.records)} measurements are those of {other}"
            yield Problem(Location(str(evidence.path)), message, "give each measurement once")
        seen.update(dict.fromkeys(keys, evidence.path))


def carried() -> tuple[Evidence, ...]:
    """The evidence of the library's accelerators; a file of one's own device that lies beside it is left out."""
    library = default_library()
    found = read_all(sorted(library.folder("evidence").glob("*.yaml")))
    return tuple(one for one in found if library.spelt("accelerator", one.device))


def fit_all(files: Sequence[Evidence], named: str = "", progress: Progress = lambda _: None) -> tuple[Fitted, ...]:
    """Every device that the files measured, or all of them as the named one; raises SpecError.

    Sets whose number format has no peak in the data sheet are left out.
    """
    devices: dict[str, Device] = {}
    found: dict[str, list[Calibration]] = {}
    for evidence in files:
        series = sets(evidence)
        if not series:
            continue
        progress(evidence.path.name)
        name = named or evidence.device
        devices.setdefault(name, device(evidence, named))
        under = devices[name].accelerator
        placed = (beyond(one, under) for one in series if peaked(one, under))
        found.setdefault(name, []).extend(calibrated(one, under) for one in placed)
    return tuple(Fitted(devices[name], tuple(found[name])) for name in found)


def beyond(series: Series, accelerator: Accelerator) -> Series:
    """The set under the class of transfers between domains, where its ranks are more than one domain joins."""
    what, joined = series.kind.what, accelerator.scaleup_domain if accelerator.scaleup_bandwidth else 0
    if what not in COLLECTIVES or not 0 < joined < series.kind.ranks:
        return series
    return replace(series, kind=replace(series.kind, what=f"{what}.scaleout"))


def peaked(series: Series, accelerator: Accelerator) -> bool:
    """Whether the data sheet has a peak for what was measured, where its form asks for one."""
    form, dtype = form_of(series.kind.what), series.kind.what.partition(".")[2]
    if form in ("matmul", "grouped"):
        return dtype in accelerator.peak
    return form != "attention" or (series.kind.dtype or "bf16") in accelerator.peak
