"""One arithmetic for every rule, and its three readings: exact numbers, a traced graph, and arrays.

A rule is written once, with Python's operators and the functions of `values`, which is the module to read first. Given
numbers it is exact; given values of a `Trace` (`tracing`) it leaves a graph, which is printed as JavaScript or
evaluated over numpy's arrays. `operations` is the table of what there is. `algebra` brings the terms of a graph into
a normal form, sums of products, and `formula_text` writes those as Python or as formulas.
"""
