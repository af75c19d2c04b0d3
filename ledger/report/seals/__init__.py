"""What a report was made from, carried within it, and the report made again from that alone.

`gathering.py` makes the `Seal` of a plan that was read, `opening.py` the plan of a seal; `reproduction.py` reads the
seal of a report's file, compiles its plan and compares. Read `seal.py` first: the seal as data and as JSON.
"""
