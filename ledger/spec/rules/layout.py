"""Rules on layouts: the mesh, sharding and its transfers, host memory, pipelines, and sequences that are cut."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.optimizer import Optimizer
from ledger.spec.parallelism import MULTIPLIED
from ledger.spec.paths import Places, divisors, multiples
from ledger.spec.plan import Accelerator, Cluster, Kernels, Model, Parallelism, Recompute, Run, Serve, Stages
from ledger.spec.problems import Problem
from ledger.spec.stages import chunks, depth, slots


def devices_are_the_product(cluster: Cluster, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Devices = data x tensor x pipeline x context."""
    mesh = parallelism
    replica, axes = mesh.replica, " x ".join(MULTIPLIED)
    if mesh.data * replica != cluster.devices:
        product = f"{' x '.join(f'{getattr(mesh, axis)}' for axis in MULTIPLIED)} = {mesh.data * replica}"
        message = f"{axes} = {product}, but the cluster has {cluster.devices} devices"
        is_multiple = cluster.devices % replica == 0
        help_text = f"{cluster.devices} is no multiple of {axes.removeprefix('data x ')} = {replica}"
        if is_multiple:
            help_text = f"`data: {cluster.devices // replica}` or `devices: {mesh.data * replica}`"
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
        over, parts = "context x tensor" if mesh.context > 1 else "tensor", mesh.context * mesh.tensor
        message = f"seq_len = {run.seq_len} does not split over {over} = {parts} (sequence parallel)"
        yield Problem(at("run.seq_len"), message, multiples(run.seq_len, parts))


def batch_splits(run: Run, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A step is a whole number of micro-batches on every replica."""
    at_once = parallelism.data * run.micro_batch
    if run.global_batch % at_once:
        message = f"global_batch = {run.global_batch} is no multiple of data x micro_batch"
        message += f" = {parallelism.data} x {run.micro_batch} = {at_once}"
        yield Problem(at("run.global_batch"), message, multiples(run.global_batch, at_once))


def zero_needs_replicas(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """ZeRO splits what data-parallel replicas would each hold."""
    if parallelism.zero and parallelism.data * parallelism.context == 1:
        message = f"zero = {parallelism.zero} with no data parallelism: there is nothing to split over"
        yield Problem(at("parallelism.zero"), message, "`zero: 0`, or a `data` of 2 or more")


# --- sharding ---


def groups_multiply(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Hybrid sharding: copies x devices of each copy = data x context."""
    replicas = parallelism.data * parallelism.context
    copies, shard = parallelism.replicate, parallelism.shard
    if shard and copies * shard != replicas:
        message = f"replicate x shard = {copies} x {shard} = {copies * shard}, but data x context = {replicas}"
        fitting = f"`shard: {replicas // copies}`" if replicas % copies == 0 else divisors(replicas)
        yield Problem(at("parallelism.shard"), message, fitting)
    elif replicas % copies:
        message = f"replicate = {copies} does not divide data x context = {replicas}"
        yield Problem(at("parallelism.replicate"), message, divisors(replicas))
    elif copies == replicas > 1:
        message = f"replicate = {copies} leaves one device for each copy, so nothing is split"
        yield Problem(at("parallelism.replicate"), message, "fewer copies, or `zero: 0`")


def copies_are_of_something_split(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Hybrid sharding copies what ZeRO splits."""
    if parallelism.replicate > 1 and not parallelism.zero:
        message = f"replicate = {parallelism.replicate} with zero = 0: nothing is split, so all devices are copies"
        yield Problem(at("parallelism.replicate"), message, "`replicate: 1`, or `zero: 3`")


def gathering_needs_zero_3(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Only weights that are held split are gathered, and freed again."""
    default = Parallelism()
    if parallelism.zero == 3:
        return
    for key, reason in (("reshard", "no weights are gathered"), ("wrap", "no weights move as one")):
        if getattr(parallelism, key) != getattr(default, key):
            message = f"`{key}` with zero = {parallelism.zero}: {reason}"
            yield Problem(at(f"parallelism.{key}"), message, f"leave `{key}` out, or `zero: 3`")


def wraps_are_full(model: Model, parallelism: Parallelism, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """Sets of several layers hold layers of one kind, and every stage holds whole sets."""
    size = parallelism.wrap
    if size < 2 or model.bare:
        return
    where = at("parallelism.wrap")
    if model.order or recompute.policy in ("every", "layers", "segment"):
        reason = "groups take turns" if model.order else "layers are recomputed differently"
        yield Problem(where, f"wrap: {{every: {size}}}, but {reason}, so sets would be unlike", "`wrap: layer`")
        return
    for group in model.groups:
        if group.repeat % size:
            message = f"{group.repeat} layers of `{group.name}` do not divide into sets of {size}"
            yield Problem(where, message, divisors(group.repeat))
    uneven = [layers for layers in chunks(model, parallelism) if layers % size]
    if uneven and not any(group.repeat % size for group in model.groups):
        message = f"the layers of a pipeline stage, {uneven[0]}, do not divide into sets of {size}"
        yield Problem(where, message, divisors(uneven[0]))


def reduction_is_split(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """ZeRO 2 holds no whole gradients, so nothing could wait for the end of a step."""
    if parallelism.reduce == "step" and parallelism.zero == 2:
        message = "reduce: step with zero = 2: gradients that are held split are reduced as they come"
        yield Problem(at("parallelism.reduce"), message, "`reduce: micro_batch`, or `zero: 1` or `3`")


def buckets_are_of_replicas(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Buckets belong to the all-reduce of whole gradients."""
    if parallelism.zero and parallelism.bucket != Parallelism().bucket:
        message = f"bucket with zero = {parallelism.zero}: gradients are reduced set by set"
        yield Problem(at("parallelism.bucket"), message, "leave `bucket` out, or `zero: 0`")


# --- host memory ---

OFFLOAD = "parallelism.offload"
LAYERS = f"{OFFLOAD}.activations"
ALL = "`activations: true`, which is all layers"


def host_updates_elements(parallelism: Parallelism, optimizer: Optimizer, at: Places) -> Iterator[Problem]:
    """An update that multiplies matrices runs where the matrix units are."""
    if parallelism.updates_on_host and optimizer.newton_schulz is not None:
        message = f"offload of {optimizer.title}: its update multiplies matrices, which is not modelled on the host"
        yield Problem(at(OFFLOAD), message, "leave `offload` out, or an optimizer that works element by element: adamw")


def offload_has_another_memory(
    parallelism: Parallelism, optimizer: Optimizer, accelerator: Accelerator, at: Places
) -> Iterator[Problem]:
    """What leaves the memory of a device goes to another one, over the link between the two."""
    moved = {OFFLOAD: f"offload of {parallelism.offload}" if parallelism.offload else "",
             "optimizer": "states that page to the host" if optimizer.pages else ""}  # fmt: skip
    for path, message in moved.items() if not accelerator.has_own_memory else ():
        if message:
            help_text = "leave it out; a device whose memory is not its host's states its `host_link`"
            yield Problem(at(path), f"{message}, but {accelerator.title} and its host have one memory", help_text)


def devices_are_joined(
    accelerator: Accelerator, cluster: Cluster, parallelism: Parallelism, serve: Serve | None, at: Places
) -> Iterator[Problem]:
    """Devices of one node that work together are joined by links of their own, or over their host's."""
    joined = accelerator.scaleup_bandwidth or accelerator.has_own_memory
    several, answer_alone = (
        min(cluster.devices, cluster.devices_per_node),
        serve and parallelism.data == cluster.devices,
    )
    if several > 1 and not joined and not answer_alone:
        message = f"{several} devices of a node, but {accelerator.title} has neither `scaleup` links nor a `host_link`"
        help_text = "`cluster.devices_per_node: 1`, with what joins the nodes, or `accelerator.scaleup`"
        yield Problem(at("cluster.devices_per_node"), message, help_text)


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
    hosted = parallelism.offload.layers
    if not hosted or model.bare:
        return
    layers = sum(group.repeat for group in model.groups)
    if hosted > layers:
        message = f"offload of the activations of {hosted} layers, but the model has {layers}"
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
    is_stated = cluster.host or (sold and sold.devices == cluster.devices_per_node)
    if parallelism.offload and not is_stated:
        message = f"offload of {parallelism.offload}, but the host is not stated: its memory is not checked"
        if parallelism.updates_on_host:
            message += ", and the update there is taken to cost nothing beside its copies"
        nodes = f"; `{accelerator.name}` is sold in nodes of {sold.devices}" if sold else ""
        help_text = "`cluster: {host: {memory: 2 TB, bandwidth: 614.4 GB/s, source: ...}}`, of a node" + nodes
        yield Problem(at(OFFLOAD), message, help_text)


def host_sums_wait(parallelism: Parallelism, run: Run, at: Places) -> Iterator[Problem]:
    """A gradient that is added to another in host memory is waited for."""
    several = run.global_batch > run.micro_batch * parallelism.data
    if "weights" in parallelism.offload and several and not parallelism.reduces_once:
        message = "gradients of each micro-batch are added up on the host, so no copy of one hides behind backward"
        yield Problem(at(OFFLOAD), message, "`reduce: step` sends them once, and keeps whole gradients until then")


# --- pipelines ---

# Schedules in which a device may have other than one chunk of layers: several, or any number.
ONE, SEVERAL, ANY = "one", "several", "any number"
CHUNKS = {"interleaved": SEVERAL, "zero_bubble": ANY}


def layers_fill_the_stages(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """The layers of all chunks are the layers of the model."""
    if model.bare or chunks(model, parallelism):
        return
    stated, layers, count = parallelism.stages, depth(model), slots(parallelism)
    if stated.each:
        yield from _list_problems(stated.each, layers, count, at)
    elif stated.first is not None or stated.last is not None:
        stated_ends = [number for number in (stated.first, stated.last) if number is not None]
        layers_left, inner = layers - sum(stated_ends), count - len(stated_ends)
        ends = " and ".join(map(str, stated_ends))
        message = f"{layers} layers less {ends} at the ends are {layers_left}"
        message += f", which do not split into {inner} equal chunks"
        if layers_left < 0:
            message = f"{ends} layers at the ends are more than the {layers} of the model"
        splits = layers_left > 0 and inner > 0
        help_text = f"of what is left, {multiples(layers_left, inner)}" if splits else "fewer layers at the ends"
        yield Problem(at("parallelism.stages"), message, help_text)
    elif stated.ends == "shared":
        message = f"{layers} layers do not split into pipeline x interleave = {count} equal chunks"
        yield Problem(at("parallelism.pipeline"), message, f"{divisors(layers)}; or `stages`, or `ends: layer`")
    else:
        words = {"layer": f"{layers} layers, and two ends that count as one each,", "own": f"{layers} layers"}
        inner = count if stated.ends == "layer" else count - 2
        message = f"{words[stated.ends]} do not split into {max(0, inner)} equal chunks (ends = {stated.ends})"
        yield Problem(at("parallelism.ends"), message, f"`ends: shared`, or `stages` with {count} numbers of layers")


def _list_problems(listed: tuple[int, ...], layers: int, count: int, at: Places) -> Iterator[Problem]:
    if len(listed) != count:
        message = f"`stages` lists {len(listed)} chunks, but pipeline x interleave = {count}"
        yield Problem(at("parallelism.stages"), message, f"{count} numbers whose sum is {layers}")
    else:
        message = f"`stages` lists {sum(listed)} layers, but the model has {layers}"
        more = layers - sum(listed)
        amount = f"{abs(more)} layer{'s' if abs(more) > 1 else ''}"
        yield Problem(at("parallelism.stages"), message, f"add {amount}" if more > 0 else f"take {amount} away")


def stages_have_layers(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Of a bare parameter count there are no layers to place."""
    if model.bare and parallelism.stages != Stages():
        key = "ends" if parallelism.stages == Stages(ends=parallelism.stages.ends) else "stages"
        message = f"`{key}` of a model of which only a count is known: it has no layers to place"
        yield Problem(at(f"parallelism.{key}"), message, f"leave `{key}` out, or a model with layers")


def stages_are_stated_once(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A list of stages says what the ends hold."""
    stated = parallelism.stages
    if stated.ends != "shared" and stated != Stages(ends=stated.ends):
        message = f"both `stages` and `ends: {stated.ends}` say how many layers the ends hold"
        yield Problem(at("parallelism.ends"), message, "leave one of them out; a stage of 0 layers has an end alone")


def interleave_needs_pipeline(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Interleaving gives a pipeline stage several chunks."""
    if parallelism.interleave > 1 and parallelism.pipeline == 1:
        message = f"interleave = {parallelism.interleave} without a pipeline"
        yield Problem(at("parallelism.interleave"), message, "`interleave: 1`, or a `pipeline` of 2 or more")


def schedule_needs_pipeline(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Without stages there is nothing to order."""
    if parallelism.schedule and parallelism.pipeline == 1:
        message = f"schedule = {parallelism.schedule} without a pipeline"
        yield Problem(at("parallelism.schedule"), message, "leave `schedule` out, or a `pipeline` of 2 or more")


def schedule_fits_the_chunks(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A schedule is for one chunk of layers a device, or for several."""
    name, count = parallelism.scheduled, parallelism.interleave
    allowed = CHUNKS.get(name, ONE)
    if parallelism.pipeline > 1 and allowed != ANY and (count > 1) != (allowed == SEVERAL):
        message = f"schedule = {name} is for {allowed} chunk{'s' if allowed == SEVERAL else ''} of layers a device"
        message += f", and interleave = {count}"
        fitting = ", ".join(f"`{schedule}`" for schedule in CHUNKS) if count > 1 else f"any but `{name}`"
        yield Problem(at("parallelism.schedule"), message, f"with interleave = {count}: {fitting}")


def both_ends_share_the_work(parallelism: Parallelism, run: Run, at: Places) -> Iterator[Problem]:
    """Micro-batches that enter at both ends come in pairs, and so do the stages that a device holds.

    Source: deepseek-ai/DualPipe, dualpipe/dualpipe.py, which asserts both.
    """
    mesh = parallelism
    if mesh.scheduled != "dual_pipe" or mesh.pipeline == 1:
        return
    if mesh.pipeline % 2:
        message = f"schedule = dual_pipe needs an even number of stages, not {mesh.pipeline}"
        yield Problem(at("parallelism.pipeline"), message, multiples(mesh.pipeline, 2))
    count, remainder = divmod(run.global_batch, mesh.data * run.micro_batch)
    if not remainder and (count % 2 or count < 2 * mesh.pipeline):
        message = f"schedule = dual_pipe needs an even number of micro-batches, at least 2 x pipeline, not {count}"
        least = 2 * mesh.pipeline * mesh.data * run.micro_batch
        yield Problem(at("run.global_batch"), message, f"`global_batch: {least}` or more, in steps of 2 micro-batches")


# --- attention over cut sequences ---

# Kernels that hand out the log of each row's sum, by which the results of blocks of keys are put together, and that
# take any number of heads.
FUSED = ("flash", "flash_repeated", "flash3", "efficient", "cudnn", "cudnn_grouped")


def exchange_needs_context(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """What is not cut needs no exchange."""
    if parallelism.context > 1:
        return
    for field, default in (("context_exchange", "all_gather"), ("context_balance", "zigzag")):
        value = getattr(parallelism, field)
        if value != default:
            message = f"{field} = {value} without context parallelism"
            yield Problem(at(f"parallelism.{field}"), message, f"leave `{field}` out, or a `context` of 2 or more")


def exchange_needs_a_fused_kernel(kernels: Kernels, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Blocks of a ring are put together by the sums of their rows, which only fused kernels hand out."""
    exchange = parallelism.context_exchange
    if parallelism.context > 1 and exchange != "all_gather" and kernels.attention not in FUSED:
        message = f"context_exchange = {exchange} cannot run with {kernels.attention} attention"
        help_text = f"`kernels.attention` of {', '.join(FUSED)}; or `context_exchange: all_gather`"
        yield Problem(at("parallelism.context_exchange"), message, help_text)


def rings_see_everything(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Windows and chunks leave blocks of a ring, or ranks in plain order, without work: no framework runs them so."""
    mesh = parallelism
    plain = mesh.context_balance == "none"
    if mesh.context == 1 or not (plain or mesh.context_exchange == "ring"):
        return
    field = "context_exchange" if mesh.context_exchange == "ring" else "context_balance"
    for group in model.groups:
        window, chunk = group.attention.window, group.attention.chunk
        if window is not None or chunk is not None:
            limit = f"window of {window} tokens" if window is not None else f"chunk of {chunk} tokens"
            message = f"{field} = {getattr(mesh, field)}, but layers of `{group.name}` see only a {limit}"
            legal = "`all_gather` or `all_to_all`" if field == "context_exchange" else "`zigzag`"
            yield Problem(at(f"parallelism.{field}"), message, legal)


def heads_split_over_context(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """An all-to-all cuts heads instead of the sequence, within tensor parallelism (Jacobs et al. 2023, 2309.14509)."""
    mesh = parallelism
    if mesh.context == 1 or mesh.context_exchange != "all_to_all":
        return
    parts = mesh.tensor * mesh.context
    for group in model.groups:
        for field in ("heads", "kv_heads"):
            count = getattr(group.attention, field)
            if count % parts and not count % mesh.tensor:
                message = f"{field} = {count} of `{group.name}` does not split over tensor x context = {parts}"
                message += " (context_exchange = all_to_all)"
                heads_per_device = count // mesh.tensor
                help_text = f"{divisors(heads_per_device)}; or `context_exchange: all_gather`"
                yield Problem(at("parallelism.context"), message, help_text)
