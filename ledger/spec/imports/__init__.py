"""Configurations of other tools as specs: Hugging Face's config.json, Megatron-LM's arguments, torchtitan's jobs."""
