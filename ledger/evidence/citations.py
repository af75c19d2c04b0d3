"""What the prices of a plan rest on: the files of measurements that they cite, and whose device each is about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ledger.spec.library import default_library
from ledger.spec.plan import Accelerator, Curve, Plan
from ledger.spec.sources import exists

CITED = re.compile(r"\(([^()]+\.ya?ml)\)")  # as `ledger calibrate` writes it behind a publication or a command
CARRIED = "specs/evidence/"  # how a file of the library is cited, wherever the library lies
DEVICE = re.compile(r"^device: *(\S+)", re.MULTILINE)
TOP = 2000  # characters in which a file says its device
LARGEST = 16 << 20  # bytes; what is larger is no file of measurements


def cited(curve: Curve) -> str:
    """The file that a price's source names, as it is written there; empty where it names none."""
    found = CITED.search(curve.source)
    return found[1] if found else ""


def located(name: str, plan: Plan) -> Path | None:
    """Where a cited file is: in the library, beside the spec of the prices, or here; None where it is nowhere."""
    if not name:
        return None
    if name.startswith(CARRIED):
        places = [default_library().folder("evidence")]
        name = name.removeprefix(CARRIED)
    else:
        places = [beside(plan), Path()]
    return next((path for place in places if exists(str(path := place / name))), None)


def same(first: str, second: str, plan: Plan) -> bool:
    """Whether two names are of one file, however they are written."""
    one, other = located(first, plan), located(second, plan)
    return first == second or (one is not None and other is not None and one.resolve() == other.resolve())


def beside(plan: Plan) -> Path:
    """The folder of the spec that says the plan's prices."""
    stated = plan.origins.get("accelerator.calibration") or plan.origins.get("accelerator")
    return Path(stated.where.file).parent if stated else Path()


def device(path: Path) -> str:
    """The device that a file says it is about; empty where it says none, or cannot be read."""
    try:
        stamp = path.stat()
        return _device(path, stamp.st_mtime_ns) if stamp.st_size <= LARGEST else ""
    except OSError:
        return ""


@cache
def _device(path: Path, _stamp: int) -> str:
    with path.open(encoding="utf-8", errors="replace") as stream:
        said = DEVICE.search(stream.read(TOP))
    return said[1].strip("'\"") if said else ""


def own(name: str, accelerator: Accelerator) -> bool:
    """Whether a file about the device of that name is about this one."""
    return name in (accelerator.name, *accelerator.aliases)


def files(plan: Plan) -> tuple[Path, ...]:
    """Every file of measurements behind the plan's prices: of the library about its device, and what prices cite."""
    return tuple(dict.fromkeys(path.resolve() for path in _files(plan)))


def _files(plan: Plan) -> Iterator[Path]:
    for path in sorted(default_library().folder("evidence").glob("*.yaml")):
        if own(device(path), plan.accelerator):
            yield path
    for name in dict.fromkeys(cited(curve) for curve in plan.accelerator.calibration):
        if name and (found := located(name, plan)) and device(found):
            yield found


def lost(plan: Plan) -> tuple[str, ...]:
    """Files that prices of the plan cite and that are not where they were."""
    names = dict.fromkeys(cited(curve) for curve in plan.accelerator.calibration)
    return tuple(name for name in names if name and located(name, plan) is None)
