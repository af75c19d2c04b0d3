"""Words of other tools: what they are called here is offered where they are typed."""

from __future__ import annotations

import pytest

from ledger.spec.faults import StatedValue
from ledger.spec.library import default_library
from ledger.spec.near import NAMES_ELSEWHERE, SYNONYMS, closest, meant, target
from ledger.spec.paths import is_known, type_of
from ledger.spec.problems import Location
from ledger.spec.reader import as_node


@pytest.mark.parametrize("written", list(NAMES_ELSEWHERE))
def test_what_is_offered_can_be_written(written: str) -> None:
    """Each offer is a field of a plan, with a value that it takes: what is refused again helps nobody."""
    path, value = target(NAMES_ELSEWHERE[written].split()[0])
    assert is_known(path)
    if value:
        kind, faults = type_of(path), []
        assert kind is not None
        plain = int(value) if value.isdigit() else value
        kind.read(StatedValue(as_node(plain, Location(""))), faults)
        assert not faults
        part = path if "." not in path else ""
        assert not part or value in default_library().names(part)


def test_a_word_stands_for_one_thing() -> None:
    """The table is read from either side."""
    words = [word for text in NAMES_ELSEWHERE.values() for word in text.split()]
    assert len(words) == len(set(words)) == len(SYNONYMS)


@pytest.mark.parametrize(
    ("key", "known", "said"),
    [
        ("dp", ("data", "tensor"), "did you mean `data`?"),
        ("dp", ("run", "parallelism"), "did you mean `parallelism.data`?"),
        ("--tensor-model-parallel-size", (), "did you mean `parallelism.tensor`?"),
        ("TP", ("tensor",), "did you mean `tensor`?"),
        ("pp", ("pipeline",), "did you mean `pipeline`?"),
        ("cp", ("context",), "did you mean `context`?"),
        ("ep", ("expert",), "did you mean `expert`?"),
        ("fsdp", ("zero",), "did you mean `zero: 3`?"),
        ("fsdp", ("run",), "did you mean `parallelism: {zero: 3}`?"),
        ("batch_size", ("run",), "did you mean `run.global_batch`?"),
        ("gpus", ("devices",), "did you mean `devices`?"),
        ("bf16", (), "did you mean `precision: bf16-mixed`?"),
        ("data", ("data",), ""),
        ("quux", (), ""),
    ],
)
def test_words_are_offered_as_they_would_be_written_there(key: str, known: tuple[str, ...], said: str) -> None:
    """By the key alone within its own mapping, by its path elsewhere, with a value where the word stands for one."""
    assert meant(key, known) == said


def test_names_that_begin_with_what_was_typed_come_first() -> None:
    """`h200` is more like `b200` letter by letter, and means the H200."""
    assert closest("H200", ["b200", "gb200", "h200-sxm"])[0] == "h200-sxm"
    assert closest("bf16", ["bf16-autocast", "bf16-fp32-gradients", "bf16-mixed"])[0] == "bf16-mixed"
