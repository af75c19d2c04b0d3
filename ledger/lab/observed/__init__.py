"""Figures of one step of the reference, rank by rank: what PyTorch counts, saves, sends and holds.

Takes a `Workload` and a rank (`ranks.py`); gives a `DeviceStep`: bytes by moment, and collectives. Read `one_device.py`
first, then `metered_step.py`, which all ranks share; `storage_meter.py` counts bytes.
"""
