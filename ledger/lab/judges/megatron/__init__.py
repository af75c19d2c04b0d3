"""Megatron-Core with Transformer Engine as the judge: its model, optimizer and schedules on fake tensors.

`judge.py` first: it starts the process and counts calls. `configuration.py` says a plan in Megatron-Core's words,
`step.py` runs the step, `kernels.py` stands in for compiled code, and `causes.py` names why bytes differ.
"""
