"""What a CUDA device says of itself: driver, power limit, clocks; how busy others keep it.

Asks NVML where its Python package is installed, else nvidia-smi; what neither says is left out.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

QUERY = {
    "driver": "driver_version",
    "power_limit": "power.limit",
    "graphics_clock": "clocks.sm",
    "graphics_clock_limit": "clocks.max.sm",
    "memory_clock": "clocks.mem",
    "temperature": "temperature.gpu",
    "utilisation": "utilization.gpu",
}
UNITS = {
    "power_limit": "W",
    "graphics_clock": "MHz",
    "graphics_clock_limit": "MHz",
    "memory_clock": "MHz",
    "temperature": "C",
}


def said(index: int, uuid: str = "") -> Mapping[str, str]:
    """What the driver says of the device, by the keys of QUERY; empty where it cannot be asked."""
    return (_nvml(uuid) if uuid else {}) or _smi(uuid or str(index))


def _nvml(uuid: str) -> dict[str, str]:
    try:
        import pynvml  # type: ignore[import-not-found]  # part of no requirement; asked only where it is there
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        clock = pynvml.nvmlDeviceGetClockInfo
        return {
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "power_limit": str(pynvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1000),
            "graphics_clock": str(clock(device, pynvml.NVML_CLOCK_SM)),
            "graphics_clock_limit": str(pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_SM)),
            "memory_clock": str(clock(device, pynvml.NVML_CLOCK_MEM)),
            "temperature": str(pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU)),
            "utilisation": str(pynvml.nvmlDeviceGetUtilizationRates(device).gpu),
        }
    except pynvml.NVMLError:
        return {}


def _smi(device: str) -> dict[str, str]:
    command = ["nvidia-smi", f"--id={device}", f"--query-gpu={','.join(QUERY.values())}"]
    try:
        answer: Any = subprocess.run(  # noqa: S603
            [*command, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in answer.stdout.splitlines()[0].split(",")] if answer.stdout.strip() else []
    return {key: value for key, value in zip(QUERY, values, strict=False) if value and not value.startswith("[")}


def origin(index: int, uuid: str) -> dict[str, str]:
    """The same as fields of an origin, with units."""
    return {
        key: f"{value} {UNITS[key]}" if key in UNITS else value
        for key, value in said(index, uuid).items()
        if key != "utilisation"
    }


def utilisation(index: int, uuid: str) -> float:
    """The share of the last moments in which the device had work; 0 where it cannot be asked."""
    found = said(index, uuid).get("utilisation", "0")
    return float(found) / 100 if found.replace(".", "", 1).isdigit() else 0.0


def present() -> bool:
    """Whether this machine has a GPU that its driver speaks of, without loading PyTorch."""
    return bool(said(0))
