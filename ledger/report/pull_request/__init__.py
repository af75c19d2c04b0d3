"""What a change of a repository does to its plans: which are affected, how, by which input; in print.

Takes two trees of plans and gives a `Comparison`, worst plans first. Read `comparison.py` first (`compare`), then
`pairs.py`; `markdown.py` prints the comment and the lists of problems, `record.py` the JSON and the words of both.
"""
