"""The files of measurements that the prices of a plan cite, and the device that each is about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ledger.evidence.documents import LIBRARY_FOLDER, read_document
from ledger.spec.library import FOLDERS, default_library
from ledger.spec.plan import Accelerator, Curve, Plan
from ledger.spec.problems import SpecError
from ledger.spec.reader import LARGEST_TEXT
from ledger.spec.sources import exists, read_bounded

CITED = re.compile(r"\(([^()]+\.ya?ml)\)")  # as `ledger calibrate` writes it behind a publication or a command


def cited_file(curve: Curve) -> str:
    """The file that a price's source names, as it is written there; empty where it names none."""
    match = CITED.search(curve.source)
    return match[1] if match else ""


def find_cited(name: str, plan: Plan) -> Path | None:
    """The path of a cited file: in the library, beside the spec of the prices, or here; None where it is nowhere."""
    if not name:
        return None
    library = default_library()
    if name.startswith(LIBRARY_FOLDER):
        places = [root / FOLDERS["evidence"] for root in library.roots]
        name = name.removeprefix(LIBRARY_FOLDER)
    else:
        places = [price_list_folder(plan), library.path_of_place("")]
    return next((path for place in places if exists(str(path := place / name)) and library.may_read(path)), None)


def is_same_file(first: str, second: str, plan: Plan) -> bool:
    """Whether two names are of one file, however they are written."""
    paths = [find_cited(name, plan) for name in (first, second)]
    return first == second or (None not in paths and len({path.resolve() for path in paths if path}) == 1)


def price_list_folder(plan: Plan) -> Path:
    """The folder of the spec that says the plan's prices."""
    stated = plan.origins.get("accelerator.calibration") or plan.origins.get("accelerator")
    return default_library().path_of_place(stated.where.file).parent if stated else Path()


def device_of(path: Path) -> str:
    """The device that a file says it is about; empty where it says none, or cannot be read."""
    try:
        stated = read_document(path).node.fields.get("device")
    except SpecError:
        return ""
    return str(stated.value) if stated else ""


def is_about(device: str, accelerator: Accelerator) -> bool:
    """Whether the device of that name is this one."""
    return device in (accelerator.name, *accelerator.aliases)


def evidence_files(plan: Plan) -> tuple[Path, ...]:
    """Every file of measurements behind the plan's prices: of the library about its device, and what prices cite."""
    return tuple(dict.fromkeys(path.resolve() for path in _find_evidence_files(plan)))


def _find_evidence_files(plan: Plan) -> Iterator[Path]:
    names = (plan.accelerator.name, *plan.accelerator.aliases)
    for path in default_library().files("evidence"):
        # Most files name another device, and need not be read as YAML.
        text = read_bounded(path, LARGEST_TEXT).decode(errors="replace")
        if any(name in text for name in names) and is_about(device_of(path), plan.accelerator):
            yield path
    for name in dict.fromkeys(cited_file(curve) for curve in plan.accelerator.calibration):
        cited = find_cited(name, plan)
        if cited and device_of(cited):
            yield cited


def missing_files(plan: Plan) -> tuple[str, ...]:
    """Files that prices of the plan cite and that are not where they were."""
    names = dict.fromkeys(cited_file(curve) for curve in plan.accelerator.calibration)
    return tuple(name for name in names if name and find_cited(name, plan) is None)
