"""PyTorch as the judge of a plan: the ledger's figures beside those of a real training step on fake tensors.

Takes a plan or a suite; gives a `Verification`: a verdict for every figure, with named causes for differences. Read
`suites.py` first. `checks.py` asks PyTorch, `frameworks.py` the framework of a stack, `stages.py` the devices of a
pipeline; `predicted.py` is the ledger's answer, and `causes.py` explains differences.
"""
