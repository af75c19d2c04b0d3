"""The pipeline of a torchtitan job: its schedule, its micro-batches, and what of it is in no plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ledger.spec.imports.torchtitan.job import TorchtitanJob
from ledger.spec.problems import Problem

# Schedules of torch.distributed.pipelining: a plan's word, and stages of a rank where the job does not say.
SCHEDULES: Mapping[str, tuple[str, int]] = {
    "1f1b": ("1f1b", 1),
    "gpipe": ("gpipe", 1),
    "interleaved1f1b": ("interleaved", 2),
    "interleavedzerobubble": ("interleaved", 2),
    "zbvzerobubble": ("zero_bubble", 1),
}
NEAREST = ("interleavedzerobubble", "zbvzerobubble")  # schedules that no plan has: the nearest one is taken, and told


def schedule(job: TorchtitanJob) -> tuple[str, int]:
    """The schedule, and the chunks of layers that a rank has of it."""
    key = job.mesh("pipeline_parallel_schedule")
    known = {name: name for name in SCHEDULES}
    return SCHEDULES[job.choice(key, known, "1f1b", job.word(key, "1F1B").lower())]


def micro_batch(job: TorchtitanJob, local: int) -> int:
    """Sequences of the micro-batches that a pipeline cuts a local batch into."""
    parts = job.whole(job.mesh("pipeline_parallel_microbatches"), 0, least=0)
    return max(local // parts, 1) if parts else job.whole(job.mesh("pipeline_parallel_microbatch_size"), 1)


def pipeline_notes(job: TorchtitanJob) -> Iterator[Problem]:
    """Sizes of a pipeline that the job leaves to its version of torchtitan, or states in a way that no plan has."""
    key = job.mesh("pipeline_parallel_schedule")
    if job.word(key).lower() in NEAREST:
        message = f"`{job.word(key)}` is taken as `{SCHEDULES[job.word(key).lower()][0]}`"
        yield Problem(job.place(key), message, "a plan has no such schedule: what it holds and waits differs")
    sizes = [job.mesh(f"pipeline_parallel_{name}") for name in ("microbatch_size", "microbatches")]
    if not any(key in job.settings for key in sizes):
        message = "the job does not say how a pipeline cuts its batch: a micro-batch is 1 sequence"
        yield Problem(
            job.place(job.mesh("pipeline_parallel_degree")), message, f"`{sizes[0]} = 1`, its default of 2025"
        )
    for name in ("layers_per_stage", "first_stage_less_layers", "last_stage_less_layers"):
        key = job.mesh(f"pipeline_parallel_{name}")
        if job.settings.get(key, 1) not in (0, 1) or (name.startswith("layers") and key in job.settings):
            message = f"`{key}` is not carried over: stages are as even as they can be"
            yield Problem(job.place(key), message, "`parallelism: {stages: [...]}` lists the layers of each stage")
