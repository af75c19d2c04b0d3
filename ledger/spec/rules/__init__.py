"""Rules between the parts of a plan, which no type of a field can say.

A rule is a generator of problems whose parameters name the parts that it reads; its docstring is the sentence that
users see. `table` lists all rules and runs them; the other modules have them by theme.
"""
