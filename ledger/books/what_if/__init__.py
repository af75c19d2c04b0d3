"""What another input would give: the slope of a total, other layouts, the value that meets conditions.

Takes a plan, inputs by path, conditions as text; gives a `Solution`. Read `solve.py` first; `sensitivity.py` is apart.
"""
