"""Microbenchmarks on file: records, sets of one kind, and what each gives a price."""
