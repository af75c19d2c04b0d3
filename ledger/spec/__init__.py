"""The first stage: the text of a spec becomes a `Plan`, typed, checked, each value with its place and source.

It takes a file, a text, a git revision or a name of the library, and `key=value` overrides; it gives a plan, or one
`SpecError` with every problem, sorted by place. Read `load` first, which goes through the stages of reading: `reader`
(YAML to nodes with places), `expand` (named parts in place), `parts`, `structures` and `values` (types of fields),
`rules` (what no type can say), `build` (the plan of its parts). `plan`, `architecture`, `stack`, `hardware` and their
neighbours are dataclasses that state the fields. `imports` reads the configurations of other tools.
"""
