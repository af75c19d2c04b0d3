"""Hugging Face's config.json: the fields of each family, and the parts of a model spec that they describe."""
