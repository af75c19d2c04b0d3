"""The process that measures: told what over its standard input, it answers on its standard output in lines of JSON.

It alone touches the device, so a device that fails takes this process with it and no record.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import torch

from ledger.lab.bench.cases import BenchCase, MeasuredDevice
from ledger.lab.bench.machine import NoDeviceError, busy_reason, find_device
from ledger.lab.bench.rig import Rig
from ledger.lab.bench.table import by_kind, suite
from ledger.lab.bench.timing import DeviceLostError
from ledger.processes import end_with_input, leave_when_told


def main() -> None:
    """Says what the device is and which cases there are for it, then measures those it is given, each announced."""
    leave_when_told()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")

    settings = json.loads(sys.stdin.readline())
    try:
        device = find_device(settings["device"], settings["threads"], quick=settings["quick"])
    except NoDeviceError as error:
        answer(no_device=str(error))
        return
    answer(device=asdict(device), cases=[asdict(case) for case in suite(device.limits, settings["only"])])
    line = sys.stdin.readline()
    if not line:
        return
    end_with_input()
    cases = [BenchCase(**case) for case in json.loads(line)]
    rig = Rig(device.place, device.limits, settings["seconds"], settings["hold"], torch.get_num_threads(), device.uuid)
    try:
        for index, result in measure_cases(cases, rig, device):
            if result is None:
                answer(begun=index)
            else:
                answer(done=index, result=result)
    except DeviceLostError:
        answer(lost=True)
        answers.flush()
        os._exit(0)  # what a lost device holds cannot be given back, and trying to may abort or hang
    answer(finished=True)


def measure_cases(
    cases: list[BenchCase], rig: Rig, device: MeasuredDevice
) -> Iterable[tuple[int, Mapping[str, Any] | None]]:
    """The place of each case with None when it begins, and with its result.

    Raises DeviceLostError, after the error of the case in which the device was lost.
    """
    index = 0
    for kind, cases_of_kind in by_kind(cases):
        reason = busy_reason(device)
        if reason:
            for _ in cases_of_kind:
                yield index, {"error": reason}
                index += 1
            continue
        yield index, None
        gc.collect()
        gc.freeze()  # libraries stay; the garbage of each case is looked for without them
        try:
            for measured in kind.measure(cases_of_kind, rig):
                yield index, measured.result
                index += 1
                if index < len(cases):
                    yield index, None
        except DeviceLostError as error:
            yield index, {"error": str(error)}
            raise


if __name__ == "__main__":
    main()
