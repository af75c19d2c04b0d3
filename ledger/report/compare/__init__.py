"""Several plans side by side, for a review that must choose: figures, causes of differences, a recommendation.

Takes compiled plans and the rule to choose by, and gives a `PlanComparison`, printed as HTML, PDF, Markdown and JSON.
Read `choice.py` first (`compare_plans`), then `plans.py`; `page.py` has the sections, `record.py` the JSON.
"""
