"""Training frameworks as judges: each runs its own training step of a plan on fake tensors, without a GPU.

Takes a plan and a stage; gives `RankFigures`: parameters, bytes that last, bytes saved, moments and collectives of the
stage's first rank. `protocol.py` says what a framework is asked and is to be read first; `table.py` lists them.
"""
