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

from ledger.lab.bench.cases import Case
from ledger.lab.bench.machine import Machine, NoDeviceError, busy, machine
from ledger.lab.bench.rig import Rig
from ledger.lab.bench.table import portions
from ledger.lab.bench.timing import LostError

COMMAND = (sys.executable, "-m", "ledger.lab.bench.worker")
# A heap that is given back and asked for again would cost a page fault for every 4 KiB of it, in every operation.
KEPT = {"MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_MMAP_MAX_": "0", "MALLOC_TOP_PAD_": str(64 * 2**20)}


def main() -> None:
    """Says what the device is, then measures the cases that it is given, each announced before it begins."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")

    asked = json.loads(sys.stdin.readline())
    try:
        found = machine(asked["device"], asked["threads"], quick=asked["quick"])
    except NoDeviceError as error:
        answer(no_device=str(error))
        return
    answer(machine=asdict(found))
    line = sys.stdin.readline()
    if not line:
        return
    cases = [Case(**case) for case in json.loads(line)]
    rig = Rig(found.place, found.limits, asked["seconds"], asked["hold"], _threads(), found.uuid)
    try:
        for index, result in measured(cases, rig, found):
            if result is None:
                answer(begun=index)
            else:
                answer(done=index, result=result)
    except LostError:
        answer(lost=True)
        answers.flush()
        os._exit(0)  # what a lost device holds cannot be given back, and trying to may abort or hang
    answer(finished=True)


def measured(cases: list[Case], rig: Rig, found: Machine) -> Iterable[tuple[int, Mapping[str, Any] | None]]:
    """The place of each case with None when it begins, and with its result.

    Raises LostError, after the error of the case in which the device was lost.
    """
    index = 0
    for kind, some in portions(cases):
        reason = busy(found)
        if reason:
            for _ in some:
                yield index, {"error": reason}
                index += 1
            continue
        yield index, None
        gc.collect()
        gc.freeze()  # libraries stay; the garbage of each case is looked for without them
        try:
            for one in kind.measure(some, rig):
                yield index, one.result
                index += 1
                if index < len(cases):
                    yield index, None
        except LostError as error:
            yield index, {"error": str(error)}
            raise


def _threads() -> int:
    import torch

    return int(torch.get_num_threads())


if __name__ == "__main__":
    main()
