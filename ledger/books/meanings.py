"""The meaning of a total of a plan, and what the inputs that it names are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ledger.books.compiled import Compiled
from ledger.books.serving.memory import CATEGORIES
from ledger.model import dtypes
from ledger.spec.operations import PAID, Operations
from ledger.spec.paths import plan_path
from ledger.spec.plan import Overlap, Plan

IMPLIED = {"parallelism.expert_data": "parallelism.expert"}  # an axis whose degree follows from another's
# Where none is stated, what follows.
FOLLOWING = {
    "parallelism.schedule": "parallelism.scheduled",
    "cluster.host.bandwidth": "host.bandwidth",
    "cluster.host.memory": "host.memory",
    "cluster.host.nvme": "host.nvme",
    "cluster.host.nvme.capacity": "host.nvme.capacity",
}


def meanings(plan: Plan, key: str) -> list[Meaning]:
    """The rows of a key, its parts filled in."""
    return [
        _with_parts(row, match.groupdict(), plan)
        for row in (SERVED if plan.serve else MEANINGS)
        if row.bare in {None, plan.model.bare} and (match := _pattern(row.key).fullmatch(key))
    ]


def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<(\w+)>", r"(?P<\1>[^.]+)", key.replace(".", r"\.")))


def _with_parts(row: Meaning, parts: Mapping[str, str], plan: Plan) -> Meaning:
    names = {**parts, "rate": dtypes.rate(plan.precision.multiplies)}

    def filled(text: str) -> str:
        return re.sub(r"<(\w+)>", lambda match: names[match[1]], text)

    inputs = tuple(IMPLIED.get(name, name) for name in map(filled, row.inputs))
    return Meaning(filled(row.key), filled(row.formula), row.basis, inputs, row.exact, row.bare)


def value_of_input(compiled: Compiled, name: str) -> Any:
    """The total or the plan's value that an input names, None of a part that is not stated; KeyError for no input."""
    if name in compiled.totals:
        return compiled.totals[name]
    value: Any = compiled.plan
    for part in FOLLOWING.get(name, plan_path(name)).split("."):
        if value is None:
            return None
        if isinstance(value, Mapping):
            value = value[part]
        elif hasattr(value, part):
            value = getattr(value, part)
        else:
            raise KeyError(part)
    return value


# --- the formula and the rule behind each key of `totals` ---


@dataclass(frozen=True)
class Meaning:
    """A row: `key` may hold `<parts>`, which `formula` and `inputs` may repeat; `<rate>` is the matmul dtype's peak.

    An `exact` formula is arithmetic over its inputs. `bare` rows hold of a parameter count alone, or else never of it.
    """

    key: str
    formula: str
    basis: str
    inputs: tuple[str, ...] = ()
    exact: bool = False
    bare: bool | None = None


PEAK = "model FLOPs over what all devices could do at the dense peak of the matmul dtype in the time of a step"
CHOWDHERY = "Chowdhery et al. 2022 (PaLM), appendix B: model FLOPs only, attention without its causal mask"
RAJBHANDARI = "Rajbhandari et al. 2020 (ZeRO), section 3.1: state is bytes per parameter, split as the ZeRO stage says"
KAPLAN = "Kaplan et al. 2020, section 2.1: 6 FLOPs a parameter and token, forward and backward"
LIFETIMES = "every stock with its lifetime; a role's peak is the fullest moment, and the worst role is reported"
SLOWEST = "the slowest role sets the pace"
DEVICE_TIME = "time.step * cluster.devices * accelerator.peak.<rate>"
STEPS = "ceil(run.tokens / (run.global_batch * run.seq_len))"
BATCH = ("run.tokens", "run.global_batch", "run.seq_len")
AVAILABLE = ("time.step", "cluster.devices", "accelerator.peak.<rate>")
SHAPE = ("run.micro_batch", "run.seq_len")
JOB = ("run.global_batch", "run.seq_len")
OVERLAP = tuple(f"stack.overlap.{kind}" for kind in vars(Overlap()))
STATE = "accelerator.memory.labelled * cluster.devices // "
STATE += "(bytes(precision.weights) + bytes(precision.gradients) + bytes(precision.master)"
STATE += " + states(optimizer.name))"
FORMATS = ("precision.weights", "precision.gradients", "precision.master", "precision.states", "optimizer.name")
CHECKPOINT = "checkpoint.bytes"
YOUNG = "Young 1974: saving, and at each failure a restart and half an interval of lost work, on average"
OPERATED = ("cluster.devices", *(f"operations.{field.name}" for field in fields(Operations) if field.name not in PAID))
POWER = ("cluster.devices", "accelerator.power", "assumptions.power_usage_effectiveness")
PRICE = ("cluster.devices", "assumptions.price.per_device_hour")
CALENDAR = (
    "(run + warm_up) / (utilisation x (1 - checkpoint.time / checkpoint.interval"
    " - evaluation_time / evaluation_interval"
    " - failure_rate x devices x (restart_time + min(checkpoint.interval, run) / 2 + checkpoint.writing)))"
)
CALENDAR += "; the run itself where nothing is stated; of the time that the job runs, a thousandth trains at least"
DOLLARS = "cluster.devices * assumptions.price.per_device_hour / 3600 * "

MEANINGS: tuple[Meaning, ...] = (
    Meaning("parameters", "elements of all weights, each storage once", "tied weights are one storage", ("model",)),
    Meaning("parameters.active", "parameters, of experts top_k / experts of them",
            "a token uses every parameter but those of experts that it is not sent to", ("parameters", "model")),
    Meaning("parameters.trainable", "elements of the weights that have a gradient, adapters among them",
            "what `train` names: all weights, where nothing is said", ("model", "train")),
    Meaning("parameters.adapters", "elements of low-rank adapters", "Hu et al. 2021: two factors beside each matrix",
            ("train.lora.rank", "train.lora.targets")),
    Meaning("parameters.base", "parameters - parameters.adapters", "the model that is adapted, which a model's file"
            " states", ("parameters", "parameters.adapters"), exact=True),
    Meaning("parameters.base.active", "parameters.active - parameters.adapters", "adapters are beside matrices that"
            " every token uses", ("parameters.active", "parameters.adapters"), exact=True),
    Meaning("parameters.per_device", "elements of weights that one device holds, at most over roles", RAJBHANDARI,
            ("parameters", "parallelism.tensor", "parallelism.pipeline", "parallelism.zero", "parallelism.data")),
    Meaning("flops.forward", "sum over roles of devices x matmul FLOPs of the forward pass in a step",
            "2mkn a product of m x k and k x n; causal masks at their exact density", ("flops.counter.forward", *JOB)),
    Meaning("flops.backward", "sum over roles of devices x matmul FLOPs of the backward pass in a step",
            "two products for each of forward: the gradients of the input and of the weight, where each has one",
            ("flops.forward",)),
    Meaning("flops.recompute", "sum over roles of devices x matmul FLOPs that are run again before backward",
            "Chen et al. 2016: what is not kept is rebuilt; where nothing is asked for,"
            " backward of flash attention still rebuilds the scores (Dao et al. 2022)",
            ("flops.forward", "recompute.policy")),
    Meaning("flops.model", "flops.forward + flops.backward", "what the model needs, without recomputation",
            ("flops.forward", "flops.backward"), exact=True),
    Meaning("flops.step", "flops.forward + flops.backward + flops.recompute", "what the devices do in a step",
            ("flops.forward", "flops.backward", "flops.recompute"), exact=True),
    Meaning("flops.run", f"flops.step * {STEPS}", "whole steps; the last one may be short",
            ("flops.step", *BATCH), exact=True),
    Meaning("flops.update", "sum over devices of matmul FLOPs of the optimizer's update", "5 iterations of 3 products"
            " a matrix (Jordan et al. 2024, Muon); no part of flops.step", ("optimizer.name",)),
    Meaning("flops.unmasked", "matmul FLOPs of one micro-batch's forward pass, a query attending to min(run.seq_len,"
            " window) keys", "Chowdhery et al. 2022 (PaLM), appendix B, leaves out the causal mask and no more: a layer"
            " with a window, or chunks, counts those keys", (*SHAPE, "model")),
    Meaning("flops.counter.forward", "matmul FLOPs of one micro-batch, unsharded and unmasked",
            "as torch.utils.flop_counter counts: attention in full, whatever its mask", SHAPE),
    Meaning("flops.counter.step", "flops.counter.forward + those of backward, which attention kernels enlarge",
            "as torch.utils.flop_counter counts: flash attention's backward is 2.5 of its forward",
            ("flops.counter.forward", *SHAPE)),
    Meaning("saved.per_layer.<group>", "bytes that one layer of <group> saves for backward, each storage once",
            "as torch.autograd.graph.saved_tensors_hooks sees them; unsharded, no recompute", SHAPE),
    Meaning("saved.per_layer.<group>.first", "bytes that the first layer of <group> saves, each storage once",
            "as saved.per_layer.<group>, where it makes what the others are given, or is given less", SHAPE),
    Meaning("saved.total", "sum over groups of layers x saved bytes + those of input, output and loss",
            "as torch.autograd.graph.saved_tensors_hooks sees them; tables that layers share count once", SHAPE),
    Meaning("napkin.max_parameters", STATE, "state bytes only, all devices, everything sharded, labelled"
            " capacity, whatever the ZeRO stage of the plan (Rajbhandari et al. 2020, section 3.1)",
            ("accelerator.memory.labelled", "cluster.devices", *FORMATS), exact=True),
    Meaning("napkin.flops.token", "6 x trained + 4 x frozen that gradients pass + 2 x other parameters of a token",
            f"{KAPLAN}; a frozen weight has no gradient of its own, and one that nothing trained comes before, none; "
            "weights of an encoder x run.source_len / run.seq_len",
            ("parameters.active", "parameters.trainable")),
    Meaning("napkin.flops.run", "napkin.flops.token * run.tokens", KAPLAN, ("napkin.flops.token", "run.tokens"),
            exact=True),
    Meaning("napkin.time.run", "napkin.flops.run / (cluster.devices * accelerator.peak.<rate> * assumptions.mfu)",
            f"{KAPLAN}; at an assumed MFU",
            ("napkin.flops.run", "cluster.devices", "accelerator.peak.<rate>", "assumptions.mfu"), exact=True),
    Meaning("napkin.days", "napkin.time.run / 86400", "seconds of a day", ("napkin.time.run",), exact=True),
    *(Meaning(f"memory.static.{part}", f"elements held x bytes(precision.{kind}){copies}, on the worst role",
              RAJBHANDARI, ("parameters.per_device", f"precision.{kind}", "parallelism.zero", *more))
      for part, kind, copies, more in (
          ("weights", "weights", ", with scales and with copies of a matmul recipe", ()), ("master", "master", "", ()),
          ("gradients", "gradients", "", ()), ("optimizer", "states", "", ("optimizer.name",)))),
    *(Meaning(f"memory.{part}", f"bytes of {tensors} alive at the peak moment of the worst role", LIFETIMES, inputs)
      for part, tensors, inputs in (
          ("weights", "weights and their quantised copies", ("memory.static.weights",)),
          ("master", "master weights", ("memory.static.master",)),
          ("gradients", "gradients", ("memory.static.gradients",)),
          ("optimizer", "optimizer state", ("memory.static.optimizer",)),
          ("activations", "activations, of all micro-batches in flight,", (*SHAPE, "recompute.policy")),
          ("logits", "logits and their gradients", (*SHAPE, "model.vocab", "precision.logits")),
          ("workspace", "temporaries of kernels and of the update", ("kernels.optimizer",)),
          ("unsharded", "gathered weights and gradients to reduce", ("parallelism.zero", "precision.compute")))),
    Meaning("memory.peak", "memory.weights + memory.master + memory.gradients + memory.optimizer"
            " + memory.activations + memory.logits + memory.workspace + memory.unsharded", LIFETIMES,
            tuple(f"memory.{part}" for part in ("weights", "master", "gradients", "optimizer", "activations",
                                                "logits", "workspace", "unsharded")), exact=True),
    Meaning("memory.reserved", "(memory.peak + workspaces) x fragmentation + context, of the role that needs most",
            "what the driver reports, rounded down: tensors and workspaces of kernels in the allocator's pool, and the"
            " CUDA context and libraries outside it",
            ("memory.peak", "accelerator.matmul_workspace", "kernels.attention", "stack.allocator.fragmentation",
             "stack.allocator.context")),
    *(Meaning(f"memory.reserved.{end}", f"memory.reserved x what all but a tenth of published runs {words} over it",
              "runs of the memory that tools print, each publication left out in turn (`make coverage`)",
              ("memory.reserved",))
      for end, words in (("low", "exceeded"), ("high", "stayed below"))),
    Meaning("memory.host",
            "devices of a node x bytes that host memory holds for one: weights, gradients, states, activations, batches"
            " that workers have ready; and the checkpoint that is being written",
            "Ren et al. 2021 (ZeRO-Offload): the host holds what its update reads and writes, and what layers save for"
            " backward where that leaves, for the role with most",
            ("parallelism.offload", "cluster.devices_per_node", *SHAPE, *FORMATS)),
    Meaning("memory.nvme", "devices of a node x bytes on its drives for one: master weights, gradients, states",
            "Rajbhandari et al. 2021 (ZeRO-Infinity)", ("parallelism.offload", "cluster.devices_per_node", *FORMATS)),
    Meaning("memory.nvme.capacity", "cluster.host.nvme.capacity", "of all drives of a node",
            ("cluster.host.nvme.capacity",)),
    Meaning("traffic.nvme.<direction>", "bytes that a step moves to or from drives for one device",
            "DeepSpeed, partitioned_optimizer_swapper.py: gradients, weights and states once each way",
            ("parallelism.offload", *FORMATS)),
    Meaning("memory.paged", "bytes of optimizer states in unified memory, for the device with most",
            "bitsandbytes' paged optimizers, optim/optimizer.py: tensors of 100,000 elements and more, which PyTorch's"
            " allocator does not count, and which page to the host where a device is full", ("optimizer.name",)),
    Meaning("memory.host.capacity", "cluster.host.memory", "of a node, or of the node that its accelerator is sold in;"
            " absent where neither is stated", ("cluster.host.memory",)),
    Meaning("memory.capacity", "accelerator.memory.driver", "memory as the driver reports it, not as the label says",
            ("accelerator.memory.driver",), exact=True),
    Meaning("kv_cache", "width x layers x run.micro_batch x min(run.seq_len, window) x bytes of an element; width = 2 x"
            " kv_heads x head_dim, kv_rank + rope_head_dim where attention is latent, or what is read as `key` where"
            " that is written out; and one state of each recurrence, and what a window over tokens still reads",
            "keys and values of all layers, or their latents, of full sequences, in the dtype that matmuls write,"
            " states in theirs; a layer with a window, or chunks, keeps those positions only", (*SHAPE, "model")),
    Meaning("comm.<collective>.<axis>.bytes", "sum of the bytes one device gives to <collective> over <axis> in a step",
            "of the role that moves most; Rajbhandari et al. 2020 (data), Korthikanti et al. 2022 (tensor)",
            ("parallelism.<axis>", *SHAPE)),
    Meaning("comm.<collective>.<axis>.count", "calls of <collective> over <axis> by one device in a step",
            "of the role that calls most", ("parallelism.<axis>", "run.global_batch", "run.micro_batch")),
    Meaning("host_link.<direction>.bytes", "bytes that one device moves over its link to the host in a step,"
            " <direction>", "gradients go down and updated weights come up, each once a step;"
            " weights on the host come up before each gather, and activations go down and come back each micro-batch",
            ("parallelism.offload", "precision.weights", "precision.gradients", *SHAPE)),
    Meaning("traffic.batch", "bytes of its micro-batches that one device gets from its host in a step",
            "ids of tokens and labels in int64, a sequence's share where it is cut; pixels in fp32; positions and masks"
            " are made on the device", ("run.global_batch", "run.micro_batch", "run.seq_len")),
    Meaning("traffic.storage", "bytes of storage that the micro-batches of one device are, in a step",
            "data.token x tokens or data.sample x samples; the devices of a replica read them once together",
            ("data.token", "data.sample", *JOB)),
    Meaning("time.data", "the largest of samples / rates of storage and workers, and bytes / accelerator.host_link;"
            " their sum with prefetch: 0", "all samples of a step from data.bandwidth, those of a replica from the"
            " workers of a device, the batch of a device over its link, each ahead of its step",
            ("traffic.storage", "data.bandwidth", "data.workers", "data.rate", "data.prefetch", "run.global_batch",
             "parallelism.data")),
    Meaning("time.data.wait", "max(0, time.data - the step without data); time.data with prefetch: 0",
            "a batch is ready when the step before is over, or late by what that one does not hide", ("time.data",)),
    Meaning("traffic.host", "bytes that the update of one device's share reads and writes in host memory in a step",
            "each gradient is read once, each weight and state read and written, at the device's share of the bandwidth"
            " of its host", ("parallelism.offload", *FORMATS)),
    Meaning("time.host", "traffic.host x devices of a node / (cluster.host.bandwidth x cluster.host.efficiency)",
            "what the host works in its own memory in a step: updates, and sums of gradients, hidden or not; absent"
            " where no host is stated", ("traffic.host", "cluster.host.bandwidth", "cluster.devices_per_node")),
    Meaning("traffic.step", "bytes all kernels of one device read from and write to memory in a step",
            "each operand is read once and each result written once; the busiest role", SHAPE),
    Meaning("time.floor", "the largest of matmul FLOPs / peak, bytes / bandwidth, and bytes sent / line rate",
            "every resource busy all the time and perfectly overlapped, at the data sheet's prices",
            ("accelerator.peak.<rate>", "accelerator.bandwidth", "traffic.step")),
    Meaning("time.roofline", "sum over kernels of max(FLOPs / peak, bytes / bandwidth), or transfers if more",
            "Williams et al. 2009: each kernel at its own bound, by data sheet",
            ("accelerator.peak.<rate>", "accelerator.bandwidth")),
    Meaning("time.step", "time of all kernels + transfers not hidden + compute slowed beside hidden ones"
            " + waiting for launches + bubble + optimizer + waiting for data",
            f"{SLOWEST}; kernels by measured curves where there are any",
            ("time.exposed", "time.bubble", "time.optimizer")),
    Meaning("time.step.low", "time.step less what all but a tenth of published runs took less, not below time.roofline",
            "runs by what is known of the stack, each publication left out in turn (`make coverage`); a wait for data"
            " has no spread", ("time.step",)),
    Meaning("time.step.high", "time.step and what all but a tenth of published runs took more",
            "as time.step.low; prices of data sheets widen both", ("time.step",)),
    Meaning("time.serial", "all kernels, transfers, launches, bubble and optimizer, one after another",
            "nothing is hidden", ("time.comm", "time.bubble", "time.optimizer")),
    Meaning("time.compute", "sum over kernels of both passes of time x times in a step", SLOWEST, JOB),
    Meaning("time.comm", "sum over transfers of time x times in a step, hidden or not", SLOWEST,
            ("accelerator.scaleup.bandwidth", "cluster.scaleout.bandwidth", "accelerator.host_link")),
    Meaning("time.exposed", "the part of time.comm that nothing hides", "the stack's rules of overlap, kind by kind",
            ("time.comm", *OVERLAP)),
    Meaning("time.bubble", "what the slowest device waits while the others fill and drain the pipeline",
            "the order of forward, input-gradient and weight-gradient work of parallelism.schedule",
            ("parallelism.schedule", "parallelism.pipeline", "parallelism.interleave")),
    Meaning("time.optimizer", "sum over kernels of the update, of the role that takes longest",
            "the update streams state through memory", ("memory.static.optimizer", "accelerator.bandwidth")),
    *(Meaning(key, f"per cent of time.step that one per cent {change} buys",
              "repriced under closed books, where a hidden transfer counts if it lasts longer than what hides it: what"
              " the step waits for, the largest of which is the verdict's limit", ("time.step", *inputs))
      for key, change, inputs in (
          ("pace.matmul", "more of every matmul peak", ("accelerator.peak.<rate>",)),
          ("pace.memory", "more memory bandwidth", ("accelerator.bandwidth",)),
          ("pace.scaleup", "more bandwidth within a node", ("accelerator.scaleup.bandwidth",)),
          ("pace.scaleout", "more bandwidth between nodes", ("cluster.scaleout.bandwidth",)),
          ("pace.host", "more bandwidth of the link to the host", ("accelerator.host_link",)),
          ("pace.host_memory", "more bandwidth of host memory", ("cluster.host.bandwidth",)),
          ("pace.nvme", "more bandwidth of drives", ("cluster.host.nvme",)),
          ("pace.data", "more of storage's bandwidth and of what workers prepare", ("data.bandwidth", "data.rate")),
          ("pace.launch", "less time of a launch", ("stack.launch.per_operation",)))),
    Meaning("pace.fixed", "1 - (pace.matmul + pace.memory + pace.scaleup + pace.scaleout + pace.host"
            " + pace.host_memory + pace.nvme + pace.data + pace.launch)",
            "what no rate buys: starts of kernels and of transfers, latencies",
            tuple(f"pace.{part}" for part in ("matmul", "memory", "scaleup", "scaleout", "host", "host_memory", "nvme",
                                         "data", "launch")), True),
    Meaning("tokens_per_second", "run.global_batch * run.seq_len / time.step", "tokens of a step over its time",
            (*JOB, "time.step"), exact=True),
    Meaning("tokens_per_second_per_device", "tokens_per_second / cluster.devices", "an even share",
            ("tokens_per_second", "cluster.devices"), exact=True),
    Meaning("images_per_second", "run.global_batch / time.step", "a sequence is an image",
            ("run.global_batch", "time.step"), exact=True),
    Meaning("mfu", "flops.unmasked * flops.model / flops.forward * run.global_batch"
            f" / (run.micro_batch * {DEVICE_TIME})", f"{CHOWDHERY}; model over forward FLOPs is 3 where all is trained;"
            " unlike hfu and mfu.causal it counts scores that the mask throws away, so it can exceed hfu",
            ("flops.unmasked", "flops.model", "flops.forward", "run.global_batch", "run.micro_batch",
             *AVAILABLE), exact=True),
    Meaning("mfu.causal", f"flops.model / ({DEVICE_TIME})",
            f"{PEAK}; causal masks at their exact density", ("flops.model", *AVAILABLE), exact=True),
    Meaning("hfu", f"flops.step / ({DEVICE_TIME})", "Korthikanti et al. 2022: hardware FLOPs, recomputation included",
            ("flops.step", *AVAILABLE), exact=True),
    Meaning("prefill.time", "forward time of one micro-batch through all stages", "kernels as in training", SHAPE),
    Meaning("decode.time_per_token", "(weights that a micro-batch reaches + kv_cache) /"
            " (parallelism.tensor x share of bandwidth reached x accelerator.bandwidth)",
            "Pope et al. 2022: weights are read once for all sequences, of X experts X (1 - (1 - T / X)^sequences), and"
            " the cache of each", ("run.micro_batch", "precision.weights", "kv_cache", "parallelism.tensor",
                                  "accelerator.bandwidth")),
    Meaning("checkpoint.bytes", "sum over trained weights of (master copy, else the weight as it is stored) + states",
            "what cannot be made again, once in the whole job, whatever the layout: a master copy stands for weights"
            " made of it, which Megatron-LM and DeepSpeed save beside it; without one (pure bf16, fp8) the weights"
            " themselves are saved, those that are held quantised alone as wide as they are stored",
            ("parameters.trainable", "precision.master", "precision.weights", "precision.states", "optimizer.name")),
    Meaning("checkpoint.interval", "as stated; `best`: sqrt(2 x checkpoint.time / (failure_rate x devices))", YOUNG,
            ("operations.checkpoint_interval", "cluster.devices")),
    Meaning("checkpoint.time", "as stated, else checkpoint.bytes / storage_bandwidth; of one that is written beside"
            " training checkpoint.bytes / devices / accelerator.host_link",
            "for which a checkpoint stops the run", ("operations.checkpoint_cost", "operations.storage_bandwidth",
                                                    "operations.checkpoint_async", CHECKPOINT)),
    Meaning("checkpoint.writing", "checkpoint.bytes / storage_bandwidth, beside training", "a failure meanwhile finds"
            " the checkpoint before", ("operations.storage_bandwidth", CHECKPOINT)),
    Meaning("checkpoint.host", "checkpoint.bytes x devices of a host / cluster.devices", "each device copies an even"
            " share of the checkpoint to its host, which keeps it until storage has it (torch.distributed.checkpoint,"
            " async_save)", (CHECKPOINT, "cluster.devices", "cluster.devices_per_node")),
    Meaning("goodput", "time.run / time.calendar", "the share of the calendar that trains; of a plan without tokens,"
            " that after warm-up", OPERATED),
    Meaning("time.run", f"time.step * {STEPS}", "whole steps", ("time.step", *BATCH), exact=True),
    Meaning("time.calendar", CALENDAR, "of time.run; " + YOUNG, (*OPERATED, "time.run"), bare=False),
    Meaning("time.calendar", CALENDAR, "of napkin.time.run; " + YOUNG, (*OPERATED, "napkin.time.run"), bare=True),
    Meaning("time.calendar.<end>", "time.calendar of a step of time.step.<end>", "the ends of a step, carried through",
            ("time.step.<end>", "time.calendar"), bare=False),
    Meaning("cost.run", f"{DOLLARS}time.calendar", "the price of a device's hour", (*PRICE, "time.calendar"), True),
    Meaning("cost.run.<end>", f"{DOLLARS}time.calendar.<end>", "the ends of a step, carried through",
            (*PRICE, "time.calendar.<end>"), True, bare=False),
    Meaning("energy.run", "devices x power of a device, measured where it is stated, else rated"
            " x power_usage_effectiveness x time.calendar", "devices draw as much all the time, times site power over"
            " device power", (*POWER, "operations.power", "time.calendar")),
    Meaning("carbon.run", "energy.run * operations.grid_intensity", "what the grid gives off for the energy",
            ("energy.run", "operations.grid_intensity"), True),
)  # fmt: skip


# --- the formula and the rule behind each key of a plan that serves ---

SHARED = ("parameters", "parameters.active", "memory.capacity")  # rows that hold of serving as they are
LENGTHS = ("serve.prompt", "serve.output", "serve.prefix")
LAYOUT = ("parallelism.data", "parallelism.tensor", "parallelism.pipeline", "parallelism.expert")
POPE = "Pope et al. 2022, arXiv 2211.05102: weights once for all sequences of a pass, the cache of each"
ROOF = "kernels of decoding by data sheet where no curve was measured, all others by their curves"
STEADY = (
    "in a steady state an engine decodes its sequences and takes one chunk of a prompt in a step (Agrawal et al. 2024,"
    " arXiv 2403.02310); each sequence finds the others as they are on average (Reiser and Lavenberg 1980)"
)
REACHED = "of X experts, T of which a token uses, X (1 - (1 - T / X)^tokens) are reached"

SERVED: tuple[Meaning, ...] = (
    *(row for row in MEANINGS if row.key in SHARED),
    Meaning("parameters.per_device", "elements of weights that one device holds, at most over roles",
            "replicas hold all of the model; tensor, pipeline and expert parallelism divide it", LAYOUT),
    Meaning("flops.prefill", "matmul FLOPs of one prompt, shared prefix left out",
            "2mkn a product; causal masks, windows and chunks at their exact density",
            ("serve.prompt", "serve.prefix")),
    Meaning("flops.decode", "matmul FLOPs of one token that is decoded, on average over an output",
            "2mkn a product; what the token attends to is what waits in the cache", ("serve.prompt", "serve.output")),
    Meaning("flops.<pass>.dense", "with products of weights that are zero, which sparse tensor cores leave out",
            "2:4: every second product (NVIDIA A100 Tensor Core GPU Architecture, 2020)", ("flops.<pass>",)),
    Meaning("memory.static.weights", "elements held x bytes of their formats, with scales",
            "each storage once, on the fullest device", ("parameters.per_device", "precision.weights")),
    Meaning("memory.weights", "memory.static.weights", "they are there all the time", ("memory.static.weights",), True),
    Meaning("memory.cache", "the cache at the fullest moment", "outputs of all sequences are whole then; where"
            " lengths are a distribution, each is as long as they are on average",
            ("serve.cache.per_device",)),
    Meaning("memory.activations", "what the largest operation of a pass reads and writes, and the stream beside it",
            "a chunk of a prompt and one token of each sequence", ("serve.chunk", "serve.concurrency")),
    Meaning("memory.logits", "scores of the next tokens, where they make the fullest moment",
            "one row of the vocabulary for each sequence of a pass", ("model.vocab", "precision.logits")),
    Meaning("memory.peak", " + ".join(f"memory.{part}" for part in CATEGORIES),
            "the fullest moment of the fullest role", tuple(f"memory.{part}" for part in CATEGORIES), exact=True),
    Meaning("memory.reserved", "memory.peak + a workspace of the matmul library + context, x fragmentation",
            "what the driver reports; pages of the cache leave nothing over",
            ("memory.peak", "accelerator.matmul_workspace", "stack.allocator.fragmentation",
             "stack.allocator.context")),
    Meaning("serve.cache.bytes_per_sequence", "sum over layers of width x tokens that wait x bytes of an element, at"
            " the end of the output; width = 2 x kv_heads x head_dim, or kv_rank + rope_head_dim of latent attention",
            "whole model, no copies; a layer with a window, or chunks, keeps those tokens only",
            ("serve.prompt", "serve.output", "precision.cache")),
    Meaning("serve.cache.per_device", "what sequences of a replica keep in the layers of a device, at the end of their"
            " outputs", "heads are cut over `tensor`, latents are not; a shared prefix is there once",
            ("serve.cache.bytes_per_sequence", "serve.concurrency", *LAYOUT, "serve.prefix")),
    Meaning("serve.weights_read", "bytes of weights that one device reads for one token of each of its sequences",
            f"every matrix once; {REACHED}", ("serve.concurrency", "precision.weights", *LAYOUT)),
    Meaning("serve.cache.read", "bytes of the cache that one device reads for one token of each of its sequences",
            POPE, ("serve.concurrency", *LENGTHS, "precision.cache", *LAYOUT)),
    Meaning("serve.time_per_token.floor", "(serve.weights_read + serve.cache.read) / accelerator.bandwidth, over all"
            " stages", f"data sheet alone; {POPE}",
            ("serve.weights_read", "serve.cache.read", "accelerator.bandwidth", "serve.speculative")),
    Meaning("serve.concurrency", "as stated, or serve.arrival_rate x serve.residence", "Little 1961",
            ("serve.residence",)),
    Meaning("serve.concurrency.max", "the most sequences that the engine takes at once: those whose whole outputs its"
            " share of memory holds, and no more than it decodes in a step", "the fullest role decides",
            ("memory.capacity", "serve.cache.bytes_per_sequence", "stack.engine.memory", "stack.engine.sequences")),
    Meaning("serve.excess", "serve.concurrency - serve.concurrency.max, where that is more than 0", "figures of a plan"
            " that has such are of an engine that took them all",
            ("serve.concurrency", "serve.concurrency.max")),
    Meaning("serve.ttft", "passes of a prompt x seconds of one through all stages", "no queue, and nothing decoded"
            " beside it",
            ("serve.prompt", "serve.prefix", "serve.chunk", "flops.prefill", "precision.compute", *LAYOUT)),
    Meaning("serve.time_per_token", "mean seconds of a step with the sequences beside one, with a chunk of a prompt or"
            " without / serve.speculative", f"{STEADY}; {ROOF}",
            ("serve.concurrency", "serve.chunk", "serve.speculative", *LENGTHS, "serve.weights_read",
             "serve.cache.read", "precision.compute", "accelerator.bandwidth")),
    Meaning("serve.residence", "passes of a prompt + decoded tokens x serve.time_per_token", f"from its first pass to"
            f" its last token; {STEADY}",
            ("serve.time_per_token", *LENGTHS)),
    Meaning("serve.waiting", "serve.residence - serve.ttft - decoded tokens x serve.time_per_token", "what others in"
            " flight add to the first token: chunks of their prompts, and their tokens that are decoded beside it",
            ("serve.residence", "serve.ttft", "serve.time_per_token", "serve.output")),
    Meaning("serve.queue", "requests a second x mean square of the seconds of a prompt / 2 (1 - requests a second x"
            " mean of them), of each engine", "M/G/1: requests arrive at random, and an engine takes one prompt after"
            " the other; Pollaczek 1930, Khinchine 1932; 0 where a plan keeps sequences in flight, absent where"
            " requests wait ever longer", ("serve", "serve.prompt", "serve.chunk", "serve.ttft")),
    Meaning("serve.ttft.under_load", "serve.ttft + serve.waiting + serve.queue", "from a request's arrival to its first"
            " token, the mean; a plan that keeps sequences in flight has no queue",
            ("serve.ttft", "serve.waiting", "serve.queue")),
    Meaning("serve.tokens_per_second", "serve.concurrency / serve.residence x output tokens",
            STEADY, ("serve.concurrency", "serve.residence", "serve.output")),
    Meaning("serve.tokens_per_second_per_device", "serve.tokens_per_second / cluster.devices", "an even share",
            ("serve.tokens_per_second", "cluster.devices"), exact=True),
    Meaning("serve.requests_per_second", "serve.tokens_per_second over the tokens of an output", "answers in a second",
            ("serve.tokens_per_second", "serve.output")),
    Meaning("serve.unanswered", "1 - serve.requests_per_second / serve.arrival_rate, not below 0",
            "of the requests that arrive, those that wait ever longer",
            ("serve.requests_per_second", "serve.arrival_rate")),
    Meaning("cost.per_million_tokens", "cluster.devices * assumptions.price.per_device_hour / 3600 * 1000000"
            " / serve.tokens_per_second", "output tokens alone; the price of a device's hour",
            ("cluster.devices", "assumptions.price.per_device_hour", "serve.tokens_per_second"), exact=True),
)  # fmt: skip
