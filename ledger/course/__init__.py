"""The course: questions of lecture notes, answered by operations, totals and compiled plans.

Takes a lecture (a YAML file of questions, each with the answer that is expected of it); gives its answers, whether they
hold (`answer.answers`, `answer.checked_lecture`), and pages of them (`report.write_lecture`). Read `lecture` first: it
loads what `asks` and `questions` describe; `subjects` answers questions that need no compiled plan.
"""
