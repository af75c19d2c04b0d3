"""DeepSpeed as the judge: its engine and its ZeRO optimizers around a transformers model on fake tensors."""
