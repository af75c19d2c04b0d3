"""DeepSpeed as the judge: its engine and its ZeRO optimizers around a transformers model on fake tensors.

`judge.py` first: it starts the process and counts calls. `configuration.py` says a plan in DeepSpeed's words, `step.py`
runs the step, and `causes.py` names why bytes differ from the ledger's.
"""
