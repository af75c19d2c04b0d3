"""What `ledger bench` does on a GPU, where there is none: on fake tensors at full size, and with a CPU in its place."""

from __future__ import annotations

import gc
import inspect
import json
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ledger.evidence.documents import read_evidence
from ledger.lab.bench import (
    attention,
    collective_rank,
    gpu,
    grouped,
    launches,
    links,
    machine,
    matmuls,
    runner,
    steps,
    streams,
    table,
    timing,
    updates,
    worker,
)
from ledger.lab.bench import step_plans as plans
from ledger.lab.bench.cases import BenchCase, BenchResult, DeviceLimits
from ledger.lab.bench.records import append_record, open_evidence
from ledger.lab.bench.rig import Rig, run_case
from ledger.lab.calibration.calibrate import fit_all
from ledger.lab.calibration.curves import choose
from ledger.lab.reference.cuda_guard import install_cuda_guard
from ledger.lab.reference.modules import imaginary_gpu
from ledger.lab.reference.optimizers import FakeScalars
from tests.lab.cuda_on_cpu import GIB, Device

install_cuda_guard()  # before the first backward pass of this process, which starts a thread for each device there is
H200 = DeviceLimits("cuda", 143771 * 2**20, 60 * 2**20, 1, ("bf16", "fp8", "tf32"))
BUILDS = {
    "matmul": matmuls.build,
    "attention": attention.build,
    "stream": streams.build,
    "optimizer": updates.build,
    "host_link": links.build,
    "grouped": grouped.build,
}
SAID = {"graphics_clock": "1755", "power": "690.5", "utilisation": "0", "driver": "580.1", "power_limit": "700.0"}
# What a CPU has no kernel for, in PyTorch's words: attention of cuDNN and CUTLASS, and the gradient of a fused norm.
NO_KERNEL = ("RuntimeError: No available", "RuntimeError: No viable", "NotImplementedError: Could not run")
LACKING = ("attention.cudnn.", "attention.efficient.", "norm.backward")
SMALL = {
    "model.d_model": 32,
    "model.vocab": 128,
    "model.layers.0.repeat": 2,
    "model.layers.0.attention.heads": 2,
    "model.layers.0.attention.kv_heads": 2,
    "model.layers.0.attention.head_dim": 16,
    **plans.NO_DROPOUT,
    "run.seq_len": 16,
    "run.micro_batch": 2,
    "run.global_batch": 2,
}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """A device that nobody else uses, and a driver that answers."""
    found = Device()
    found.install(monkeypatch)
    monkeypatch.setattr(gpu, "_ask_nvml", lambda _, keys: {key: SAID[key] for key in keys if key in SAID})
    monkeypatch.setattr(machine, "IDLE", 0.0)
    monkeypatch.setattr(gpu, "INTERVAL", 0.001)
    torch.set_num_threads(1)
    yield found
    gc.unfreeze()


@pytest.mark.parametrize("kind", BUILDS)
def test_every_kernel_is_called_as_pytorch_wants_it(kind: str) -> None:
    """At full size, on fake CUDA tensors, whose shape functions check layouts, dtypes, scales and offsets."""
    rig = Rig("cuda:0", H200, seconds=0.2, hold=1.0)
    for case in _one_of_each(H200, (kind,)) if kind != "matmul" else table.suite(H200, (kind,)):
        with FakeTensorMode(), imaginary_gpu():
            made = BUILDS[kind](case, rig)
            results = made.run(made.sets - 1)
            if kind in ("matmul", "grouped"):
                rows, columns = results.shape[-2:]
                every = case.keys.get("groups", 1) if case.keys["layout"] != "weight_gradient" else 1
                assert (rows, columns) == (case.keys.get("rows", case.keys.get("m")) * every, case.keys["n"]), case


@pytest.mark.parametrize("name", [pytest.param("gpt2", marks=pytest.mark.long), "llama-3-70b-2-layers"])
def test_whole_steps_run_on_fake_cuda_tensors(name: str) -> None:
    """Models, fused updates and recomputation at their real width, without a byte of them."""
    for case in plans.plan_cases(H200):
        if case.keys["id"] in (f"{name}-eager", f"{name}-recompute"):
            with FakeTensorMode(), imaginary_gpu(), FakeScalars():
                step = steps.training_step(steps.step_plan(case, "cuda"), "cuda:0")
                step()
                assert step().device.type == "cuda"


@pytest.fixture
def shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cases of sizes that a CPU makes in no time."""
    sizes: dict[Any, dict[str, Any]] = {
        matmuls: {"CUDA_LAYERS": ((32, 48), (64, 32), (16, 64)), "CUDA_TOKENS": (16, 32, 64)},
        attention: {
            "CUDA_LENGTHS": (16, 32, 64),
            "CUDA_WIDTH": 128,
            "TOKENS": 64,
            "SHARED_KEYS": (1, 4, 2, 32, 32),
            "UNMASKED": (1, 2, 2, 32, 32),
        },
        streams: {"SHAPES": {("cuda", False): ((8, 32), (16, 64)), ("cuda", True): ((8, 128), (16, 256))}},
        updates: {"CUDA_WIDTHS": ((16, 1), (16, 2))},
        links: {"SIZES": (1024, 4096)},
        grouped: {"EXPERTS": ((2, 32, 48),), "ROWS": (16, 32)},
        launches: {"ROUNDS": 10, "LAYERS": 1, "NOTHING": {**launches.NOTHING, "model.layers.0.repeat": 1}},
    }
    for module, changes in sizes.items():
        for name, value in changes.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(timing, "CUDA_SAMPLE", 1e-4)


def _one_of_each(limits: DeviceLimits, kinds: tuple[str, ...] = ()) -> list[BenchCase]:
    """A case of every sort: those that differ in more than their sizes."""
    found: dict[str, BenchCase] = {}
    for case in table.suite(limits, kinds):
        sort = {key: value for key, value in case.keys.items() if isinstance(value, str | bool)}
        found.setdefault(f"{case.what} {sort}", case)
    return sorted(found.values(), key=lambda case: case.kind)


def _rig(found: machine.Machine) -> Rig:
    return Rig("cpu", replace(found.limits, cache=2**14), seconds=0.001, hold=0.01, uuid=found.uuid)


def test_every_kind_is_measured_on_a_gpu(device: Device, shrunk: None) -> None:
    """Events, graphs and the driver's answers become records; attention that a CPU has not, one with the reason."""
    found = machine.find_device("cuda", 0, quick=False)
    cases = [case for case in _one_of_each(found.limits) if case.kind != "step"]
    results = {index: result for index, result in worker.measure_cases(cases, _rig(found), found) if result is not None}
    assert sorted(results) == list(range(len(cases)))
    kinds, drawn = set(), set()
    for case, result in zip(cases, (results[index] for index in range(len(cases))), strict=True):
        if "error" in result:
            assert case.what.startswith(LACKING), (case, result)
            assert result["error"].startswith(NO_KERNEL)
            continue
        kinds.add(case.kind)
        assert 0 < result["low"] <= result["value"] <= result["high"], case
        powered = case.kind in ("matmul", "attention", "convolution", "grouped")
        assert result["regime"] == ("burst" if powered else "sustained"), case
        drawn |= {result[key] for key in ("graphics_clock", "power") if key in result}
        assert powered or not drawn & set(result.values())
    assert kinds == {kind.name for kind in table.KINDS} - {"step", "collective"}
    assert drawn == {"1755 MHz", "690.5 W"}


@pytest.mark.parametrize("variant", ["eager", "recompute"])
def test_a_step_is_measured_on_a_gpu(device: Device, variant: str) -> None:
    """Seconds, and the bytes over what other cases left: 3 GiB at most, of which 1 GiB was there before."""
    found = machine.find_device("cuda:0", 0, quick=True)
    changes = {"model": "gpt2", **plans.CUDA_VARIANTS[variant], **plans.ALLOCATOR, **SMALL}
    (one,) = steps.STEP.measure([BenchCase("step", "step", {"id": "tiny", "set": changes})], _rig(found))
    assert not one.failed, one
    assert one.result["measured"]["memory.peak"] == f"{2 * GIB} B"
    assert one.result["measured"]["memory.reserved"] == f"{4 * GIB} B"
    assert one.result["power"] == "690.5 W"
    assert float(one.result["measured"]["time.step"].split()[0]) > 0


@pytest.mark.filterwarnings("ignore")  # Dynamo warns of itself, and an error inside it is another one
@pytest.mark.parametrize("variant", [pytest.param("compile", marks=pytest.mark.long), "compile-recompute"])
def test_compiled_layers_are_one_graph_for_all(monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    """Checkpointed or not: no break, and no layer compiled again, which after eight of them would end compiling."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    traced = partialmethod(torch.nn.Module.compile, backend="aot_eager")  # the same graphs, not made into machine code
    monkeypatch.setattr(torch.nn.Module, "compile", traced)
    changes = {"model": "gpt2", **plans.CUDA_VARIANTS[variant], **SMALL, "model.layers.0.repeat": 10}
    step = steps.training_step(
        steps.step_plan(BenchCase("step", "step", {"id": "tiny", "set": changes}), "cuda"), "cpu"
    )
    assert float(step()) > float(step())
    assert (counters["stats"]["unique_graphs"], dict(counters["frames"])) == (1, {"total": 1, "ok": 1})
    assert not counters["graph_break"]
    torch.compiler.reset()


def test_a_gpu_says_what_it_is(device: Device) -> None:
    """The head of a file has the accelerator of the library, the driver, its limits, and what memory was free."""
    found = machine.find_device("cuda", 0, quick=False)
    assert (found.name, found.place, found.uuid) == ("h200-sxm", "cuda:0", f"GPU-{device.about.uuid}")
    assert found.limits.dtypes == ("bf16", "fp8", "tf32")
    assert found.hardware["devices"] == 1
    assert (found.origin["driver"], found.origin["power_limit"]) == ("580.1", "700.0 W")
    assert found.origin["free_memory"] == "142097 MiB of 143051 MiB"


def _invented(case: BenchCase) -> dict[str, Any]:
    """A result that a device could give: matmuls at 600 TFLOP/s, all else at 3 TB/s and 5 us."""
    if case.kind == "step":
        return {
            "measured": {"time.step": "0.2 s", "memory.peak": "40 GiB"},
            "low": "0.19 s",
            "high": "0.21 s",
            "count": 9,
        }
    sizes = case.keys
    seconds = 5e-6 + float(sizes.get("bytes", 0)) / 3e12
    if "k" in sizes:
        seconds += 2 * sizes.get("m", sizes.get("groups", 1) * sizes.get("rows", 0)) * sizes["n"] * sizes["k"] / 6e14
    if case.kind == "attention":
        seconds += 4 * sizes["batch"] * sizes["heads"] * sizes["seq"] ** 2 * sizes["head_dim"] / 4e14
    value = seconds * 1e6
    drawn = {"graphics_clock": "1755 MHz", "power": "690 W"}
    return {"value": value, "unit": "us", "low": value, "high": value, "count": 9, "regime": "sustained", **drawn}


def test_what_a_gpu_gives_is_read_fitted_and_scored(device: Device, tmp_path: Path) -> None:
    """Every record of a full suite is one that `calibrate` and `score` take; variants of fp8 are no price of it."""
    found = machine.find_device("cuda", 0, quick=False)
    file = open_evidence(tmp_path / "h200.yaml", runner.file_head(found, datetime(2026, 1, 2, tzinfo=UTC)))
    for case in table.suite(found.limits):
        append_record(file, BenchResult(case, _invented(case)))
    evidence = read_evidence(file.path)
    (fitted,) = fit_all([evidence])
    kernels = {one.kind.kernel for one in fitted.sets if str(one.kind.what) == "matmul.fp8"}
    assert kernels == {"", matmuls.SLOW, matmuls.ROWS}
    (price,) = (one for one in choose(fitted.sets) if str(one.kind.what) == "matmul.fp8")
    assert price.kind.kernel == ""
    assert [run.id for run in read_evidence(file.path).runs] == [
        case.keys["id"] for case in plans.plan_cases(found.limits)
    ]


def test_a_gpu_that_another_process_has_for_itself_is_named(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own words, and no traceback."""

    def refused(_: object) -> None:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCompile with `...`")

    monkeypatch.setattr(torch.cuda, "set_device", refused)
    with pytest.raises(machine.NoDeviceError, match="cuda cannot be used: RuntimeError: CUDA error: CUDA-capable"):
        machine.find_device("cuda", 0, quick=False)


def test_without_a_driver_to_ask_memory_tells_of_others(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither NVML nor nvidia-smi: what others hold is known to CUDA itself."""
    monkeypatch.setattr(gpu, "ask_driver", lambda *_: {})
    found = machine.find_device("cuda", 0, quick=False)
    assert found.origin.keys().isdisjoint({"driver", "power_limit"})
    assert machine.busy_reason(found) == ""
    device.free = device.about.total_memory // 2
    assert machine.busy_reason(found) == "the device may be busy: others hold 50% of its memory"


@pytest.mark.parametrize(("shares", "reason"), [((0.9, 0.0), ""), ((0.9, 0.8, 0.5), "50% used by others")])
def test_a_device_is_busy_when_it_stays_so(
    device: Device, monkeypatch: pytest.MonkeyPatch, shares: tuple[float, ...], reason: str
) -> None:
    """What a driver says first may be about the kernels that we ran before."""
    found, answers = machine.find_device("cuda", 0, quick=False), iter(shares)
    monkeypatch.setattr(gpu, "utilisation", lambda _: next(answers))
    assert machine.busy_reason(found) == (f"the device is busy: {reason}" if reason else "")


class Buffer:
    """Stands for a tensor that only an exception's frames still hold."""


def test_a_case_out_of_memory_leaves_nothing_behind(device: Device) -> None:
    """When the cache is emptied, the frames that the exception passed are gone, and their buffers with them."""
    held: list[weakref.ref[Buffer]] = []
    alive: list[bool] = []
    device.emptied.append(lambda: alive.append(held[0]() is not None))

    def run() -> Any:
        buffer = Buffer()
        held.append(weakref.ref(buffer))
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    one = run_case(BenchCase("stream", "copy", {}), _rig(machine.find_device("cuda", 0, quick=False)), run)
    assert one.result == {"error": "out of memory: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."}
    assert alive == [False]


ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_device_that_a_case_breaks_is_not_used_again(device: Device, shrunk: None, *, asynchronous: bool) -> None:
    """The case has the error, whether it was raised where it happened or later; the cases after it are not touched."""
    found = machine.find_device("cuda", 0, quick=False)
    cases = _one_of_each(found.limits, ("optimizer",))
    answers: list[tuple[int, Any]] = []

    def break_off() -> None:
        for answer in worker.measure_cases(cases, _rig(found), found):
            answers.append(answer)
            if answer == (1, None):
                device.broken = ILLEGAL

    with pytest.raises(timing.DeviceLostError):
        break_off()
    assert [index for index, _ in answers] == [0, 0, 1, 1]
    assert answers[-1][1] == {"error": f"RuntimeError: {ILLEGAL.splitlines()[0]}"}


@pytest.mark.long
def test_a_suite_goes_on_behind_a_broken_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Processes to file: the case that broke it has CUDA's words, and another process made the rest."""
    program = "import sys; from tests.lab.cuda_on_cpu import serve; serve(*sys.argv[1:])"
    monkeypatch.setattr(runner, "COMMAND", (sys.executable, "-c", program, str(tmp_path / "broken"), ILLEGAL))
    settings = runner.BenchSettings("cuda", quick=True, seconds=0.001, hold=0.001, only=("launch",))
    run = runner.bench(settings, lambda name: tmp_path / name, begin=lambda *_: None)
    results = {one.case.keys["operation"]: one.result for _, one in run if one}
    errors = {name: result["error"] for name, result in results.items() if "error" in result}
    assert errors == {"device": f"RuntimeError: {ILLEGAL.splitlines()[0]}"}
    assert set(results) == {"host", "device", "graph", "autograd", "training"}
    (path,) = tmp_path.glob("h200-sxm-*.yaml")
    evidence = read_evidence(path)
    assert (len(evidence.microbenchmarks), len(evidence.failed)) == (4, 1)
    assert "driver" not in evidence.origin  # nobody can be asked here


def test_what_a_graph_cannot_hold_spoils_the_process(device: Device, shrunk: None) -> None:
    """PyTorch stays in a capture that failed, so the case has the reason and the next worker goes on."""
    rig = _rig(machine.find_device("cuda", 0, quick=False))
    waiting = timing.TimedWork(lambda _: torch.ones(()).item())
    with pytest.raises(
        timing.DeviceLostError, match="cannot be recorded into a CUDA graph: RuntimeError: CUDA error: oper"
    ):
        run_case(BenchCase("stream", "copy", {}), rig, lambda: rig.time_work(waiting))


def test_an_error_of_several_lines_says_its_cause() -> None:
    """Inductor's first line only names itself."""
    told = timing.error_line(ValueError("backend='inductor' raised:\n  gcc is not there\nSet TORCHDYNAMO_VERBOSE=1"))
    assert told == "ValueError: backend='inductor' raised: gcc is not there"
    assert timing.error_line(ValueError()) == "ValueError"


def test_kernels_that_wait_are_not_recorded(device: Device) -> None:
    """The stand-in for a graph refuses what a real one does: the table must say which kernels these are."""
    waits = {(stream.what, stream.operation) for stream in streams.STREAMS if stream.waits}
    assert waits == {("embedding", "lookup.gradient")}


def test_clock_and_power_are_those_of_the_samples_that_count() -> None:
    """Medians between two moments; what a driver does not say is left out."""
    watch = gpu.PowerMonitor(dict)
    said = [(1.0, "300"), (2.0, "690"), (2.5, "700"), (3.0, "[N/A]"), (3.5, "695"), (9.0, "90")]
    watch.readings.extend((moment, {"power": value}) for moment, value in said)
    assert watch.medians(1.5, 4.0) == {"power": "695 W"}
    assert watch.medians(4.0, 8.0) == {}


@pytest.mark.parametrize(("visible", "node", "found"), [(None, True, True), ("", True, False), (None, False, False)])
def test_auto_takes_a_gpu_that_may_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str | None, *, node: bool, found: bool
) -> None:
    """A device node tells of one where nvidia-smi is missing; CUDA_VISIBLE_DEVICES hides it."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if node:
        (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpu, "NODES", tmp_path)
    monkeypatch.setattr(gpu, "_ask_smi", lambda *_: {})
    assert gpu.has_gpu() is found


class Nvml:
    """pynvml of a part of a GPU: it knows its driver and its clock, and no power."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        """As the library's own."""

    def __getattr__(self, name: str) -> Any:
        answers = {"nvmlSystemGetDriverVersion": b"580.1", "nvmlDeviceGetClockInfo": 1980}

        def call(*_: object) -> Any:
            if name in ("nvmlInit", "nvmlDeviceGetHandleByUUID"):
                return None
            if name not in answers:
                raise self.NVMLError(name)
            return answers[name]

        return call


def test_nvml_leaves_out_what_a_part_of_a_gpu_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """One field that is not supported must not cost the others; old bindings answer in bytes."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    assert gpu.ask_driver("GPU-1", ("driver", "power", "graphics_clock")) == {
        "driver": "580.1",
        "graphics_clock": "1980",
    }
    assert gpu.driver_origin("GPU-1")["graphics_clock"] == "1980 MHz"
    assert gpu.utilisation("GPU-1") is None


@pytest.mark.filterwarnings("ignore:.*is deprecated. Please use `torch.distributed:FutureWarning")  # since 2.13
def test_ranks_of_nccl_make_every_collective(
    device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks of which one is imagined, on fake CUDA tensors: the calls are those that PyTorch takes."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    began: dict[str, Any] = {}
    start = collective_rank.distributed.init_process_group

    def begin(*args: Any, **named: Any) -> None:
        began.update(inspect.signature(start).bind(*args, **named).arguments)
        start("fake", rank=0, world_size=2, store=FakeStore())

    monkeypatch.setattr(collective_rank.distributed, "init_process_group", begin)
    monkeypatch.setenv("LOCAL_RANK", "0")
    wide = DeviceLimits("cuda", 2**36, 2**25, 2, ("bf16",))
    records = [case.record for case in table.suite(wide, ("collective",))]
    (tmp_path / "tasks.json").write_text(json.dumps(records), encoding="utf-8")
    with FakeTensorMode(), FakeScalars():
        collective_rank.main(str(tmp_path / "tasks.json"), 0.001)
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (began["backend"], began["device_id"]) == ("nccl", torch.device("cuda:0"))
    assert len(results) == len(records)
    assert all(result["value"] > 0 for result in results), results
