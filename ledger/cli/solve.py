"""`ledger solve`: a plan solved for one or several of its inputs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from ledger.cli import completion
from ledger.cli.options import conditions_option, json_option, set_option, spec_argument, total_option
from ledger.cli.progress import cores, progress_bar, search_option

UNSATISFIABLE = 1
KEPT = ("widths", "shape")  # of a model, as ledger/books/what_if/proportions.py has them


@click.command(name="solve")
@spec_argument
@click.option(
    "--for",
    "paths",
    required=True,
    multiple=True,
    metavar="KEY",
    shell_complete=completion.keys,
    help="What to look for, as in run.micro_batch or parallelism.tensor; several: all combinations.",
)
@conditions_option("What must hold, as in 'memory.peak <= 80 GB' or fits (which is the default).")
@total_option("--maximize", "Of all solutions, the one with most of a total.")
@total_option("--minimize", "Of all solutions, the one with least of a total.")
@click.option(
    "--keep",
    default="",
    type=click.Choice(("", *KEPT)),
    metavar="|".join(KEPT),
    help="With a size of the model as KEY: d_model, heads and d_ff stay in proportion to it (widths), or the number of "
    "layers too (shape).",
)
@search_option
@set_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, spec: str, overrides: tuple[str, ...], *, as_json: bool, **asked: Any) -> None:
    """Find the value of KEY that meets conditions.

    KEY is any input of the plan. Of numbers in order (run.micro_batch, run.seq_len, run.global_batch, run.tokens,
    cluster.devices, model.d_model and other sizes of the model, recompute.layers, accelerator.bandwidth, ...) the
    result is the largest, or the smallest where conditions limit it from below.

    Of choices (parallelism.tensor and other degrees, parallelism.zero, schedule, offload, recompute, kernels.attention,
    accelerator, precision, optimizer, stack, ...) every value is tried, and the result is the one with the shortest
    time of a run (of a step, where no tokens are stated), as long as no other objective is named. Degrees keep the
    number of devices: data is what the others leave.

    Of --for model alone it is the largest, and of --for accelerator each device at its own price: whichever does not
    meet the conditions in the plan's layout is tried in the fastest that a quick search finds (not with --no-search).

    Several KEYs are solved for together: every combination is tried, and the best is taken in the same way.

    Exit code 1: no value meets the conditions; what comes nearest is printed.
    """
    from ledger.spec.load import load_plan

    plan = load_plan(spec, overrides)
    from ledger.cli.solve_print import print_solution, record
    from ledger.cli.tables import print_json
    from ledger.search.part_choice import solve
    from ledger.search.workers import in_processes, in_this_process

    named = {name: asked[name] for name in ("maximize", "minimize", "keep")}
    with ExitStack() as stack:
        show = progress_bar(stack, "trying", "combinations")
        run = in_processes(cores()) if cores() > 1 else in_this_process
        found = solve(
            plan,
            asked["paths"],
            asked["conditions"],
            **named,
            note=lambda done, of: show(done, of, of),
            run=run if asked["search"] else None,
        )
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json(record(found))
    else:
        print_solution(found)
    ctx.exit(0 if found.values is not None else UNSATISFIABLE)
