"""A compiled plan: operations posted as entries, evaluated, priced, and judged.

Takes a `Plan` of `ledger.spec`, and what `ledger.model` derives from it. Gives a `Compiled`: totals, accounts, roles
with their memory, the waterfall of a step, a verdict. `assembly` puts a step together, `memory` lists what is alive at
each moment, `serving` has plans that serve, `what_if` solves a plan for its inputs. Read `compiler.py` first, then
`posting.py`.
"""

from ledger.books.compiler import compile_plan, compile_totals

__all__ = ["compile_plan", "compile_totals"]
