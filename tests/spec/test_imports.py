"""Megatron-LM's arguments and torchtitan's jobs as specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.spec.imports.carried import Imported
from ledger.spec.imports.megatron.shell import arguments
from ledger.spec.imports.tools import imported
from ledger.spec.load import load_model, load_plan
from ledger.spec.problems import SpecError

# examples/gpt3/train_gpt3_175b_distributed.sh of NVIDIA/Megatron-LM, the arguments that give the run its shape
GPT3 = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=64   # of 8
CHECKPOINT_PATH=$1 #<Specify path>

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)

GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # Can use (flash/fused/unfused/local)
)
VOCAB=$((50000 + 257))
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} \\
    --vocab-size $VOCAB --micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 --fp16 --lr 6.0e-5 \\
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --load $CHECKPOINT_PATH
"""
# Arguments for Mixtral 8x7B as Megatron Core's documentation lists them (megatron/core/transformer/moe/README.md).
MIXTRAL = """
MODEL_ARGS=(
    --disable-bias-linear --seq-length 4096 --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096
    --ffn-hidden-size 14336 --num-attention-heads 32 --init-method-std 0.01 --attention-dropout 0.0
    --hidden-dropout 0.0 --normalization RMSNorm --position-embedding-type rope --swiglu
    --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8 --no-masked-softmax-fusion
    --no-position-embedding --vocab-size 32000
)
MOE_ARGS=(
    --num-experts 8 --expert-model-parallel-size 8 --moe-router-load-balancing-type aux_loss --moe-router-topk 2
    --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm
)
TRAINING_ARGS=( --micro-batch-size 1 --global-batch-size 128 --bf16 )
MODEL_PARALLEL_ARGS=( --tensor-model-parallel-size 4 --pipeline-model-parallel-size 1 --sequence-parallel
    --use-distributed-optimizer --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 )
"""
# Arguments of DeepSeek-V3, after its config.json.
DEEPSEEK = """
--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --max-position-embeddings 163840
--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64
--v-head-dim 128 --qk-layernorm --normalization RMSNorm --position-embedding-type rope --swiglu --disable-bias-linear
--untie-embeddings-and-output-weights --vocab-size 129280 --attention-dropout 0.0 --hidden-dropout 0.0
--num-experts 256 --moe-layer-freq ([0]*3+[1]*58) --moe-ffn-hidden-size 2048 --moe-router-topk 8
--moe-router-score-function sigmoid --moe-router-num-groups 8 --moe-router-group-topk 4 --moe-router-dtype fp32
--moe-shared-expert-intermediate-size 2048 --moe-router-enable-expert-bias
"""
# torchtitan/models/llama3/train_configs/llama3_405b.toml of pytorch/torchtitan (commit 01424cb), what shapes the run
TITAN = """
[job]
description = "Llama 3 405B training"
[model]
name = "llama3"
flavor = "405B"
[optimizer]
name = "AdamW"
[training]
batch_size = 2
seq_len = 8192
steps = 3000
compile = true
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8  # 8-way TP
pipeline_parallel_degree = 1
context_parallel_degree = 1
[activation_checkpoint]
mode = 'full' # ['none', 'selective', 'full']
"""


def spec(folder: Path, text: str, name: str = "arguments.sh", **asked: Any) -> Any:
    """The spec that a file with this text becomes, as plain values."""
    (folder / name).write_text(text)
    return yaml.safe_load(imported(folder / name, **asked).text)


def refused(folder: Path, text: str, name: str = "arguments.sh") -> SpecError:
    """What is said against a file with this text."""
    with pytest.raises(SpecError) as caught:
        spec(folder, text, name)
    return caught.value


def loaded(folder: Path, text: str, name: str = "arguments.sh", **asked: Any) -> Path:
    """The file that the import of a text leaves."""
    (folder / name).write_text(text)
    made = folder / "made.yaml"
    made.write_text(imported(folder / name, **asked).text)
    return made


def test_a_published_script_is_the_model_of_the_paper(tmp_path: Path) -> None:
    """96 layers of 12288, 96 heads, and a vocabulary padded to 128 rows times 8 ranks (50257 -> 51200)."""
    model = load_model(loaded(tmp_path, GPT3))
    library = load_model("gpt3-175b")
    assert (model.d_model, model.learned_positions, model.tied) == (12288, 2048, True)
    assert model.groups == library.groups
    assert model.vocab == 51200


def test_its_plan_has_the_layout_and_the_batches(tmp_path: Path) -> None:
    """512 devices over 8 x 16 leave 4 replicas; 500 000 steps of 1536 x 2048 tokens."""
    plan = load_plan(loaded(tmp_path, GPT3, as_plan=True))
    mesh, run = plan.parallelism, plan.run
    assert (mesh.data, mesh.tensor, mesh.pipeline, plan.cluster.devices) == (4, 8, 16, 512)
    assert (run.tokens, run.micro_batch, run.global_batch) == (500_000 * 1536 * 2048, 1, 1536)
    assert (plan.precision.compute, plan.stack.name) == ("fp16", "megatron-te-2024")


def test_experts_are_those_of_the_library(tmp_path: Path) -> None:
    """Mixtral and DeepSeek-V3 from Megatron's arguments have the sizes of their config.json."""
    for text, name in ((MIXTRAL, "mixtral-8x7b"), (DEEPSEEK, "deepseek-v3")):
        model, library = load_model(loaded(tmp_path, text)), load_model(name)
        for made, known in zip(model.groups, library.groups, strict=True):
            assert made.repeat == known.repeat
            assert (made.attention.heads, made.attention.kv_heads) == (known.attention.heads, known.attention.kv_heads)
            for size in ("head_dim", "q_rank", "kv_rank", "rope_head_dim", "v_head_dim"):
                assert getattr(made.attention, size) == getattr(known.attention, size), size
            for size in ("d_ff", "experts", "top_k", "shared_d_ff"):
                assert getattr(made.mlp, size) == getattr(known.mlp, size), size


def test_the_layout_of_experts(tmp_path: Path) -> None:
    """Expert parallelism, the distributed optimizer, sequence parallelism and recomputation by Megatron's words."""
    plan = load_plan(loaded(tmp_path, MIXTRAL, as_plan=True, devices=64))
    mesh = plan.parallelism
    assert (mesh.data, mesh.tensor, mesh.expert, mesh.zero, mesh.sequence) == (16, 4, 8, 1, "regather")
    assert (plan.recompute.policy, plan.precision.gradients) == ("full", "fp32")


@pytest.mark.parametrize(
    ("arguments_", "expected"),
    [
        ("--recompute-granularity selective", "selective"),
        ("--recompute-activations", "selective"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2", {"layers": 2}),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 3", {"segment": 3}),
        ("", "none"),
    ],
)
def test_recomputation_in_the_words_of_a_plan(tmp_path: Path, arguments_: str, expected: object) -> None:
    """Each way of Megatron's to recompute is one of a plan's."""
    assert spec(tmp_path, f"{GPT3} {arguments_}", as_plan=True)["recompute"] == expected


def test_interleaving_is_chunks_of_a_stage(tmp_path: Path) -> None:
    """96 layers on 16 stages in chunks of 3 are two chunks each."""
    plan = spec(tmp_path, f"{GPT3} --num-layers-per-virtual-pipeline-stage 3", as_plan=True)
    assert plan["parallelism"]["interleave"] == 2


def test_a_gated_layer_without_a_width_has_as_many_parameters(tmp_path: Path) -> None:
    """Megatron's default: 8/3 of the width, in steps of 64."""
    text = "--num-layers 1 --hidden-size 1000 --num-attention-heads 8 --max-position-embeddings 64 --vocab-size 128"
    (group,) = spec(tmp_path, f"{text} --swiglu")["layers"]
    assert group["mlp"]["d_ff"] == 2624  # 1000 x 8 / 3 = 2666, less 42


def test_the_last_of_two_equal_arguments_holds(tmp_path: Path) -> None:
    """As argparse has it."""
    assert spec(tmp_path, f"{GPT3} --num-layers 3")["layers"][0]["repeat"] == 3


def test_words_of_a_script() -> None:
    """Comments, quotes, continuations, arrays, variables with defaults and sums; an unset variable stays visible."""
    text = 'A=3\nB=${X:-4}\nARGS=(\n --one "$A" # --no\n --two $((A*B+1))\n)\nrun ${ARGS[@]} --three=$C \\\n --four'
    found, variables = arguments(text, "script")
    assert [(one.name, one.values, one.where.line) for one in found] == [
        ("one", ("3",), 4),
        ("two", ("13",), 5),
        ("three", ("$C",), 7),
        ("four", (), 8),
    ]
    assert variables["B"] == "4"


def test_what_is_not_understood_is_named_with_its_place(tmp_path: Path) -> None:
    """Arguments that shape another model, unknown ones that speak of sizes, variables that are not set: all at once."""
    error = refused(tmp_path, GPT3 + "--squared-relu --moe-depth-size 3 --kv-channels $HEAD --log-interval 3\n")
    found = {problem.message: problem.where.column for problem in error.problems}
    assert found == {
        "`--squared-relu` asks for another activation": 1,
        "`--moe-depth-size` is no argument that is understood": 16,
        "`--kv-channels` is `$HEAD`": 35,
    }


def test_what_the_arguments_leave_open_is_asked_for(tmp_path: Path) -> None:
    """A tokenizer's rows are no default, a file without sizes is no model, and latents of no norm are another model."""
    assert "no --vocab-size" in str(refused(tmp_path, GPT3.replace("--vocab-size $VOCAB", "")))
    assert "no --num-layers, --hidden-size" in str(refused(tmp_path, "--lr 3"))
    assert "`--qk-layernorm`" in str(refused(tmp_path, DEEPSEEK.replace("--qk-layernorm", "")))


def test_a_torchtitan_job_is_a_plan_with_a_model_of_the_library(tmp_path: Path) -> None:
    """Shards that the launcher counts are what the devices leave; every weight is sharded."""
    plan = load_plan(loaded(tmp_path, TITAN, "job.toml", as_plan=True, devices=128))
    mesh = plan.parallelism
    assert (plan.model, plan.stack.name) == (load_model("llama-3-405b"), "torchtitan-compile-2024")
    assert (mesh.data, mesh.tensor, mesh.zero, mesh.sequence) == (16, 8, 3, "save_gathered")
    assert (plan.recompute.policy, plan.run.tokens) == ("full", 3000 * 2 * 16 * 8192)
    assert load_model(loaded(tmp_path, TITAN, "job.toml")).name == "made"


def test_an_unknown_flavor_says_which_are_known(tmp_path: Path) -> None:
    """With the line that names it."""
    (problem,) = refused(tmp_path, TITAN.replace("405B", "406B"), "job.toml").problems
    assert (problem.where.line, "llama3 405B" in problem.help) == (6, True)


def test_a_config_is_no_plan(tmp_path: Path) -> None:
    """A config.json says nothing of a run, so `--plan` is refused, not guessed."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(SpecError, match="says nothing of a run"):
        imported(tmp_path / "config.json", as_plan=True)


JOB = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 4
seq_len = 8192
"""


def made(folder: Path, text: str, name: str = "job.toml", **asked: Any) -> Imported:
    """The plan of a file with this text, and what is told beside it."""
    (folder / name).write_text(text)
    return imported(folder / name, as_plan=True, **asked)


@pytest.mark.parametrize("copies", [1, 2, 3, 8, 16])
def test_a_job_of_copies_without_a_number_of_devices_is_a_plan_that_holds(tmp_path: Path, copies: int) -> None:
    """Where nobody says how many devices there are, each copy of the weights is split over a node of 8."""
    given = made(tmp_path, JOB + f"[parallelism]\ndata_parallel_replicate_degree = {copies}\n")
    mesh = load_plan(given.text).parallelism
    assert given.notes == ()
    assert (mesh.data, mesh.replicate, mesh.zero) == (8 * copies, copies, 3)


def test_copies_that_nothing_is_split_over_are_replicas(tmp_path: Path) -> None:
    """torchtitan takes DistributedDataParallel where the degree of shards is 1 (parallelize.py)."""
    text = JOB + "[parallelism]\ndata_parallel_replicate_degree = 8\n"
    mesh = load_plan(made(tmp_path, text, devices=8).text).parallelism
    assert (mesh.data, mesh.replicate, mesh.zero) == (8, 1, 0)
    (note,) = made(tmp_path, text, devices=12).notes
    assert (note.message, note.where.line) == ("the job's degrees multiply to 8 devices, not 12", 9)


def test_devices_that_are_no_whole_nodes_are_smaller_nodes(tmp_path: Path) -> None:
    """3 copies on 4 devices each are 12 devices: three nodes of 4."""
    text = JOB + "[parallelism]\ndata_parallel_replicate_degree = 3\ndata_parallel_shard_degree = 4\n"
    cluster = load_plan(made(tmp_path, text).text).cluster
    assert (cluster.devices, cluster.devices_per_node) == (12, 4)


def test_what_a_job_says_of_its_software_is_carried(tmp_path: Path) -> None:
    """Asynchronous tensor parallelism, 8-bit matmuls, the dtype of reduction, the update, what stays gathered."""
    plan = load_plan(
        made(
            tmp_path,
            JOB.replace("[training]", 'converters = ["quantize.linear.float8"]\n[training]')
            + 'mixed_precision_reduce = "bfloat16"\n[compile]\nenable = true\ncomponents = ["model"]\n'
            + '[quantize.linear.float8]\nrecipe_name = "rowwise"\n[optimizer]\nimplementation = "for-loop"\n'
            + "[parallelism]\ntensor_parallel_degree = 2\nenable_async_tensor_parallel = true\n"
            + 'fsdp_reshard_after_forward = "never"\n',
        ).text
    )
    assert (plan.stack.name, plan.stack.overlap.tensor, plan.kernels.loss) == (
        "torchtitan-compile-2025",
        "matmul",
        "eager",
    )
    assert (plan.precision.name, plan.precision.reduction) == ("fp8-rowwise", "bf16")
    assert (plan.kernels.optimizer, plan.parallelism.reshard) == ("loop", "none")


def test_every_setting_that_is_left_out_is_told_in_its_line(tmp_path: Path) -> None:
    """What changes a figure and is in no plan has a note each; what is switched off or only written down has none."""
    text = JOB + (
        "enable_cpu_offload = true\ndataset = 'c4'\ngc_freq = 50\n[float8]\nenable_fsdp_float8_all_gather = false\n"
        "[parallelism]\nenable_compiled_autograd = true\ndisable_loss_parallel = false\n"
        "[activation_checkpoint]\nmode = 'memory_budget'\nmemory_budget = 0.5\n[metrics]\nlog_freq = 10\n"
        "[checkpoint]\ninterval = 500\n[fault_tolerance]\nenable = true\n"
    )
    given = made(tmp_path, text)
    notes = {note.message: note.where.line for note in given.notes}
    assert load_plan(given.text).parallelism.offload.kinds == ("weights",)
    assert notes == {
        "`parallelism.enable_compiled_autograd` is not carried over": 14,
        "`activation_checkpoint.mode = memory_budget` is not carried over: the plan recomputes nothing": 17,
        "`activation_checkpoint.memory_budget` is not carried over": 18,
        "`fault_tolerance.enable` is not carried over": 24,
    }


def test_a_pipeline_cuts_the_local_batch(tmp_path: Path) -> None:
    """Two chunks a rank where a schedule takes turns, micro-batches of 1 by default, weights kept after forward."""
    text = JOB + "[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = 'Interleaved1F1B'\n"
    given = made(tmp_path, text)
    mesh, run = load_plan(given.text).parallelism, load_plan(given.text).run
    assert (mesh.scheduled, mesh.interleave, mesh.reshard, run.micro_batch, run.global_batch) == (
        "interleaved",
        2,
        "none",
        1,
        8,
    )
    assert [note.message for note in given.notes] == [
        "the job does not say how a pipeline cuts its batch: a micro-batch is 1 sequence"
    ]
    assert load_plan(made(tmp_path, text + "pipeline_parallel_microbatch_size = 2\n").text).run.micro_batch == 2


def test_what_the_plan_of_a_file_breaks_is_told(tmp_path: Path) -> None:
    """A plan that `ledger check` will refuse is printed all the same, with what stands against it."""
    text = JOB + "[parallelism]\ntensor_parallel_degree = 3\n"
    messages = [note.message for note in made(tmp_path, text).notes]
    assert any(message.startswith("the plan does not hold as it is: heads = 32") for message in messages)


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        (JOB.replace("8192", '"long"'), "`training.seq_len` is 'long'", 7),
        (JOB.replace("local_batch_size = 4", "local_batch_size = 0"), "`training.local_batch_size` is 0", 6),
        (JOB + "[parallelism]\ntensor_parallel_degree = true\n", "`parallelism.tensor_parallel_degree` is True", 9),
        (JOB + "[activation_checkpoint]\nmode = 'some'\n", "`activation_checkpoint.mode` is `some`", 9),
        (JOB + "[optimizer]\nimplementation = 'apex'\n", "`optimizer.implementation` is `apex`", 9),
        ("model = 3\n", "no model of the library is torchtitan's `` of flavor ``", 1),
        ("[model\n", "not valid TOML", 1),
    ],
)
def test_a_value_that_no_job_can_have_is_a_problem(tmp_path: Path, text: str, said: str, line: int) -> None:
    """With its line, and without a traceback."""
    (problem,) = refused(tmp_path, text, "job.toml").problems
    assert problem.message.startswith(said)
    assert (problem.where.line, bool(problem.help)) == (line, True)


def test_words_that_a_pasted_command_writes_together() -> None:
    """Brackets of an array, the end of a command, and arguments within quotes are no part of a value."""
    text = (
        'ARGS=(--one 96 --two 1024)\nMORE+=( --three 3)\nALL="--four 4 --five 5"\nrun ${ARGS[@]} --six $(nproc --all) ;'
        "\n(run --seven ([0]*3+[1]*58))\nbash -c 'run --eight 8'\nrun --nine=9; echo 1 2>&1 | tee log\n--ten 10& wait"
    )
    found, _ = arguments(text, "script")
    assert [(one.name, one.values, one.where.column) for one in found] == [
        ("one", ("96",), 7),
        ("two", ("1024",), 16),
        ("three", ("3",), 9),
        ("four", ("4",), 6),
        ("five", ("5",), 15),
        ("six", ("$(nproc --all)",), 16),
        ("seven", ("([0]*3+[1]*58)",), 6),
        ("eight", ("8",), 14),
        ("nine", ("9",), 5),
        ("ten", ("10",), 1),
    ]


def test_sequence_parallelism_of_one_rank_is_none(tmp_path: Path) -> None:
    """Megatron-LM switches it off (arguments.py), and the plan has no warning of it."""
    text = MIXTRAL.replace("--tensor-model-parallel-size 4", "--tensor-model-parallel-size 1")
    given = made(tmp_path, text, "arguments.sh", devices=64)
    plan = load_plan(given.text)
    assert (plan.parallelism.sequence, plan.warnings) == ("off", ())
    assert ["`--sequence-parallel` without tensor parallelism" in note.message for note in given.notes].count(True) == 1


def test_megatron_hides_what_it_is_told_to(tmp_path: Path) -> None:
    """Nothing is overlapped that no argument asks for, but the gathers behind weight gradients that need none."""
    quiet = load_plan(made(tmp_path, MIXTRAL, "arguments.sh", devices=64).text).stack.overlap
    assert (quiet.tensor, quiet.data, quiet.gather) == ("weight_gradient", "none", "none")
    asked = f"{MIXTRAL} --tp-comm-overlap --overlap-grad-reduce --overlap-param-gather --cross-entropy-loss-fusion"
    plan = load_plan(made(tmp_path, asked, "arguments.sh", devices=64).text)
    assert (plan.stack.overlap.tensor, plan.stack.overlap.data, plan.stack.overlap.gather) == (
        "matmul",
        "backward",
        "layer",
    )
    assert plan.kernels.loss == "fused"


def test_every_argument_that_is_left_out_is_told(tmp_path: Path) -> None:
    """Arguments that change memory or time have a note each; learning rates and log files have none."""
    text = f"{GPT3} --distribute-saved-activations --lr-decay-style cosine --log-interval 10 --optimizer-cpu-offload"
    notes = [note.message for note in made(tmp_path, text, "arguments.sh").notes]
    assert notes == [
        "`--distribute-saved-activations` is not carried over",
        "`--optimizer-cpu-offload` is not carried over",
    ]


SIZES = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64 --vocab-size 128"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--num-experts 4 --moe-layer-freq ([0]*3+[1]*99999999)", "`--moe-layer-freq` is `([0]*3+[1]*99999999)`"),
        ("--num-experts 4 --moe-layer-freq [1,1]", "`--moe-layer-freq` is `[1,1]`, for 4 layers"),
        ("--num-experts 4 --moe-layer-freq ([0]*", "`--moe-layer-freq` is `([0]*`, for 4 layers"),
        ("--num-experts 4 --moe-layer-freq 0", "`--moe-layer-freq` is `0`, for 4 layers"),
        ("--window-size (a,b)", "`--window-size` is `(a,b)`"),
        ("--rotary-percent 1e999", "`--rotary-percent` is `1e999`"),
        ("--hidden-dropout 5", "`--hidden-dropout` is `5`"),
        ("--tensor-model-parallel-size 0", "`--tensor-model-parallel-size` is `0`"),
        ("--num-layers 99999999", "`--num-layers` is `99999999`"),
        ("--hidden-size $((1/0))", "`--hidden-size` is `$((1/0))`"),
    ],
)
def test_a_value_that_no_script_can_have_is_a_problem(tmp_path: Path, given: str, said: str) -> None:
    """With its place, and without a traceback or a list of a hundred million layers."""
    (problem,) = refused(tmp_path, f"{SIZES} {given}").problems
    assert problem.message.startswith(said)
    assert problem.where.column > len(SIZES)
    assert problem.help


def test_a_script_that_says_little_is_a_plan_that_holds(tmp_path: Path) -> None:
    """Three stages are no part of a node of 8; fp32 has no fused attention; MXFP8 runs on no H100."""
    odd = load_plan(made(tmp_path, f"{SIZES} --num-layers 6 --pipeline-model-parallel-size 3", "a.sh").text)
    assert (odd.cluster.devices, odd.parallelism.data, odd.kernels.attention) == (3, 1, "fused_softmax")
    narrow = load_plan(made(tmp_path, f"{SIZES} --bf16 --fp8-format e4m3 --fp8-recipe mxfp8", "a.sh").text)
    assert (narrow.accelerator.name, narrow.precision.name) == ("b200", "mxfp8")


def test_what_the_model_of_a_file_breaks_is_told(tmp_path: Path) -> None:
    """A configuration that transformers takes, and no device could run: 256 experts in 7 equal groups."""
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_v3", "n_group": 7}')
    (note,) = imported(tmp_path / "config.json").notes
    assert note.message.startswith("the model does not hold as it is: 256 experts of `experts` are no 7 equal groups")
