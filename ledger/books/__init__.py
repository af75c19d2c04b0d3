"""Books: entries posted from operations, evaluated, priced, and judged."""

from ledger.books.compiler import compile_plan, compile_totals

__all__ = ["compile_plan", "compile_totals"]
