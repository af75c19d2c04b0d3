"""The devices that files of evidence measured, each with the fits of its measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.evidence.documents import Evidence, read_evidence
from ledger.evidence.microbenchmarks.records import identity
from ledger.evidence.microbenchmarks.sets import MeasurementSet, measurement_sets
from ledger.lab.calibration.curves import SetFit, choose, curves, fit_set, price_key
from ledger.lab.calibration.device import CalibratedDevice, find_device, spec_text
from ledger.spec.kernel_classes import COLLECTIVES, SCALEOUT
from ledger.spec.library import default_library
from ledger.spec.plan import Accelerator
from ledger.spec.problems import Location, Problem, SpecError

Progress = Callable[[str], None]


@dataclass(frozen=True)
class FittedDevice:
    """A device with every set that was measured on it, and how its spec begins."""

    device: CalibratedDevice
    sets: tuple[SetFit, ...]

    @property
    def accelerator(self) -> Accelerator:
        """The price list with fitted prices in place of its own; classes that nobody measured here keep theirs."""
        fitted = curves(choose(self.sets))
        keys = set(map(price_key, fitted))
        unmeasured = (curve for curve in self.device.accelerator.calibration if price_key(curve) not in keys)
        return replace(self.device.accelerator, calibration=(*fitted, *unmeasured))

    @property
    def spec(self) -> str:
        """The calibrated accelerator as a spec."""
        return spec_text(self.device.head, self.accelerator.calibration)


def read_all(paths: Sequence[Path]) -> tuple[Evidence, ...]:
    """The files; raises SpecError with what is wrong in any of them."""
    files, problems, sources = [], list[Problem](), dict[str, str]()
    for path in paths:
        try:
            files.append(read_evidence(path))
        except SpecError as error:
            problems += error.problems
            sources |= error.sources
    problems += _shared_measurements(files)
    if problems:
        raise SpecError(problems, sources)
    return tuple(files)


def _shared_measurements(files: Sequence[Evidence]) -> Iterator[Problem]:
    """Files that hold the same measurements: each would count twice in a fit."""
    seen: dict[tuple[str, str, object, object], Path] = {}
    for evidence in files:
        records = evidence.microbenchmarks
        keys = {(evidence.device, identity(record), record.get("regime"), record.get("value")) for record in records}
        for earlier, count in Counter(seen[key] for key in keys if key in seen).items():
            message = f"{count} of its {len(records)} measurements are those of {earlier}"
            yield Problem(Location(str(evidence.path)), message, "give each measurement once")
        seen.update(dict.fromkeys(keys, evidence.path))


def library_evidence() -> tuple[Evidence, ...]:
    """The evidence of the library's accelerators; a file of one's own device that lies beside it is left out."""
    library = default_library()
    files = read_all(library.files("evidence"))
    return tuple(evidence for evidence in files if library.matching_names("accelerator", evidence.device))


def fit_all(
    files: Sequence[Evidence], named: str = "", progress: Progress = lambda _: None
) -> tuple[FittedDevice, ...]:
    """Every device that the files measured, or all of them as the named one; raises SpecError.

    Sets whose number format has no peak in the data sheet are left out.
    """
    devices: dict[str, CalibratedDevice] = {}
    sets: dict[str, list[SetFit]] = {}
    for evidence in files:
        measured = measurement_sets(evidence)
        if not measured:
            continue
        progress(evidence.path.name)
        name = named or evidence.device
        devices.setdefault(name, find_device(evidence, named))
        accelerator = devices[name].accelerator
        sets.setdefault(name, []).extend(
            fit_set(_class_by_domain(measurements, accelerator), accelerator)
            for measurements in measured
            if not measurements.kind.number_format or measurements.kind.number_format in accelerator.peak
        )
    return tuple(FittedDevice(devices[name], tuple(sets[name])) for name in sets)


def _class_by_domain(measured: MeasurementSet, accelerator: Accelerator) -> MeasurementSet:
    """The set under the class of transfers between domains, where its ranks are more than one domain joins."""
    kernel_class, joined = measured.kind.what, accelerator.scaleup_domain if accelerator.scaleup_bandwidth else 0
    if kernel_class.family not in COLLECTIVES or not 0 < joined < measured.kind.ranks:
        return measured
    return replace(measured, kind=replace(measured.kind, what=replace(kernel_class, variant=SCALEOUT)))
