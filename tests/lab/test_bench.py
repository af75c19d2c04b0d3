"""What `ledger bench` measures, and what it makes of devices, workers and worlds that fail."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ledger import compile as compiled
from ledger.cli.bench import SHORTER
from ledger.evidence.microbenchmarks.records import identity
from ledger.lab.bench import collectives, gpu, machine, matmuls, runner, steps, streams, timing, worker
from ledger.lab.bench.attention import ATTENTION
from ledger.lab.bench.cases import BenchCase, DeviceLimits, MeasuredDevice
from ledger.lab.bench.launches import LAUNCH
from ledger.lab.bench.matmuls import MATMUL
from ledger.lab.bench.rig import BenchKind, Rig
from ledger.lab.bench.step_plans import NO_DROPOUT, step_records_plan
from ledger.lab.bench.steps import STEP
from ledger.lab.bench.streams import STREAM
from ledger.lab.bench.table import KINDS, suite
from ledger.lab.bench.updates import OPTIMIZER

CPU = DeviceLimits("cpu", 4 * 2**30, 2**20, 2, ("fp32",), quick=True)
H100 = DeviceLimits("cuda", 81559 * 2**20, 50 * 2**20, 1, ("bf16", "fp8", "tf32"))
RIG = Rig("cpu", CPU, seconds=0.002, hold=0.002)
LARGE = (4e7, 1e9)  # bytes of kernels, and of updates, that take too long for a test
MINUTES, QUICK_MINUTES = 9, 2
START = 15.0  # s until a worker has imported torch and transformers, and has found its device
OVERHEAD = 0.2  # s for buffers, warm-up and recording of one case: an H200 took 342 s for 300 cases
STEP_SECONDS = 7.0  # s for building and running one model, on a GPU: twelve steps, and two seconds
COMPILING = 45.0  # s the same, where a layer is compiled first, forward and backward


@pytest.mark.parametrize("limits", [CPU, H100, DeviceLimits("cuda", 24 * 2**30, 72 * 2**20, 8, ("bf16",))])
def test_no_case_is_measured_twice(limits: DeviceLimits) -> None:
    """A suite that held one case twice could never be resumed without doubling it."""
    counts = Counter(identity(case.record) for case in suite(limits))
    assert max(counts.values()) == 1


def test_a_gpu_is_measured_in_all_that_a_step_runs() -> None:
    """Every kind has cases; matmuls have the three layouts, attention both passes of four kernels."""
    cases = suite(H100)
    assert {case.kind for case in cases} == {kind.name for kind in KINDS} - {"collective"}  # one GPU has no others
    layouts = Counter(case.keys["layout"] for case in cases if case.what == "matmul.bf16")
    assert set(layouts) == {"forward", "input_gradient", "weight_gradient"}
    assert layouts["input_gradient"] == layouts["weight_gradient"] <= layouts["forward"]
    fp8 = {(case.keys["layout"], case.keys.get("kernel", "")) for case in cases if case.what == "matmul.fp8"}
    assert {kernel for layout, kernel in fp8 if layout == "forward"} == {"", matmuls.ROWS}
    assert {kernel for layout, kernel in fp8 if layout != "forward"} == {matmuls.SLOW, matmuls.ROWS}
    kernels = {tuple(case.what.split(".")[1:]) for case in cases if case.kind == "attention"}
    assert {name for name, _ in kernels} == {"flash", "efficient", "cudnn", "math"}
    assert {name for _, name in kernels} == {"forward", "backward"}
    assert {
        case.keys["ranks"] for case in suite(DeviceLimits("cuda", 2**36, 2**25, 8, ("bf16",))) if "ranks" in case.keys
    } == {
        2,
        4,
        8,
    }


@pytest.mark.parametrize(("quick", "minutes"), [(False, MINUTES), (True, QUICK_MINUTES)])
def test_a_suite_of_one_gpu_is_planned_for_its_minutes(*, quick: bool, minutes: float) -> None:
    """Seconds for each case, as the settings give them, and what stands around them: compiling above all."""
    settings = runner.BenchSettings("cuda", **(SHORTER if quick else {}))
    cases = suite(replace(H100, quick=quick))
    spent = START + len({case.kind for case in cases}) * (1 if quick else 2) * machine.IDLE
    for case in cases:
        if case.kind == "step":
            spent += COMPILING if "compile" in case.keys["id"] else STEP_SECONDS
        else:
            powered = case.kind in ("matmul", "attention", "convolution", "grouped")
            spent += OVERHEAD + (settings.hold if powered else settings.seconds)
    assert spent < minutes * 60


def test_a_suite_begins_with_what_a_first_look_has() -> None:
    """A run that is cut short has something of every kind, and what it has is what a quick one would measure."""
    first = suite(replace(H100, quick=True))
    assert {identity(case.record) for case in suite(H100)[: len(first)]} == {identity(case.record) for case in first}
    compiled_ones = [case.keys["id"] for case in first if "compile" in str(case.keys.get("id", ""))]
    assert not compiled_ones


def test_a_layer_multiplies_the_same_three_times() -> None:
    """y = x W^T, dx = dy W and dW = dy^T x have the shapes that torch.nn.Linear gives them, and equal FLOPs."""
    import torch

    tokens, wide, out = 5, 7, 11
    x, weight, upstream = torch.randn(tokens, wide), torch.randn(out, wide), torch.randn(tokens, out)
    expected = {"forward": x @ weight.t(), "input_gradient": upstream @ weight, "weight_gradient": upstream.t() @ x}
    given = {"forward": (x, weight), "input_gradient": (upstream, weight), "weight_gradient": (upstream, x)}
    for name, layout in matmuls.LAYOUTS.items():
        m, n, k = layout.of(tokens, wide, out)
        left, right = given[name]
        assert tuple(left.shape) == layout.left(m, n, k)
        assert tuple(right.shape) == layout.right(m, n, k)
        assert torch.equal(layout.multiply(left, right), expected[name])
        assert (m * n * k, tuple(expected[name].shape)) == (tokens * wide * out, (m, n))


BOOKED = {  # accounts of GPT-2 small, the kernel that is measured for each, and its width
    "decoder/attention_residual/add": ("elementwise", "add", 768),
    "decoder/mlp/activation": ("activation.gelu_tanh", "forward", 3072),
    "decoder/mlp/activation.gradient": ("activation.gelu_tanh", "gradient", 3072),
    "decoder/mlp_norm/norm": ("norm.forward", "layer_norm", 768),
    "decoder/mlp_norm/norm.gradient": ("norm.backward", "layer_norm", 768),
    "decoder/mlp/up.bias_gradient": ("reduction", "sum_rows", 3072),
    "loss/cross_entropy/log_softmax": ("cross_entropy", "log_softmax", 50257),
    "loss/cross_entropy/log_softmax.gradient": ("cross_entropy", "log_softmax.gradient", 50257),
}
VECTORS = 3  # as long as a row, that a norm has beside its operands


def test_bytes_are_those_that_the_books_post() -> None:
    """A price is seconds for the bytes that the books count, so a record must count the same (but weights of norms)."""
    plan = steps.step_plan(
        BenchCase("step", "step", {"id": "gpt2", "set": {**NO_DROPOUT, "run.micro_batch": 2, "run.global_batch": 2}}),
        "cpu",
    )
    from ledger.books import compile_plan

    rows = {row.account: row for row in compile_plan(plan).roles[0].kernels}
    for account, (what, operation, width) in BOOKED.items():
        row, stream = rows[account], streams.BY_NAME[what, operation]
        beside = row.bytes - stream.bytes(2 * 128, width, 4)
        assert str(row.kind) == what, account
        assert 0 <= beside <= (VECTORS * 4 * width if what.startswith("norm") else 16), account


def test_an_update_moves_the_bytes_that_the_books_post() -> None:
    """28 B a parameter where one pass does all, and 80 B in the twenty passes of the other implementations."""
    for case in OPTIMIZER.cases(CPU):
        each = case.keys["bytes"] / case.keys["elements"]
        assert each == (28 if case.keys["kernel"] == "fused" else 80)


@pytest.mark.parametrize("times", [8, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
@pytest.mark.parametrize("kind", [LAUNCH, MATMUL, ATTENTION, STREAM, OPTIMIZER], ids=lambda kind: kind.name)
def test_every_case_of_a_quick_suite_runs_on_a_cpu(kind: BenchKind, times: int) -> None:
    """Each gives a median between its quartiles, above zero, of five samples at least."""
    import torch

    torch.set_num_threads(1)
    small = [case for case in kind.cases(CPU) if int(case.keys.get("bytes", 0)) < LARGE[kind is OPTIMIZER]]
    found = list(kind.measure(small[:: times * (5 if kind is MATMUL else 1)], RIG))
    assert found
    for one in found:
        assert not one.failed, one
        assert 0 < one.result["low"] <= one.result["value"] <= one.result["high"]
        assert one.result["count"] >= timing.FEWEST


def test_a_measured_step_trains_the_plan_that_is_priced() -> None:
    """The model has the plan's parameters, and its loss falls where the same batch comes again and again."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    small = {"model.d_model": 64, "model.vocab": 512, "model.layers.0.repeat": 2, "run.seq_len": 32}
    heads = {f"model.layers.0.attention.{key}": 2 for key in ("heads", "kv_heads")}
    changes = {**small, **heads, "model.layers.0.attention.head_dim": 32, **NO_DROPOUT}
    plan = steps.step_plan(BenchCase("step", "step", {"id": "tiny", "set": changes}), "cpu")
    step = steps.training_step(plan, "cpu")
    losses = [float(step()) for _ in range(8)]
    assert losses[-1] < losses[0] < 10
    (found,) = STEP.measure([BenchCase("step", "step", {"id": "tiny", "set": changes})], RIG)
    assert not found.failed, found
    assert found.result["measured"]["time.step"].endswith(" s")


def test_what_cannot_run_is_a_record_with_its_reason() -> None:
    """A kernel that a build lacks fails alone; the case after it is measured."""
    shape = {"batch": 1, "heads": 2, "kv_heads": 2, "seq": 16, "head_dim": 32, "causal": True, "dtype": "fp32"}
    cases = [BenchCase("attention", f"attention.{kernel}.forward", shape) for kernel in ("cudnn", "flash")]
    first, second = ATTENTION.measure(cases, RIG)
    assert first.result["error"].startswith("RuntimeError")
    assert not second.failed


@pytest.mark.long
def test_gloo_measures_two_ranks() -> None:
    """One world makes all of its collectives, in order."""
    keys = {"ranks": 2, "nodes": 1, "bytes": 4096, "backend": "gloo", "dtype": "fp32"}
    cases = [BenchCase("collective", name, keys) for name in collectives.NAMES]
    found = list(collectives.measure(cases, RIG))
    assert [one.case.what for one in found] == list(collectives.NAMES)
    assert all(one.result["value"] > 0 for one in found), found


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise RuntimeError('address in use')", "ended with 1: RuntimeError: address in use"),
        ("import time; time.sleep(60)", "gave no answer in 1 s"),
    ],
)
def test_a_world_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch, program: str, said: str) -> None:
    """Every one of its cases has the reason, and nothing is left running."""
    monkeypatch.setattr(collectives, "command", lambda *_: [sys.executable, "-c", program])
    monkeypatch.setattr(collectives, "PATIENCE", 1.0)
    cases = [case for case in collectives.COLLECTIVE.cases(CPU) if case.what in ("all_reduce", "send")]
    found = list(collectives.measure(cases, RIG))
    assert [one.result["error"] for one in found] == [f"the world of 2 ranks {said}"] * len(cases)


WORKER = """
import json, os, pathlib, signal, sys
count = pathlib.Path({path!r})
starts = int(count.read_text()) if count.exists() else 0
count.write_text(str(starts + 1))
asked = json.loads(sys.stdin.readline())
if starts >= {lives}:
    print(json.dumps(dict(no_device="no CUDA device is left")), flush=True)
    sys.exit()
limits = dict(type="cpu", memory=2**32, cache=2**20, devices=2, dtypes=["fp32"], quick=True)
known = dict(name="a-device", title="A device", place="cpu", origin=dict(torch="2"), hardware=dict(kind="cpu"))
every = [dict(kind="launch", what="launch", keys=dict(operation=name)) for name in {names!r}]
print(json.dumps(dict(device=dict(known, limits=limits), cases=every)), flush=True)
cases = json.loads(sys.stdin.readline())
for index, case in enumerate(cases):
    print(json.dumps(dict(begun=index)), flush=True)
    if case["keys"]["operation"] in {deadly!r}:
        {death}
    print(json.dumps(dict(done=index, result=dict(value=1.0, unit="us"))), flush=True)
print(json.dumps(dict(finished=True)), flush=True)
"""
KILLED, RAISED = "os.kill(os.getpid(), signal.SIGKILL)", "raise SystemError('CUDA error: assert\\nCompile with ...')"
LOST = "[print(json.dumps(one), flush=True) for one in (dict(done=index, result=dict(error='gone')), dict(lost=1))]"
LOST += "; sys.exit()"


def _worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deadly: tuple[str, ...], death: str, lives: int) -> None:
    program = WORKER.format(
        names=("host", "autograd", "module", "training"),
        path=str(tmp_path / "starts"),
        deadly=deadly,
        death=death,
        lives=lives,
    )
    monkeypatch.setattr(runner, "COMMAND", (sys.executable, "-c", program))


@pytest.mark.parametrize(
    ("death", "said"),
    [(KILLED, "killed (signal 9)"), (RAISED, "SystemError: CUDA error: assert"), (LOST, "gone")],
)
def test_a_worker_that_dies_costs_one_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, death: str, said: str
) -> None:
    """The case it died in is kept with the reason, or with what the worker said of it; another makes the rest."""
    _worker(monkeypatch, tmp_path, ("autograd",), death, lives=9)
    settings, begun = runner.BenchSettings("cpu", only=("launch",)), []
    run = runner.bench(settings, lambda name: tmp_path / name, begin=lambda _, count: begun.append(count))
    found = {one.case.keys["operation"]: one.result for _, one in run if one}
    assert begun == [4]
    assert [found[name]["value"] for name in ("host", "module", "training")] == [1.0, 1.0, 1.0]
    assert said in found["autograd"]["error"]


def test_a_device_that_disappears_ends_the_suite_and_keeps_what_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was measured is on disk, the message says how much, and the same call goes on from there."""
    _worker(monkeypatch, tmp_path, ("autograd",), KILLED, lives=1)
    settings = runner.BenchSettings("cpu", only=("launch",))
    path = tmp_path / "device.yaml"
    run = runner.bench(settings, lambda _: path, begin=lambda *_: None)
    with pytest.raises(runner.DeviceError, match="no CUDA device is left; 2 of 4 are kept"):
        list(run)
    assert path.read_text(encoding="utf-8").count("\n  - {") == 2
    _worker(monkeypatch, tmp_path, (), KILLED, lives=9)
    left = [
        one.case.keys["operation"] for _, one in runner.bench(settings, lambda _: path, begin=lambda *_: None) if one
    ]
    assert left == ["module", "training"]


def test_a_busy_device_is_a_record_and_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others do on a GPU would be measured as ours: its cases say so, and --retry makes them later."""
    import torch

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: type("About", (), {"uuid": "1-2"}))
    monkeypatch.setattr(machine, "IDLE", 0.0)
    monkeypatch.setattr(gpu, "utilisation", lambda *_: 0.87)
    found = MeasuredDevice("h100-sxm", "H100", "cuda:0", {}, {}, H100)
    cases = list(LAUNCH.cases(CPU))[:2]
    assert list(worker.measure_cases(cases, RIG, found)) == [
        (index, {"error": "the device is busy: 87% used by others"}) for index in range(2)
    ]


def test_a_device_that_is_not_there_is_named() -> None:
    """No traceback of PyTorch's: what was asked for, and what there is."""
    with pytest.raises(machine.NoDeviceError, match="there is no device `tpu`: give `cpu`, `cuda` or `cuda:1`"):
        machine.find_device("tpu", 1, quick=True)


@pytest.mark.parametrize(
    ("name", "multiprocessors", "mebibytes", "watts", "known"),
    [
        ("NVIDIA H100 80GB HBM3", 132, 81559, "700.0 W", "h100-sxm"),
        ("NVIDIA H200", 132, 143771, "700.0 W", "h200-sxm"),
        ("NVIDIA A100-SXM4-80GB", 108, 81920, "400.0 W", "a100-sxm-80gb"),
        ("NVIDIA GeForce RTX 4090", 128, 24564, "", "rtx-4090"),
        ("NVIDIA GeForce GTX 1060", 10, 6144, "", ""),
    ],
)
def test_a_gpu_is_recognised(name: str, multiprocessors: int, mebibytes: int, watts: str, known: str) -> None:
    """By what its driver calls it, or by its name, size and power limit."""
    assert machine.library_accelerator(name, multiprocessors, mebibytes * 2**20, watts) == known


def test_what_the_driver_does_not_say_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi writes [N/A] in virtual machines."""
    answers = {"driver_version": "580.159.03", "power.limit": "700.00", "clocks.sm": "1980", "clocks.max.sm": "1980"}
    answers |= {"clocks.mem": "[N/A]", "temperature.gpu": "34", "utilization.gpu": "7"}

    def run(command: list[str], **_: object) -> object:
        (query,) = (word.partition("=")[2] for word in command if word.startswith("--query-gpu="))
        return type("Done", (), {"stdout": ", ".join(answers[name] for name in query.split(",")) + "\n"})

    monkeypatch.setattr(gpu.subprocess, "run", run)
    assert gpu.driver_origin("GPU-1") == {
        "driver": "580.159.03",
        "power_limit": "700.00 W",
        "graphics_clock": "1980 MHz",
        "graphics_clock_limit": "1980 MHz",
        "temperature": "34 C",
    }
    assert gpu.utilisation("GPU-1") == pytest.approx(0.07)


def test_a_single_thread_is_timed_by_what_it_ran() -> None:
    """Work that sleeps takes no processor time, and would take all of it by the clock on the wall."""
    import time

    work = timing.TimedWork(lambda _: time.sleep(0.01))
    assert timing.time_on_cpu(work, 0.01, threads=1).value < 0.005
    assert timing.time_on_cpu(work, 0.01, threads=2).value >= 0.01


def test_the_plan_of_a_file_compiles_on_a_published_accelerator(tmp_path: Path) -> None:
    """`ledger score` reads the step records of a measured file: the plan in its head must be whole."""
    import yaml

    path = tmp_path / "steps.yaml"
    path.write_text(yaml.safe_dump(step_records_plan("cuda", "h100-sxm")), encoding="utf-8")
    for case in STEP.cases(H100):
        assert (
            compiled(str(path), [f"{key}={value}" for key, value in case.keys["set"].items()]).totals["time.step"] > 0
        )
    assert json.loads(identity(case.record))["id"] == case.keys["id"]


class Events:
    """Stands in for torch.cuda where there is none: every launch takes so long on a device that falls to its limit."""

    def __init__(self, seconds: float, settled: int) -> None:
        self.seconds, self.settled = seconds, settled
        self.launches = self.graphs = 0
        self.now = 0.0

    def launch(self, _: int) -> None:
        """One kernel: slower after so many of them."""
        self.launches += 1
        self.now += self.seconds * (2 if self.launches > self.settled else 1)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In the places where timing looks for them."""
        import torch

        device = self

        class Event:
            def __init__(self, **_: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                self.at = device.now

            def elapsed_time(self, other: Event) -> float:
                return (other.at - self.at) * 1e3

        class Graph:
            def replay(self) -> None:
                for _ in range(self.inner):
                    device.launch(0)

        @contextmanager
        def graph(recorded: Graph) -> Iterator[None]:
            before, now = device.launches, device.now
            yield
            recorded.inner, device.launches, device.now = device.launches - before, before, now
            device.graphs += 1

        for name, stub in (("Event", Event), ("CUDAGraph", Graph), ("graph", graph), ("synchronize", lambda: None)):
            monkeypatch.setattr(torch.cuda, name, stub)


def test_short_kernels_are_replayed_from_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of 5 us ends before the host has sent the next."""
    device = Events(5e-6, 10**9)
    device.install(monkeypatch)
    found = timing.time_on_cuda(timing.TimedWork(device.launch), 0.0)
    assert found.value == pytest.approx(5e-6)
    assert (found.timer, device.graphs) == ("device events, CUDA graph", 1)


def test_long_kernels_are_launched_and_the_settled_half_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of 3 ms needs no graph; what it takes once the device is at its limit is what is written."""
    device = Events(3e-3, 8)  # as many as the warm-up and the estimate take
    device.install(monkeypatch)
    found = timing.time_on_cuda(timing.TimedWork(device.launch), 0.05)
    assert found.value == found.low == found.high == pytest.approx(6e-3)
    assert device.graphs == 0
