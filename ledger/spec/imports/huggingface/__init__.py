"""Hugging Face's config.json as a model spec, and back.

`config` takes a file and gives the spec; `recognition` takes a model and gives the family whose configuration describes
it. A `family` is a row of fields, of `terms` (each read both ways) and of layer `patterns`; `families` lists them all.
"""
