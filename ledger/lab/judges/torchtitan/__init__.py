"""torchtitan as the judge: its own Llama 3, its parallelize_fn and its loss on fake tensors."""
