"""One rank of a world that measures collectives; torchrun starts it. Rank 0 prints a line of JSON for each case.

Payloads as the books count them: the output of an all-gather, what the others are given.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from math import ceil
from typing import Any

import torch
from torch import distributed

from ledger.lab.bench.rig import SUSTAINED, timing_record
from ledger.lab.bench.timing import Timing, error_line, quartiles
from ledger.processes import end_with_input

START = timedelta(seconds=60)
SAMPLE = 500e-6  # seconds of one sample, at least
FEWEST, MOST = 5, 200


def operation(what: str, size: int, place: str) -> Callable[[], object]:
    """The call that one rank makes, again and again, for a payload of so many bytes of fp32."""
    ranks, elements = distributed.get_world_size(), size // 4
    full, part = (torch.randn(count, device=place) for count in (elements, elements // ranks))
    if what == "send":
        return lambda: _send_and_return(full)
    calls: Mapping[str, Callable[[], object]] = {
        # a sum, which alone NVLink's switches reduce in fp32 (NCCL, src/include/device.h); it may grow past all numbers
        "all_reduce": lambda: distributed.all_reduce(full, op=distributed.ReduceOp.SUM),
        "all_gather": lambda: distributed.all_gather_into_tensor(full, part),
        "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, full, op=distributed.ReduceOp.SUM),
        "all_to_all": lambda: distributed.all_to_all_single(torch.empty_like(full), full),
    }
    return calls[what]


def _send_and_return(tensor: torch.Tensor) -> None:
    """From the first rank to the second and back: two sends, one after the other."""
    for source in (0, 1):
        if distributed.get_rank() == source:
            distributed.send(tensor, 1 - source)
        else:
            distributed.recv(tensor, source)


def time_calls(run: Callable[[], object], place: str, seconds: float) -> Timing:
    """Seconds of one call, all ranks making equally many."""
    device_ids = None if place == "cpu" else [torch.cuda.current_device()]

    def sample(inner: int) -> float:
        distributed.barrier(device_ids=device_ids)
        _synchronize(place)
        begun = time.perf_counter()
        for _ in range(inner):
            run()
        _synchronize(place)
        return (time.perf_counter() - begun) / inner

    sample(2)
    agreed = torch.full((1,), sample(3), device=place)
    distributed.all_reduce(agreed, op=distributed.ReduceOp.MAX)
    estimate = max(float(agreed), 1e-7)
    inner = ceil(SAMPLE / estimate)
    count = max(FEWEST, min(MOST, int(seconds / (inner * estimate))))
    return quartiles([sample(inner) for _ in range(count)], "host clock around synchronised ranks")


def _synchronize(place: str) -> None:
    if place != "cpu":
        torch.cuda.synchronize()


def measure_collective(record: Mapping[str, Any], place: str, seconds: float) -> dict[str, Any]:
    """The result of a case, or its error, which every rank meets alike."""
    try:
        timing = time_calls(operation(str(record["what"]), int(record["bytes"]), place), place, seconds)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return {"error": error_line(error)}
    return timing_record(timing.divided(2 if record["what"] == "send" else 1), SUSTAINED)


def main(tasks: str, seconds: float) -> None:
    """Measures every case of the file."""
    with open(tasks, encoding="utf-8") as file:  # noqa: PTH123
        records = json.load(file)
    backend = str(records[0]["backend"])
    local = int(os.environ["LOCAL_RANK"])
    place = f"cuda:{local}" if backend == "nccl" else "cpu"
    device = None if place == "cpu" else torch.device(place)
    if device is not None:
        torch.cuda.set_device(device)
    distributed.init_process_group(backend, timeout=START, device_id=device)
    for record in records:
        result = measure_collective(record, place, seconds)
        if distributed.get_rank() == 0:
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
    distributed.destroy_process_group()


if __name__ == "__main__":
    end_with_input()
    main(sys.argv[1], float(sys.argv[2]))
