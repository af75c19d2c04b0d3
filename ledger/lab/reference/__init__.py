"""A plan's model and optimizer in PyTorch, as the stacks of plans run them: what predictions are compared with.

Takes a plan as a `Workload`; gives a transformers model with the plan's kernels, its loss and its optimizer. Read
`model.py` first; other modules add what transformers lacks (fused kernels, losses, checkpoints, adapters, exchanges).
"""
