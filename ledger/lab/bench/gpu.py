"""The driver, power limit and clocks that a CUDA device reports, how busy others keep it, and what it draws at work.

Asks NVML where its Python package is installed, else nvidia-smi; what neither says is left out, field by field.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

# What is asked: nvidia-smi's name of it, how NVML says the same, and its unit.
Asked = tuple[str, Callable[[Any, Any], object], str]
ASKED: Mapping[str, Asked] = {
    "driver": ("driver_version", lambda nvml, _: nvml.nvmlSystemGetDriverVersion(), ""),
    "power_limit": ("power.limit", lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000, "W"),
    "graphics_clock": ("clocks.sm", lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM), "MHz"),
    "graphics_clock_limit": (
        "clocks.max.sm",
        lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "MHz",
    ),
    "memory_clock": ("clocks.mem", lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM), "MHz"),
    "temperature": (
        "temperature.gpu",
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        "C",
    ),
    "power": ("power.draw", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000, "W"),
    "utilisation": ("utilization.gpu", lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu, ""),
}
HEAD_KEYS = ("driver", "power_limit", "graphics_clock", "graphics_clock_limit", "memory_clock", "temperature")
LOAD_KEYS = ("graphics_clock", "power")
INTERVAL = 0.05  # seconds between two questions to a device at work
HIDDEN = ("", "-1")  # values of CUDA_VISIBLE_DEVICES that leave no device
NODES = Path("/dev")


def ask_driver(uuid: str, keys: Iterable[str]) -> dict[str, str]:
    """The driver's answers on the device, by the keys of ASKED; empty where it cannot be asked."""
    asked_keys = tuple(keys)
    return _ask_nvml(uuid, asked_keys) or _ask_smi(uuid, asked_keys)


def _ask_nvml(uuid: str, keys: tuple[str, ...]) -> dict[str, str]:
    try:
        import pynvml  # type: ignore[import-not-found]  # part of no requirement; asked only where it is there
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return {}
    answers = {}
    for key in keys:
        try:
            value = ASKED[key][1](pynvml, gpu)
        except pynvml.NVMLError:  # a part of a device, or one of a virtual machine, does not say everything
            continue
        answers[key] = value.decode() if isinstance(value, bytes) else str(value)
    return answers


def _ask_smi(uuid: str, keys: tuple[str, ...]) -> dict[str, str]:
    query = ",".join(ASKED[key][0] for key in keys)
    command = ["nvidia-smi", f"--id={uuid}", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        answer: Any = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in answer.stdout.splitlines()[0].split(",")] if answer.stdout.strip() else []
    return {key: value for key, value in zip(keys, values, strict=False) if value and not value.startswith("[")}


def driver_origin(uuid: str) -> dict[str, str]:
    """The driver, limits and clocks for the head of a file of measurements, with units."""
    return {key: f"{value} {ASKED[key][2]}".strip() for key, value in ask_driver(uuid, HEAD_KEYS).items()}


def utilisation(uuid: str) -> float | None:
    """The share of the last moments in which the device had work; None where it cannot be asked."""
    percent = _number(ask_driver(uuid, ("utilisation",)).get("utilisation", ""))
    return None if percent is None else percent / 100


def has_gpu() -> bool:
    """Whether this machine has a CUDA device that may be used, without loading PyTorch."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in HIDDEN:
        return False
    return any(NODES.glob("nvidia[0-9]*")) or bool(_ask_smi("0", ("driver",)))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass
class PowerMonitor:
    """Asks, within its block, what a device draws at work, from a thread of its own."""

    ask: Callable[[], Mapping[str, str]]
    readings: list[tuple[float, Mapping[str, str]]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _listen(self) -> None:
        while not self.over.is_set():
            answer = self.ask()
            if not answer:
                return
            self.readings.append((time.perf_counter(), answer))
            self.over.wait(INTERVAL)

    def medians(self, begin: float, end: float) -> dict[str, str]:
        """Medians of readings between two moments of `time.perf_counter`, with units."""
        medians = {}
        for key in LOAD_KEYS:
            values = [_number(answer.get(key, "")) for moment, answer in self.readings if begin <= moment <= end]
            numbers = [value for value in values if value is not None]
            if numbers:
                medians[key] = f"{median(numbers):.4g} {ASKED[key][2]}"
        return medians
