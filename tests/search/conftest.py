"""A space of two plans whose layouts cost nothing to price."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.search import sweep as module
from ledger.search import tasks
from ledger.search.sweep import Search, SweepRequest, prepare
from tests.search.synthetic import pieces_of, price_of

ROOT = Path(__file__).resolve().parents[2]
SPEC = str(ROOT / "specs" / "7b-8xh100.yaml")
Made = Callable[..., Search]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Prepares a sweep of `pieces` x `rows` synthetic layouts for each plan, priced in blocks of one size."""

    def make(pieces: int = 3, rows: int = 500, block: int = 100, **asked: object) -> Search:
        monkeypatch.setattr(module, "pieces", pieces_of(pieces))
        monkeypatch.setattr(tasks, "price_piece", price_of(rows, block))
        return prepare(SweepRequest(SPEC, **{"over": ("parallelism.stages=null",), **asked}))  # type: ignore[arg-type]

    return make
