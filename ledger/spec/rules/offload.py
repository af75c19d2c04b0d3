"""Rules on what lives in host memory."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.optimizer import Optimizer
from ledger.spec.places import Places
from ledger.spec.plan import Accelerator, Cluster, Model, Parallelism, Recompute, Run
from ledger.spec.problems import Problem

OFFLOAD = "parallelism.offload"
LAYERS = f"{OFFLOAD}.activations"
ALL = "`activations: true`, which is all layers"


def host_updates_elements(parallelism: Parallelism, optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """An update that multiplies matrices runs where the matrix units are."""
    if parallelism.updates_on_host and optimizer.newton_schulz is not None:
        message = f"offload of {optimizer.title}: its update multiplies matrices, which is not modelled on the host"
        yield Problem(at(OFFLOAD), message, "leave `offload` out, or an optimizer that works element by element: adamw")


def host_weights_are_gathered(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Weights come from the host share by share, before they are gathered."""
    if "weights" in parallelism.offload and parallelism.zero != 3:
        message = f"offload of weights with zero = {parallelism.zero}: only weights that are gathered come and go"
        yield Problem(at(OFFLOAD), message, "`zero: 3`, or `offload: [optimizer]`")


def drives_are_stated(
    parallelism: Parallelism, cluster: Cluster, accelerator: Accelerator, at: Places
) -> Iterator[Problem]:
    """What is offloaded to drives needs their capacity and their bandwidth."""
    sold = accelerator.host if accelerator.host and accelerator.host.devices == cluster.devices_per_node else None
    host = cluster.host or sold
    if parallelism.offload.nvme and (host is None or host.nvme is None):
        message = "offload of the optimizer to NVMe, but no drives are stated"
        help_text = "`cluster: {host: {nvme: {capacity: 30 TB, read: 50 GB/s, write: 25 GB/s, source: ...}, ...}}`"
        yield Problem(at(OFFLOAD), message, help_text)
    if parallelism.offload.nvme and "weights" in parallelism.offload:
        message = "offload of weights with an optimizer on NVMe is not modelled"
        yield Problem(at(OFFLOAD), message, "leave `weights` out, or `optimizer: true`")


def hosted_layers_are_alike(
    model: Model, parallelism: Parallelism, recompute: Recompute, at: Places
) -> Iterator[Problem]:
    """Layers whose activations leave are the first of each stage, which otherwise treats its layers alike."""
    asked = parallelism.offload.layers
    if not asked or model.bare:
        return
    layers = sum(group.repeat for group in model.groups)
    if asked > layers:
        message = f"offload of the activations of {asked} layers, but the model has {layers}"
        yield Problem(at(LAYERS), message, f"at most {layers}, or {ALL}")
    elif model.order:
        yield Problem(at(LAYERS), "layers are counted, but the model's groups take turns", ALL)
    elif recompute.policy in ("every", "layers", "segment"):
        message = f"layers are counted, but recompute = {recompute.policy} already treats layers differently"
        yield Problem(at(LAYERS), message, f"{ALL}, or a policy for every layer: `full`, `selective`")
    elif parallelism.wrap > 1:
        message = f"layers are counted, but sets of {parallelism.wrap} of them move as one"
        yield Problem(at(LAYERS), message, f"{ALL}, or `wrap: layer`")
    elif parallelism.interleave > 1 and len(model.groups) > 1:
        message = f"layers are counted in each of {parallelism.interleave} chunks, but the model has several groups"
        yield Problem(at(LAYERS), message, f"{ALL}, or `interleave: 1`")


def bare_models_keep_their_states(parallelism: Parallelism, model: Model, at: Places) -> Iterator[Problem]:
    """A parameter count has no layers whose gradients could move."""
    if parallelism.offload and model.bare:
        message = f"offload of {parallelism.offload} with a bare parameter count: nothing moves in it"
        yield Problem(at(OFFLOAD), message, "leave `offload` out, or give the model its layers")


def host_is_stated(
    parallelism: Parallelism, cluster: Cluster, accelerator: Accelerator, at: Places
) -> Iterator[Problem]:
    """What lives on a host needs its memory, and an update there its bandwidth."""
    sold = accelerator.host
    known = cluster.host or (sold and sold.devices == cluster.devices_per_node)
    if parallelism.offload and not known:
        untimed = (
            ", and the update there is taken to cost nothing beside its copies" if parallelism.updates_on_host else ""
        )
        message = f"offload of {parallelism.offload}, but the host is not stated: its memory is not checked{untimed}"
        nodes = f"; `{accelerator.name}` is sold in nodes of {sold.devices}" if sold else ""
        help_text = "`cluster: {host: {memory: 2 TB, bandwidth: 614.4 GB/s, source: ...}}`, of a node" + nodes
        yield Problem(at(OFFLOAD), message, help_text)


def host_sums_wait(parallelism: Parallelism, run: Run, at: Places) -> Iterator[Problem]:
    """A gradient that is added to another in host memory is waited for."""
    several = run.global_batch > run.micro_batch * parallelism.data
    if "weights" in parallelism.offload and several and not parallelism.reduces_once:
        message = "gradients of each micro-batch are added up on the host, so no copy of one hides behind backward"
        yield Problem(at(OFFLOAD), message, "`reduce: step` sends them once, and keeps whole gradients until then")
