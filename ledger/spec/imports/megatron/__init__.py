"""Megatron-LM's arguments as a model spec or a plan: `script` reads them, `plan` makes the parts of a plan of them."""
