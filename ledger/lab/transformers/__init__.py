"""The architecture of transformers that a model is, and the configuration of it that has the same sizes.

`config.py` takes a model and gives a configuration; it raises `NoReferenceError` for what transformers does not have.
"""
