"""torchtitan's jobs as specs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.spec.load import load_model, load_plan
from tests.spec.foreign import loaded, made, refused

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
JOB = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 4
seq_len = 8192
"""


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


@pytest.mark.parametrize(("gathered", "weights"), [("true", "gathered"), ("false", "anew")])
def test_gathers_in_fp8_are_carried_over(tmp_path: Path, gathered: str, weights: str) -> None:
    """`enable_fsdp_float8_all_gather`: shares are quantised before FSDP gathers them."""
    text = JOB + (
        "[parallelism]\ndata_parallel_shard_degree = -1\n"
        f"[float8]\nenable_float8_linear = true\nenable_fsdp_float8_all_gather = {gathered}\n"
    )
    matmul = load_plan(made(tmp_path, text).text).precision.matmul
    assert matmul is not None
    assert matmul.weights == weights


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
        (JOB + "a" + ".a" * 200 + " = 1\n", "a key of more parts than any setting", 8),
    ],
)
def test_a_value_that_no_job_can_have_is_a_problem(tmp_path: Path, text: str, said: str, line: int) -> None:
    """With its line, and without a traceback."""
    (problem,) = refused(tmp_path, text, "job.toml").problems
    assert problem.message.startswith(said)
    assert (problem.where.line, bool(problem.help)) == (line, True)


def test_a_loss_over_whole_logits_is_the_stack_s(tmp_path: Path) -> None:
    """`disable_loss_parallel` gathers them where the vocabulary is split, and says nothing elsewhere."""
    for degree, gathered in ((2, True), (1, False)):
        text = JOB + f"[parallelism]\ndisable_loss_parallel = true\ntensor_parallel_degree = {degree}\n"
        given = made(tmp_path, text)
        assert load_plan(given.text).stack.gathered_logits == gathered
        assert not [note for note in given.notes if "loss_parallel" in note.message]
