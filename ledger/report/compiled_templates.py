"""Templates compiled to Python once and kept in the user's cache: compiling them is a tenth of making a page."""

from __future__ import annotations

import sys

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from ledger.caches import Cache

COMPILED = Cache("templates")
MADE_BY = f"{sys.implementation.cache_tag}-{jinja2.__version__}"  # whose compiler, for whose byte code


class CompiledTemplates(BytecodeCache):
    """Byte code of the templates of one environment, by its `name`: another one compiles the same text otherwise.

    The cache is believed where it carries this user's mark, and Jinja holds what it reads to the template's text.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fills a bucket from the cache, where the cache has it."""
        content = COMPILED.read(self._entry(bucket))
        if content is not None:
            bucket.bytecode_from_string(content)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps the code of a bucket."""
        COMPILED.keep(self._entry(bucket), bucket.bytecode_to_string())

    def _entry(self, bucket: Bucket) -> str:
        return f"{self.name}-{MADE_BY}-{bucket.key}"
