"""Rules on how a plan is laid out over devices."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.axes import MULTIPLIED
from ledger.spec.places import Places, divisors, multiples
from ledger.spec.plan import Cluster, Model, Parallelism, Run, Serve
from ledger.spec.problems import Problem


def devices_are_the_product(cluster: Cluster, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Devices = data x tensor x pipeline x context."""
    mesh = parallelism
    rest, axes = mesh.replica, " x ".join(MULTIPLIED)
    if mesh.data * rest != cluster.devices:
        product = f"{' x '.join(f'{getattr(mesh, axis)}' for axis in MULTIPLIED)} = {mesh.data * rest}"
        message = f"{axes} = {product}, but the cluster has {cluster.devices} devices"
        whole = cluster.devices % rest == 0
        fitting = f"`data: {cluster.devices // rest}` or `devices: {mesh.data * rest}`"
        help_text = fitting if whole else f"{cluster.devices} is no multiple of {axes.removeprefix('data x ')} = {rest}"
        yield Problem(at("parallelism.data"), message, help_text)


def nodes_are_whole(cluster: Cluster, at: Places) -> Iterator[Problem]:
    """A job has whole nodes, or a part of one."""
    if cluster.devices > cluster.devices_per_node and cluster.devices % cluster.devices_per_node:
        message = f"{cluster.devices} devices are no whole number of nodes of {cluster.devices_per_node}"
        yield Problem(at("cluster.devices"), message, multiples(cluster.devices, cluster.devices_per_node))


def pods_hold_whole_nodes(cluster: Cluster, at: Places) -> Iterator[Problem]:
    """A pod is nodes."""
    if cluster.pod % cluster.devices_per_node:
        message = f"scaleout.pod = {cluster.pod} is no whole number of nodes of {cluster.devices_per_node}"
        yield Problem(at("cluster.scaleout.pod"), message, multiples(cluster.pod, cluster.devices_per_node))


def pods_share_uplinks(cluster: Cluster, at: Places) -> Iterator[Problem]:
    """A ratio is of pods, and pods have one."""
    if cluster.oversubscription > 1 and not cluster.pod:
        message = "scaleout.oversubscription has no effect: no `pod` says which devices share uplinks"
        yield Problem(at("cluster.scaleout.oversubscription"), message, "`pod: 3072`, the devices of one")
    if cluster.pod and cluster.oversubscription == 1:
        message = "scaleout.pod has no effect: as much leaves a pod as its cards send"
        yield Problem(at("cluster.scaleout.pod"), message, "`oversubscription: 7`, for 1:7")


def heads_split(model: Model, parallelism: Parallelism, serve: Serve | None, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device whole query heads and whole key-value heads; of services, or a copy."""
    axis, parts = parallelism.cutting("heads")
    for group in model.groups:
        for field, count in group.attention.heads_over(parts, copies=serve is not None).items():
            if count % parts:
                message = f"{field} = {count} of `{group.name}` does not split over {axis} = {parts}"
                yield Problem(at(f"parallelism.{axis}"), message, divisors(count))


def hidden_splits(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device an equal part of the MLP's hidden layer."""
    axis, parts = parallelism.cutting("d_ff")
    for group in model.groups:
        if group.mlp.d_ff % parts:
            message = f"d_ff = {group.mlp.d_ff} of `{group.name}` does not split over {axis} = {parts}"
            yield Problem(at(f"parallelism.{axis}"), message, divisors(group.mlp.d_ff))


def vocabulary_splits(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Tensor parallelism gives every device equal rows of the embedding; frameworks pad the vocabulary to get there."""
    axis, parts = parallelism.cutting("vocab")
    if model.vocab % parts:
        padded = -(-model.vocab // (128 * parts)) * 128 * parts
        message = f"vocab = {model.vocab} does not split over {axis} = {parts}"
        help_text = f"frameworks pad it: `--set model.vocab={padded}` (Megatron-LM's multiple of 128 x {axis})"
        yield Problem(at(f"parallelism.{axis}"), message, help_text)


def sequence_needs_tensor(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Sequence parallelism splits what tensor parallelism leaves whole, over the same devices."""
    if parallelism.sequence != "off" and parallelism.tensor == 1:
        message = f"sequence = {parallelism.sequence} without tensor parallelism"
        yield Problem(at("parallelism.sequence"), message, "`sequence: off`, or a `tensor` of 2 or more")


def sequence_splits(run: Run, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Context parallelism, and sequence parallelism within it, give every device equal parts of a sequence."""
    mesh = parallelism
    if run.seq_len % mesh.context:
        message = f"seq_len = {run.seq_len} does not split over context = {mesh.context}"
        yield Problem(at("run.seq_len"), message, multiples(run.seq_len, mesh.context))
    elif mesh.sequence != "off" and run.seq_len % (mesh.context * mesh.tensor):
        over = "context x tensor" if mesh.context > 1 else "tensor"
        message = (
            f"seq_len = {run.seq_len} does not split over {over} = {mesh.context * mesh.tensor} (sequence parallel)"
        )
        yield Problem(at("run.seq_len"), message, multiples(run.seq_len, mesh.context * mesh.tensor))


def batch_splits(run: Run, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A step is a whole number of micro-batches on every replica."""
    at_once = parallelism.data * run.micro_batch
    if run.global_batch % at_once:
        message = (
            f"global_batch = {run.global_batch} is no multiple of data x micro_batch"
            f" = {parallelism.data} x {run.micro_batch} = {at_once}"
        )
        yield Problem(at("run.global_batch"), message, multiples(run.global_batch, at_once))


def zero_needs_replicas(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """ZeRO splits what data-parallel replicas would each hold."""
    if parallelism.zero and parallelism.data * parallelism.context == 1:
        message = f"zero = {parallelism.zero} with no data parallelism: there is nothing to split over"
        yield Problem(at("parallelism.zero"), message, "`zero: 0`, or a `data` of 2 or more")
