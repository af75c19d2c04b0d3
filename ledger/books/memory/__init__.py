"""Memory over a step: its moments, the stocks that are alive at each, and the one at which they are fullest.

Takes the program of a role, gives entries with lifetimes (`holdings.py`) on a `Timeline`, and from them the peak
(`peak.py`) and what lies outside the allocator's tensors (`outside.py`). Read `timeline.py` first, then `holdings.py`.
"""
