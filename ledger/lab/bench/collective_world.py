"""The processes of a world, started by torchrun: they end with the process that asked for them, however that ends."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

from torch.distributed import run

from ledger.processes import when_over


def main(ranks: str, tasks: str, seconds: str) -> None:
    """Measures every case of a file of tasks in so many ranks; in a process group of its own."""
    when_over(partial(os.read, sys.stdin.fileno(), 1), partial(os.killpg, os.getpgrp(), signal.SIGKILL))
    torchrun = ["--standalone", f"--nproc-per-node={ranks}", "-m", "ledger.lab.bench.collective_rank"]
    run.main([*torchrun, tasks, seconds])


if __name__ == "__main__":
    main(*sys.argv[1:])
