"""A plan's model and optimizer in PyTorch, as the stacks of plans run them: what predictions are compared with."""
