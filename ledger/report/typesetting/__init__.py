"""Formulas as their authors wrote them, set as mathematics: text to a tree, the tree to lines, lines to pictures."""
