"""The processes of a world, started by torchrun; they end when the standard input does that they were started with."""

from __future__ import annotations

import sys

from torch.distributed import run

from ledger.processes import end_with_input


def main(ranks: str, tasks: str, seconds: str) -> None:
    """Measures every case of a file of tasks in so many ranks, to which torchrun gives sessions of their own."""
    end_with_input()
    torchrun = ["--standalone", f"--nproc-per-node={ranks}", "-m", "ledger.lab.bench.collective_rank"]
    run.main([*torchrun, tasks, seconds])


if __name__ == "__main__":
    main(*sys.argv[1:])
