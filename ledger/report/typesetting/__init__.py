"""Formulas as their authors wrote them, set as mathematics: text to a tree, the tree to lines, lines to pictures.

Takes the text of a formula and gives a `TypesetFormula`; FormulaError for any other text. Read `pictures.py` first
(`typeset`), then `lines.py`, `latex.py` and `trees.py`.
"""
