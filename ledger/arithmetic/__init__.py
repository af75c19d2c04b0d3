"""One arithmetic for every rule, and its three readings: exact numbers, a traced graph, and arrays.

A rule is written once, with Python's operators and the functions of `ledger.arithmetic.values`. Given numbers it is
exact; given values of a `Trace` it leaves a graph, which is printed as JavaScript or evaluated over numpy arrays.
"""
