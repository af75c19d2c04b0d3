"""Reports: compiled plans and their evidence as tables, charts and formulas, in HTML, PDF, Markdown and JSON.

Takes a `Compiled` plan (two for a difference, several for a comparison, two trees of plans for a pull request), gives
texts and files, and computes nothing beyond layout. Read `write.py` first: `assemble_report` gathers what a report
shows, `write_report` writes it. `views` has the sections, `html.py` and `pdf.py` print them, `contract.py` is the JSON.
"""
