"""Megatron-LM's arguments as specs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ledger.spec.imports.megatron.script import arguments
from ledger.spec.load import load_model, load_plan
from ledger.spec.problems import SpecError
from tests.spec.foreign import loaded, made, refused, spec

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
SIZES = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64 --vocab-size 128"


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
        for group, known in zip(model.groups, library.groups, strict=True):
            assert group.repeat == known.repeat
            for size in ("heads", "kv_heads", "head_dim", "q_rank", "kv_rank", "rope_head_dim", "v_head_dim"):
                assert getattr(group.attention, size) == getattr(known.attention, size), size
            for size in ("d_ff", "experts", "top_k", "shared_d_ff"):
                assert getattr(group.mlp, size) == getattr(known.mlp, size), size


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


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("if [ $A ]; then L=32; else L=80; fi\nrun --one $L", "$L"),
        ("case $A in a) L=3;; b) L=9;; esac\nrun --one $L", "$L"),
        ("L=32\nif [ $A ]; then\n  L=80\nfi\nL=4\nrun --one $L", "4"),
        ("if [ -z $L ]; then L=32; fi\nrun --one $L", "32"),
        ("L=2\nL+=4\nrun --one $L", "24"),
        ("run --one $((7 / 2))", "3"),
        ("run --one $((-7 / 2 + 10))", "$((-7 / 2 + 10))"),
    ],
)
def test_a_variable_has_the_value_that_a_shell_gives_it(script: str, value: str) -> None:
    """Where branches give several, or a sum is not known, it stays as it is written."""
    ((found,), _) = arguments(script, "script")
    assert found.value == value


def test_an_argument_that_is_given_twice_is_told(tmp_path: Path) -> None:
    """The last holds, as in argparse; it may be of another command."""
    told = [note.message for note in made(tmp_path, f"{GPT3}\necho --num-layers 78", "a.sh").notes]
    assert told[0] == "`--num-layers` was `96` in line 13; this one holds: `78`"


def test_a_variable_that_grows_has_no_value() -> None:
    """Twenty thousand characters behind each other, line after line, would take all memory."""
    found, variables = arguments(f"B={'x' * 19_000}\n" + "A+=$B\n" * 9 + "run --one $A", "script")
    assert (found[0].value, "A" in variables) == ("$A", False)


@pytest.mark.parametrize("piece", ["$((", "${a:-", "$(", "`", '"', '\\"', "'", ")", "$a", "a=(", "--a"])
def test_what_is_opened_a_thousand_times_is_read_at_once(piece: str) -> None:
    """In seconds of the processor, whatever is opened and never closed."""
    before = time.process_time()
    many = piece * (190_000 // len(piece))
    arguments(f"A={many}", "script")
    arguments(f"--a {' '.join(many[:90_000])}", "script")
    assert time.process_time() - before < 5
    with pytest.raises(SpecError, match="more than 200,000 characters"):
        arguments(piece * 200_001, "script")


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
        "userbuffers",
        "backward",
        "layer",
    )
    assert (plan.kernels.loss, plan.stack.loss_sums) == ("softmax_in_place", "joined")
    engine = load_plan(made(tmp_path, f"{asked} --cross-entropy-fusion-impl te", "arguments.sh", devices=64).text)
    assert (engine.kernels.loss, engine.stack.loss_sums) == ("fused", "gathered")
    plain = load_plan(made(tmp_path, MIXTRAL, "arguments.sh", devices=64).text)
    assert (plain.kernels.loss, plain.stack.loss_sums) == ("softmax_in_place", "apart")


def test_every_argument_that_is_left_out_is_told(tmp_path: Path) -> None:
    """Arguments that change memory or time have a note each; learning rates and log files have none."""
    text = f"{GPT3} --distribute-saved-activations --lr-decay-style cosine --log-interval 10 --optimizer-cpu-offload"
    notes = [note.message for note in made(tmp_path, text, "arguments.sh").notes]
    assert notes == [
        "`--distribute-saved-activations` is not carried over",
        "`--optimizer-cpu-offload` is not carried over",
    ]


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


def test_grouped_queries_have_one_group_where_none_is_said(tmp_path: Path) -> None:
    """Megatron-LM's own default (arguments.py, `--num-query-groups`)."""
    model = load_model(loaded(tmp_path, f"{SIZES} --group-query-attention"))
    assert model.groups[0].attention.kv_heads == 1


def test_devices_that_hold_no_whole_copies_are_told(tmp_path: Path) -> None:
    """A plan has as many as copies of the model need, and says where that is not what was asked for."""
    text = f"{SIZES} --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"
    given = made(tmp_path, text, "a.sh", devices=31)
    assert load_plan(given.text).cluster.devices == 8
    assert any("= 4, which does not divide 31 devices" in note.message for note in given.notes)
    assert not any("devices" in note.message for note in made(tmp_path, text, "a.sh", devices=64).notes)


def test_two_precisions_are_refused(tmp_path: Path) -> None:
    """Megatron-LM takes one of them."""
    (problem,) = refused(tmp_path, f"{SIZES} --bf16 --fp16").problems
    assert problem.message == "both `--bf16` and `--fp16`"
