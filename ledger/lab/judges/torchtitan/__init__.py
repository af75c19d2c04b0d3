"""torchtitan as the judge: its own Llama 3, its parallelize_fn and its loss on fake tensors.

`judge.py` first: it starts the process and names why bytes differ. `configuration.py` says a plan in torchtitan's
words, and `step.py` runs the step.
"""
