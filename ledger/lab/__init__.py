"""The laboratory: what judges, measures and scores the compiler's figures. It uses the compiler, which never uses it.

`verification` compares a plan's figures with a judge's: PyTorch (`reference` builds the model, `observed` runs a step
of it on fake tensors) or the framework of the plan's stack (`judges`). `bench` measures a device, and `calibration`
fits its prices. `replay` runs a step through PyTorch's allocator; `score` compares published runs with predictions.
Read `verification/suites.py` first.
"""
