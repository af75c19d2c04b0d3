"""Which architecture of transformers a model is, and the configuration of it that has the same sizes."""
