"""Any plan as one that serves: its model, devices and formats, laid out over the axes that serving has."""

from __future__ import annotations

from dataclasses import replace

from ledger.spec.plan import Lengths, Parallelism, Plan, Serve


def as_served(plan: Plan, serve: Serve) -> Plan:
    """The plan as it would answer; of one that trains, replicas, tensor, pipeline and expert parallelism stay."""
    old = plan.parallelism
    mesh = Parallelism(old.data, old.tensor, old.pipeline, expert=old.expert, stages=old.stages)
    cluster = replace(plan.cluster, devices=mesh.data * mesh.replica)
    longest = serve.prompt.longest + serve.output.longest
    run = replace(plan.run, seq_len=longest, micro_batch=1, global_batch=mesh.data * mesh.pipeline)
    return replace(plan, serve=serve, parallelism=mesh, cluster=cluster, run=run)


def one_prompt(tokens: int) -> Serve:
    """One sequence whose prompt is read in one pass."""
    return Serve(Lengths.alike(tokens), Lengths.alike(1), concurrency=1, chunk=tokens)
