"""Measuring a device: what a training step runs, case by case, kept as evidence the moment it is measured.

Takes the settings of a suite and a path; gives a file of evidence, which `calibration` fits prices to. `table.py` lists
the kinds of measurements. `worker` and what it calls run torch, in a process of their own: a device that fails takes no
record with it. `runner`, which keeps the records, knows no torch; read it first.
"""
