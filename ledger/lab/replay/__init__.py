"""A step replayed through a model of PyTorch's caching allocator: what it allocates, and what it reserves for that.

Takes a plan and the books of a role; gives `ReplayedMemory`. Read `step.py` first; `passes.py` lists the requests of a
unit, and `allocator.py` has the rules.
"""
