"""A step put together from facts: of units, of the weights that devices share, of the order of a pipeline.

Every fact is an exact number, an array of numpy's or a value of a trace; what is put together here is the same for all.
Takes entries and their prices, gives the seconds of a stage (`StageTime`) and the bytes it holds. Read `work.py` first.
"""
