"""Books: entries posted from operations, evaluated, priced, and judged."""

from ledger.books.compiler import compile_plan

__all__ = ["compile_plan"]
