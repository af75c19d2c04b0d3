from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

import pytest

import ledger.spec.rules
from ledger.spec.kinds import schema
from ledger.spec.library import default_library
from ledger.spec.load import load_plan
from ledger.spec.rules.architecture import RUNS_ON
from ledger.spec.rules.table import RULES, WARNINGS
from tests.spec.shelf import SMALL, loaded, messages, problems

SPARSE = ["model.layers.0.mlp={kind: experts, d_ff: 2048, activation: silu, experts: 6, top_k: 2}"]
SPLIT = ["parallelism.expert=2"]
LATENT = "kind: latent, kv_rank: 64, nope_head_dim: 64, v_head_dim: 64"
WHOLE = "format: fp8_e4m3, scales: {activations: tensor, weights: tensor}"
BLOCKS = "format: fp8_e4m3, scales: {activations: [1, 128], weights: [128, 128]}"
POWERS = "format: fp8_e4m3, scales: {dtype: e8m0, activations: [1, 32], weights: [1, 32]}"
PLAIN = "{kind: plain, d_ff: 2048, activation: gelu}"
ALONE = ["cluster.devices=1", "parallelism={data: 1}"]
BARE = ["model={parameters: 7e9}", "expect=[]"]
CASES = [
    (["data={token: 2 B, sample: 8 kB}"], "both `data.token` and `data.sample` say how many bytes are read"),
    (["data={workers: 2, rate: 40 images/s}"], "a rate of images, and the model reads tokens"),
    (["cluster.devices=16"], "data x tensor x pipeline x context = 4 x 2 x 1 x 1 = 8, but the cluster has 16 devices"),
    (
        ["cluster.devices=12", "parallelism.data=6", "run.global_batch=12"],
        "12 devices are no whole number of nodes of 8",
    ),
    (["accelerator.kind=cpu", "kernels.attention=efficient"], "efficient attention has no kernel for a CPU"),
    (
        ["accelerator.kind=cpu", "model.layers.0.attention.dropout=0.1"],
        "flash attention of a CPU has no dropout, and `decoder` asks for it",
    ),
    (
        ["accelerator.kind=cpu", "accelerator.host_link=null", "parallelism.offload={optimizer: true}"],
        "offload of optimizer, but NVIDIA H100 SXM5 80 GB and its host have one memory",
    ),
    (
        ["accelerator.kind=cpu", "accelerator.host_link=null", "accelerator.scaleup=null"],
        "8 devices of a node, but NVIDIA H100 SXM5 80 GB has neither `scaleup` links nor a `host_link`",
    ),
    (["precision.pruned={pattern: 2:4}"], "`pruned` is of serving, and this plan trains"),
    (["precision.pruned={pattern: 2:4, share: 80 %}"], "2:4 makes half of the weights zero, and share = 80.0"),
    (
        ["precision.pruned={kernel: sparse, storage: dense}"],
        "a sparse kernel reads packed weights, and storage = dense",
    ),
    (
        ["precision.pruned={share: 80 %, storage: packed}", "precision.weights={base: int4}"],
        "packed weights in int4 that are unpacked before they are multiplied: not modelled",
    ),
    (
        ["accelerator.sparse_peak={fp8: 3958 TFLOP/s}", "precision.pruned={pattern: 2:4}"],
        "NVIDIA H100 SXM5 80 GB has no 2:4 sparse tensor cores for bf16: they multiply fp8",
    ),
    (["parallelism.expert=3"], "expert = 3 does not divide data x context = 4"),
    (["parallelism.expert=2"], "expert = 2, but no layer of the model has experts"),
    ([*SPARSE, "parallelism={data: 4, tensor: 2, expert: 4}"], "experts = 6 of `decoder` do not split over expert = 4"),
    ([*SPARSE, "model.layers.0.mlp.top_k=7"], "top_k = 7 of `decoder`, which has 6 experts"),
    ([*SPARSE, "model.layers.0.mlp.router.groups=4"], "6 experts of `decoder` are no 4 equal groups"),
    ([*SPARSE, "model.layers.0.mlp.shared={d_ff: 85}"], "shared experts 85 wide of `decoder` do not split over tensor"),
    ([*SPARSE, "model.layers.0.mlp.d_ff=2040"], "grouped_mm experts need rows of whole 16 bytes, and d_ff is 1020"),
    ([*SPARSE, *SPLIT, "kernels.experts=batched_mm"], "batched_mm experts do not split over devices (expert = 2)"),
    (
        [*SPARSE, "kernels.experts=eager", "kernels.weighing=activation"],
        "weighing = activation with eager experts of `decoder`, which weigh results",
    ),
    (
        [*SPARSE, "kernels.weighing=activation", "model.layers.0.mlp.bias=true"],
        "weighing = activation, but experts of `decoder` have biases, which would not be weighed",
    ),
    (
        [*SPARSE, "kernels.weighing=activation", "model.layers.0.mlp.router.scales=input"],
        "weighing = activation, but experts of `decoder` are weighed before they run",
    ),
    (
        ["precision.stored={core: {format: fp8_e4m3}}", "precision.compute=fp32", "kernels.attention=efficient"],
        "`stored` narrows activations of 16 bits, but the precision computes in fp32",
    ),
    (
        [*SPARSE, "kernels.experts=dense"],
        "dense experts, and those of `decoder` are not scaled by scores before they run",
    ),
    (
        [*SPARSE, "kernels.experts=dense", "model.layers.0.mlp.router.scales=input"],
        "dense experts of `decoder` with scores by softmax, which only chosen experts have",
    ),
    (
        [*SPARSE, "kernels.experts=eager", "model.layers.0.mlp.capacity_factor=1.25"],
        "eager experts take all tokens that come, and know no capacity",
    ),
    (
        [*SPARSE, "precision.weights=fp32", "precision.autocast=true", "parallelism.zero=1"],
        "grouped_mm experts cannot run in fp32",
    ),
    (
        [*SPARSE, "model.layers.0.mlp.router.auxiliary_loss=true", "parallelism={data: 1, tensor: 2, pipeline: 4}"],
        "auxiliary_loss of `decoder` needs the logits of all layers beside the loss, and not pipeline = 4",
    ),
    ([*SPARSE, *SPLIT, "assumptions.expert_imbalance=2.5"], "expert_imbalance = 2.5 over expert = 2 devices"),
    (["assumptions.expert_imbalance=90 %"], "`assumptions.expert_imbalance`: `90 %` is too small"),
    (["cluster.scaleout.oversubscription=0.5"], "`cluster.scaleout.oversubscription`: `0.5` is too small"),
    (["assumptions.power_usage_effectiveness=0.9"], "`assumptions.power_usage_effectiveness`: `0.9` is too small"),
    (["assumptions.mfu=1e-9"], "`assumptions.mfu`: `1e-09` is too small"),
    (["model.layers.0.mlp.activation=clamped_swiglu"], "clamped_swiglu in `decoder`, which has no experts"),
    (["model.layers.0.mlp.top_k=2"], "`top_k` in `decoder`, whose mlp is gated"),
    (["model.layers.decoder.mlp.d_ff=2047"], "d_ff = 2047 of `decoder` does not split over tensor = 2"),
    (["parallelism.offload=[weights]"], "offload of weights with zero = 1: only weights that are gathered come and go"),
    (["parallelism.offload={activations: 5}"], "offload of the activations of 5 layers, but the model has 4"),
    (
        ["parallelism.offload={activations: 2}", "recompute={every: 2}"],
        "layers are counted, but recompute = every already treats layers differently",
    ),
    (
        ["parallelism={data: 4, tensor: 2, zero: 3, wrap: {every: 2}, offload: {activations: 2}}"],
        "layers are counted, but sets of 2 of them move as one",
    ),
    (["model.vocab=50257"], "vocab = 50257 does not split over tensor = 2"),
    (
        ["parallelism.pipeline=4", "parallelism.data=1", "parallelism.interleave=2", "parallelism.zero=0"],
        "4 layers do not",
    ),
    (["parallelism={data: 4, tensor: 2, zero: 3, replicate: 3}"], "replicate = 3 does not divide data x context = 4"),
    (
        ["parallelism={data: 4, tensor: 2, zero: 3, replicate: 2, shard: 4}"],
        "replicate x shard = 2 x 4 = 8, but data x context = 4",
    ),
    (["parallelism={data: 4, tensor: 2, zero: 3, replicate: 4}"], "replicate = 4 leaves one device for each copy"),
    (["parallelism={data: 4, tensor: 2, replicate: 2}"], "replicate = 2 with zero = 0: nothing is split"),
    (["parallelism={data: 4, tensor: 2, zero: 2, reshard: false}"], "`reshard` with zero = 2: no weights are gathered"),
    (["parallelism={data: 4, tensor: 2, zero: 1, wrap: model}"], "`wrap` with zero = 1: no weights move as one"),
    (
        ["parallelism={data: 4, tensor: 2, zero: 3, wrap: {every: 3}}"],
        "4 layers of `decoder` do not divide into sets of 3",
    ),
    (
        ["parallelism={data: 2, pipeline: 4, zero: 3, wrap: {every: 2}}"],
        "the layers of a pipeline stage, 1, do not divide into sets of 2",
    ),
    (
        ["parallelism={data: 4, tensor: 2, zero: 3, wrap: {every: 2}}", "recompute={every: 2}"],
        "wrap: {every: 2}, but layers are recomputed differently, so sets would be unlike",
    ),
    (
        ["parallelism={data: 4, tensor: 2, zero: 2, reduce: step}"],
        "reduce: step with zero = 2: gradients that are held",
    ),
    (
        ["parallelism={data: 4, tensor: 2, zero: 3, bucket: 1 MiB}"],
        "bucket with zero = 3: gradients are reduced set by",
    ),
    (
        [
            "parallelism={data: 4, tensor: 2, zero: 1, offload: [optimizer]}",
            "optimizer={base: adamw, newton_schulz: {iterations: 5, dtype: bf16}}",
        ],
        "offload of AdamW of the shelf: its update multiplies matrices, which is not modelled on the host",
    ),
    (
        [
            (
                "accelerator={base: h100-sxm, calibration: [{what: host_link, form: collective, regime: sustained, "
                "parameters: {a: 10 us, B: 50 GB/s}, error: 3 %, source: somebody}]}"
            )
        ],
        "host_link is priced by the form send, not collective",
    ),
    (["parallelism.interleave=2"], "interleave = 2 without a pipeline"),
    (["parallelism.schedule=gpipe"], "schedule = gpipe without a pipeline"),
    (
        ["parallelism={data: 4, pipeline: 2, schedule: interleaved}"],
        "schedule = interleaved is for several chunks of layers a device, and interleave = 1",
    ),
    (["parallelism={data: 4, pipeline: 2, stages: [2, 2, 0]}"], "`stages` lists 3 chunks, but pipeline x interleave"),
    (["parallelism={data: 4, pipeline: 2, stages: [1, 2]}"], "`stages` lists 3 layers, but the model has 4"),
    (["parallelism={data: 2, pipeline: 4, stages: {first: 2}}"], "4 layers less 2 at the ends are 2, which do not"),
    (
        ["parallelism={data: 4, pipeline: 2, stages: {first: 3, last: 3}}"],
        "3 and 3 layers at the ends are more than the",
    ),
    (["stack.allocator.fragmentation=0.5"], "fragmentation = 0.5: less would be reserved than is allocated"),
    (["assumptions.headroom=100 %"], "headroom = 100.0\u202f% leaves nothing of the"),
    (["assumptions.headroom=200 GB"], "headroom = 200"),
    (["operations.checkpoint_interval=0 s"], "`operations.checkpoint_interval`: `0 s` is zero"),
    (
        ["cluster.failure_rate=1e-6 /h", "operations.failure_rate=1e-6 /h"],
        "`cluster.failure_rate` and `operations.failure_rate` say the same thing twice",
    ),
    (
        ["operations={checkpoint_interval: best, checkpoint_cost: 3 s}"],
        "the best `operations.checkpoint_interval` follows from how often devices fail",
    ),
    (
        ["operations={checkpoint_interval: best, failure_rate: 1e-3 /d}"],
        "the best `operations.checkpoint_interval` follows from what a checkpoint takes",
    ),
    (["optimizer={name: adamw, lr: 3}"], "`lr` is no field of `optimizer`"),
    (["recompute={}"], "`recompute` is empty"),
    (["recompute={components: [core, core]}"], "`recompute.components` has `core` twice"),
    (["train={only: [mlp], frozen: [head]}"], "`train` has `only` and `frozen`, of which one is due"),
    (["parallelism.reshard=maybe"], "`parallelism.reshard` cannot be `maybe`"),
    ([*BARE, "parallelism={data: 4, pipeline: 2, ends: own}"], "`ends` of a model of which only a count is known"),
    (
        [*BARE, "parallelism={data: 4, pipeline: 2, stages: [1, 1]}"],
        "`stages` of a model of which only a count is known",
    ),
    (["parallelism={data: 4, pipeline: 2, ends: own}"], "4 layers do not split into 0 equal chunks (ends = own)"),
    (
        ["parallelism={data: 4, pipeline: 2, stages: [2, 2], ends: own}"],
        "both `stages` and `ends: own` say how many layers the ends hold",
    ),
    (
        ["parallelism={data: 4, pipeline: 2, schedule: dual_pipe}", "run.global_batch=24"],
        "schedule = dual_pipe needs an even number of micro-batches, at least 2 x pipeline, not 3",
    ),
    (["parallelism.context_exchange=ring"], "context_exchange = ring without context parallelism"),
    (["parallelism.context_balance=none"], "context_balance = none without context parallelism"),
    (
        ["parallelism={data: 2, context: 4, context_exchange: all_to_all}", "kernels.attention=math"],
        "context_exchange = all_to_all cannot run with math attention",
    ),
    (
        ["parallelism={data: 2, context: 4, context_exchange: ring}", "model.layers.decoder.attention.window=128"],
        "context_exchange = ring, but layers of `decoder` see only a window of 128 tokens",
    ),
    (
        ["parallelism={data: 2, context: 4, context_balance: none}", "model.layers.decoder.attention.chunk=128"],
        "context_balance = none, but layers of `decoder` see only a chunk of 128 tokens",
    ),
    (
        ["parallelism={tensor: 2, context: 4, context_exchange: all_to_all}"],
        "kv_heads = 4 of `decoder` does not split over tensor x context = 8 (context_exchange = all_to_all)",
    ),
    (["recompute={every: 5}"], "every = 5, but the model has 4 layers"),
    (["run.seq_len=2047"], "seq_len = 2047 does not split over tensor = 2 (sequence parallel)"),
    (["parallelism={data: 2, context: 4}", "run.seq_len=2046"], "seq_len = 2046 does not split over context = 4"),
    (["run.global_batch=63"], "global_batch = 63 is no multiple of data x micro_batch = 4 x 2 = 8"),
    (["model.layers.0.attention.kv_heads=6"], "heads = 8 is no multiple of kv_heads = 6"),
    (["model.layers.0.attention.rotary=0.3"], "rotary = 0.3 of head_dim = 64 is no even number"),
    (["model.layers.0.attention.q_rank=64"], "`q_rank` is no size of grouped_query attention"),
    ([f"model.layers.0.attention={{{LATENT}, heads: 8, rope_head_dim: 31}}"], "rope_head_dim = 31 is no even number"),
    (
        [f"model.layers.0.attention={{{LATENT}, heads: 8, rope_head_dim: 32, rotary: 1}}"],
        "`rotary` is no size of latent attention",
    ),
    (
        [f"model.layers.0.attention={{{LATENT}, heads: 9, rope_head_dim: 32}}"],
        "heads = 9 of `decoder` does not split over tensor = 2",
    ),
    (
        ["model.layers.0.attention={heads: 8, head_dim: 64, window: 128, chunk: 64}"],
        "`decoder` has a window and chunks",
    ),
    (["model.layers.0.attention.sinks=true"], "flash attention has no sinks, and `decoder` does"),
    (
        ["model.layers.0.attention.qk_norm=all"],
        "tensor = 2 splits the heads over which `decoder` norms queries and keys",
    ),
    (["model.layers.0.norms=shared"], "norms = shared of `decoder` with a sequential residual"),
    (
        ["model.layers.0.norms=sandwich", "model.layers.0.residual=parallel"],
        "norms = sandwich of `decoder` with a parallel residual",
    ),
    (["model.order=[decoder, encoder]"], "no group is named `encoder`"),
    (["model.parameters=70e9"], "`parameters` beside `d_model`, `layers`, `vocab`: the sizes say how many there are"),
    (["model.embedding={learned_positions: 1024}"], "seq_len = 2048, but the model has 1024 learned positions"),
    (["precision.compute=fp32", "precision.activations=fp32"], "flash attention cannot run in fp32"),
    (["precision.compute=fp32", "kernels.attention=flash3"], "flash3 attention cannot run in fp32"),
    (["model.layers.0.attention.head_dim=512"], "flash attention cannot run with head_dim = 512"),
    (["run.seq_len=10**10"], "`run.seq_len` must be at most 1000000000, not 10000000000"),
    (["run.tokens=1e30 tokens"], "`run.tokens`: `1e30 tokens` is beyond reason"),
    (["accelerator.bandwidth=1e30 B/s"], "`accelerator.bandwidth`: `1e30 B/s` is beyond reason"),
    (["assumptions.mfu=120 %"], "`assumptions.mfu`: `120 %` is beyond reason"),
    (["run.micro_batch=0"], "`run.micro_batch` must be at least 1, not 0"),
    (
        ["accelerator.architecture=ampere", "kernels.attention=flash3"],
        "flash3 attention runs on hopper, and NVIDIA H100",
    ),
    (
        ["accelerator.architecture=volta"],
        "flash attention runs on ampere, ada, hopper, blackwell, cdna2, cdna3 or cdna4",
    ),
    (["accelerator.architecture=cdna3", "kernels.attention=cudnn"], "cudnn attention runs on ampere, ada, hopper or"),
    (["accelerator.architecture=ampere", "precision.compute=fp8_e4m3"], "fp8 runs on ada, hopper, blackwell, cdna3 or"),
    (["precision.compute=mxfp8"], "mxfp8 runs on blackwell or cdna4, and NVIDIA H100 SXM5 80 GB is hopper"),
    ([f"precision.matmul={{{POWERS}}}"], "mxfp8 runs on blackwell or cdna4, and NVIDIA H100 SXM5 80 GB is hopper"),
    ([f"precision.matmul={{{BLOCKS}}}", "accelerator.architecture=ada"], "fp8 with scales of blocks runs on hopper or"),
    (
        [f"precision.matmul={{{WHOLE}, layouts: one}}"],
        "fp8 in one layout runs on blackwell, cdna3 or cdna4, and NVIDIA",
    ),
    (["precision.compute=mxfp4"], "NVIDIA H100 SXM5 80 GB has no mxfp4 peak, and matmuls compute in it"),
    (["accelerator.memory.driver=80 MiB"], "the driver's 83.88608 MB and the label's 80 GB contradict each other"),
    (["accelerator.peak.bf16=1979 TFLOP/s"], "bf16 = 1979 TFLOP/s is the sparse figure of NVIDIA H100 SXM5 80 GB"),
    (["accelerator.calibration.0.parameters={e: 0.7}"], "matmul.bf16: form matmul lacks `t0`, `b`, `k0`, `c`"),
]


@pytest.mark.parametrize(("settings", "said"), CASES)
def test_each_rule_says_what_is_wrong_in_the_users_numbers(settings: list[str], said: str) -> None:
    """One spoilt value, one message with the figures that contradict each other, and a help line."""
    found = [problem for problem in problems(*settings) if problem.message.startswith(said)]
    assert len(found) == 1
    assert found[0].help


def test_a_count_has_no_loss_to_take_in_parts() -> None:
    """Kernels of a model without a vocabulary are told as idle, and divide nothing by it."""
    warnings = loaded(*BARE, "parallelism={data: 8}", "kernels={loss: fused_linear}").warnings
    assert [warning.message.partition(":")[0] for warning in warnings] == ["`kernels` has no effect"]


def test_a_sparse_peak_is_known_without_a_base() -> None:
    """An inline accelerator with a known device's bandwidth and twice its dense peak has the sparse figure."""
    inline = """{accelerator: my card, source: a web page, peak: {bf16: 1513 TFLOP/s}, vector: 51 TFLOP/s,
      bandwidth: 2.039 TB/s, memory: {driver: 80 GiB, labelled: 80 GB}, l2: 50 MiB,
      multiprocessors: 114, scaleup: {bandwidth: 0 GB/s, domain: 1}, host_link: 63 GB/s, power: 350 W}"""
    text = SMALL.replace("accelerator: h100-sxm", f"accelerator: {inline}")
    (found,) = problems(text=text)
    assert found.message == "bf16 = 1513 TFLOP/s is the sparse figure of NVIDIA H100 PCIe 80 GB"
    assert "`756.5 TFLOP/s`" in found.help


def test_an_accelerator_of_no_stated_generation_runs_everything() -> None:
    """A file that does not say what its device is was written before anybody asked; it is refused nothing."""
    inline = """{accelerator: my card, source: a web page, peak: {bf16: 300 TFLOP/s, fp8: 600 TFLOP/s},
      vector: 51 TFLOP/s, bandwidth: 2.5 TB/s, memory: {driver: 80 GiB, labelled: 80 GB}, l2: 50 MiB,
      multiprocessors: 114, scaleup: {bandwidth: 0 GB/s, domain: 1}, host_link: 63 GB/s, power: 350 W}"""
    text = SMALL.replace("accelerator: h100-sxm", f"accelerator: {inline}")
    settings = ["kernels.attention=flash3", f"precision.matmul={{{POWERS}}}", "parallelism.sequence=off"]
    assert loaded(*settings, text=text).accelerator.architecture == ""
    assert len(problems("accelerator.architecture=ada", *settings, text=text)) == 2


def test_requirements_name_architectures_that_specs_can_state() -> None:
    """A row for an architecture that no file can have would refuse everybody."""
    stated = set(schema("accelerator")["properties"]["architecture"]["enum"])
    assert {name for needs in RUNS_ON.values() for name in needs.architectures} <= stated
    assert all(needs.source for needs in RUNS_ON.values())


def grouped(fields: str, *groups: tuple[str, int]) -> str:
    """The small plan with a model of these groups, each a name and a number of layers."""
    rest = "attention: {heads: 8, head_dim: 64}, mlp: {kind: plain, d_ff: 64, activation: relu}"
    layers = ", ".join(f"{{group: {name}, repeat: {repeat}, {rest}}}" for name, repeat in groups)
    return SMALL.replace("model: tiny", f"model: {{base: tiny, {fields}layers: [{layers}]}}")


def test_groups_are_told_apart_by_name() -> None:
    """Accounts begin with a group's name, so two groups cannot share one."""
    assert messages(text=grouped("", ("decoder", 2), ("decoder", 2))) == ["two groups are named `decoder`"]


def test_uneven_groups_cannot_take_turns() -> None:
    """Alternating groups repeat equally often."""
    text = grouped("alternating: true, ", ("local", 1), ("global", 3))
    assert messages(text=text) == ["alternating groups repeat 1 and 3 times"]


def test_an_order_uses_up_the_layers_of_its_groups() -> None:
    """The pattern starts anew until all layers are placed; what it gives is what the groups must repeat."""
    order = "order: [5 local, global], "
    model = loaded(text=grouped(order, ("local", 52), ("global", 10))).model
    assert model.order == ("local",) * 5 + ("global",)
    (problem,) = problems(text=grouped(order, ("local", 50), ("global", 12)))
    assert problem.message == "62 layers in this order do not repeat their groups 50 and 12 times"
    assert problem.help == "in this order: `local` 52, `global` 10"


def test_sequences_cannot_be_left_out_of_a_real_model() -> None:
    """Only a bare count can do without sequence length and batches."""
    text = SMALL.replace(", seq_len: 2048, micro_batch: 2, global_batch: 64", "")
    assert {"`run` lacks `seq_len`", "`run` lacks `micro_batch`", "`run` lacks `global_batch`"} <= set(
        messages(text=text)
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["cluster.devices_per_node=4", "parallelism.offload=[optimizer]"],
            "offload of optimizer, but the host is not stated: its memory is not checked, and the update",
        ),
        (["parallelism={data: 8, sequence: regather}"], "sequence = regather without tensor parallelism"),
        (["model.max_seq_len=1024"], "seq_len = 2048, but the model was made for 1024"),
        (["model.vocab=50258"], "the head has 25129 columns on a device, no multiple of 8: its"),
        (["assumptions.headroom=60 %"], "headroom = 60.0\u202f% keeps 60.0\u202f% of the memory of"),
        (["kernels.experts=eager"], "`kernels.experts` has no effect: no layer of the model has experts"),
        (["kernels.rotary=eager", "model.layers.0.attention.rotary=0"], "`kernels.rotary` has no effect: no layer"),
        (["kernels.activation=fused_gated", f"model.layers.0.mlp={PLAIN}"], "`kernels.activation` has no effect: no"),
        (["assumptions.expert_imbalance=2"], "expert_imbalance has no effect where no layer has experts"),
        (
            ["operations.checkpoint_interval=3 h"],
            "`operations.checkpoint_interval` has no effect: neither `op",
        ),
        (
            ["assumptions.checkpoint_interval=3 h"],
            "`operations.checkpoint_interval` has no effect: neither `op",
        ),
        (["operations.restart_time=1 h"], "`operations.restart_time` has no effect: `operations.checkpoint_interval`"),
        (["cluster.failure_rate=1e-6 /h"], "`operations.failure_rate` has no effect: `operations.checkpoint_interval`"),
        (["operations.checkpoint_async=true"], "`operations.checkpoint_async` has no effect: `operations.check"),
        (["data.workers=4"], "`data.workers` has no effect: `data.rate` does not say what a worker prepares"),
        (["data.rate=1M tokens/s"], "`data.rate` has no effect: `data.workers` is not stated"),
        (["data.bandwidth=1 GB/s"], "`data.bandwidth` has no effect: neither `data.token` nor `data.sample`"),
        (["data.prefetch=4"], "`data.prefetch` has no effect: nothing of `data` says how long a batch takes"),
        (
            ["stack.main_gradients=true", "stack.optimizer_passes=[norm, zero]", "optimizer.zero_grad=fill"],
            "`optimizer.zero_grad` has no effect: ",
        ),
        (["precision.cache=fp8_e4m3"], "`precision.cache` has no effect: this plan trains"),
        (
            ["operations={checkpoint_interval: 3 h, checkpoint_cost: 3 s, restart_time: 9 s}"],
            "`operations.restart_time`",
        ),
        (["operations.evaluation_time=1 h"], "`operations.evaluation_time` has no effect: `operations.evaluation_int"),
        (["operations.storage_bandwidth=1 GB/s"], "`operations.storage_bandwidth` has no effect: `operations.check"),
        ([*ALONE, "parallelism.reduce=step"], "`parallelism.reduce` has no effect: data x context = 1"),
        ([*ALONE, "parallelism.bucket=1 MiB"], "`parallelism.bucket` has no effect: data x context = 1"),
        (["model.alternating=true"], "`model.alternating` has no effect: the model has one group of layers"),
        (["optimizer={base: adamw, otherwise: adamw}"], "`optimizer.otherwise` has no effect: AdamW"),
        (
            [f"precision.matmul={{{WHOLE}, keep: [heads]}}", "parallelism.sequence=off"],
            "`heads` in `keep` has no effect",
        ),
        (["precision.weights={base: bf16, adapters: fp32}"], "`precision.weights.adapters` has no effect: the plan"),
        (
            ["precision.weights={base: bf16, head: fp32}", "model.embedding.tied=true"],
            "`precision.weights.head` has no effect: the head's weight is the embedding's",
        ),
        (["train={lora: {rank: 512, targets: [q]}}"], "rank = 512 with d_model = 512: adapters hold more than"),
        ([*BARE, "recompute=full"], "`recompute` has no effect: of the model only a parameter count is known"),
    ],
)
def test_risks_are_warnings(settings: list[str], said: str) -> None:
    """What works at a risk loads, with the risk named."""
    assert [warning.message.startswith(said) for warning in loaded(*settings).warnings] == [True]


@pytest.mark.parametrize("name", default_library().names("plan"))
def test_plans_of_the_library_state_nothing_in_vain(name: str) -> None:
    """What a named part brings along, heeded or not, is no statement of the plan."""
    assert [warning.message for warning in load_plan(name).warnings if "no effect" in warning.message] == []


def test_a_sound_plan_has_no_warnings() -> None:
    """Warnings that come always are read never."""
    assert loaded().warnings == ()


def test_every_rule_is_in_the_table() -> None:
    """A rule that no table lists would never run."""
    written = {
        function
        for found in pkgutil.iter_modules(ledger.spec.rules.__path__, "ledger.spec.rules.")
        if found.name != "ledger.spec.rules.table"
        for module in (import_module(found.name),)
        for _, function in inspect.getmembers(module, inspect.isgeneratorfunction)
        if function.__module__ == found.name and not function.__name__.startswith("_")
    }
    assert written == {*RULES, *WARNINGS}


def test_sums_on_the_host_are_waited_for() -> None:
    """Weights on the host and several micro-batches: their update is not timed, and their sums are waited for."""
    said = [warning.message for warning in loaded("parallelism={data: 8, zero: 3, offload: [weights]}").warnings]
    assert len(said) == 2
    assert "gradients of each micro-batch are added up on the host, so no copy of one hides behind backward" in said
    once = loaded("parallelism={data: 8, zero: 3, offload: [weights], reduce: step}").warnings
    assert len(once) == 1
