"""Published runs: each row of a table becomes a plan, is compiled, and compared with what was measured.

Takes rows of tables and files of evidence; gives a `Score`: errors by row, by source and overall. Read `predictions.py`
first; `row_plans.py` makes a row's plan, `rows.py` adds up errors, and `page.py` and `contract.py` print them. Rows
that serve go by `serving_rows.py`.
"""
