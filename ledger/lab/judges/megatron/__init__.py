"""Megatron-Core with Transformer Engine as the judge: its model, optimizer and schedules on fake tensors."""
