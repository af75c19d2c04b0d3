"""The course: questions of the lecture notes, answered by operations, totals and compiled plans."""
