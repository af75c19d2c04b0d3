"""A compiled plan that serves: passes priced, sequences in flight, memory, totals.

Takes a plan with `serve`, gives a `Compiled` with a `Service`. Read `passes.py` first, then `steady.py`, `memory.py`.
"""
