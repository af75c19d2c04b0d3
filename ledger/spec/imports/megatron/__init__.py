"""Megatron-LM's arguments: the model and the plan that they describe."""
