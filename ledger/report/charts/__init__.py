"""The report's charts: each a pure function from frozen points or bars, a title and a width to the text of a picture.

Read `rows.py` first: the frame of charts of horizontal bars, and the placing of labels; its elements: `report/svg.py`.
"""
