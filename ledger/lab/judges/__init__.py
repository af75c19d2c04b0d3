"""Training frameworks as judges: each runs its own training step of a plan on fake tensors, without a GPU."""
