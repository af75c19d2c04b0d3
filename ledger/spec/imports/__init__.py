"""Configurations of other tools as specs: Hugging Face's config.json, Megatron-LM's arguments, torchtitan's jobs.

Each importer takes the text of a file and gives the text of a model or of a plan, with notes on every setting that was
left out. Read `text` first, which writes the specs; then `huggingface.config`, `megatron.script`, `torchtitan.plan`.
"""
