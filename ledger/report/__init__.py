"""Reports: compiled plans as tables, charts and formulas, in HTML, PDF, Markdown and JSON."""
