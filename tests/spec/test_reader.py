from __future__ import annotations

from contextlib import suppress
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.spec.problems import Location, Problem, SpecError
from ledger.spec.reader import DEEPEST_NESTING, LARGEST_TEXT, read, read_value
from ledger.spec.render import render_problems


def refusal(text: str) -> list[str]:
    """The messages with which a text is refused."""
    with pytest.raises(SpecError) as caught:
        read(text, "x.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("70e9", 70e9),
        ("989e12", 989e12),
        ("010", 10),
        ("0o10", 8),
        ("0x10", 16),
        ("-3", -3),
        (".5", 0.5),
        ("on", "on"),
        ("no", "no"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-05-18", "2026-05-18"),
        ("true", True),
        ("~", None),
        ("'true'", "true"),
        ('"8"', "8"),
        ("80 GB", "80 GB"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    """The core schema of YAML 1.2.2 (section 10.3), where PyYAML's 1.1 reads `on` as true and `70e9` as text."""
    read_back = read(f"key: {text}", "x").fields["key"].value
    assert (read_back, type(read_back)) == (value, type(value))


def test_every_key_and_value_has_its_place() -> None:
    """Lines and columns count from 1, in characters, for block and flow style alike."""
    node = read("a: 1\nbé: {c: [x, yy]}\n", "f")
    inner = node.fields["bé"]
    assert node.keys["bé"] == Location("f", 2, 1)
    assert inner.keys["c"] == Location("f", 2, 6)
    assert [item.where.column for item in inner.fields["c"].items] == [10, 13]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- a\n", "a spec is a mapping"),
        ("a: 1\n---\nb: 2\n", "a second document"),
        ("a: &x 1\n", "an anchor"),
        ("a: 1\n<<: {b: 2}\n", "a merge key"),
        ("a: !!python/object/apply:os.system [true]\n", "a tag"),
        ("? [a]\n: 1\n", "a key that is no text"),
        ("a: .inf\n", "`.inf` is no value of a spec"),
        ("a: .nan\n", "`.nan` is no value of a spec"),
        ("a: 1e999\n", "a number beyond reason"),
        (f"a: {'9' * 5000}\n", "a number beyond reason"),
        ("a: [1\n", "not valid YAML"),
        ("a: \x07\n", "a control character"),
        ("a:\n \t- 1\n", "a tab in the indentation"),
        ("a: " + "[" * 200 + "]" * 200, f"nested more than {DEEPEST_NESTING} levels deep"),
        ("# " + "x" * LARGEST_TEXT, "more than 1 MB of text"),
    ],
)
def test_what_specs_do_not_use_is_refused(text: str, said: str) -> None:
    """Whatever hides a value's place, repeats values, or has no end is refused with a place."""
    found = refusal(text)
    assert len(found) == 1
    assert said in found[0]
    assert found[0].startswith("x.yaml:")


def test_every_duplicate_is_told() -> None:
    """Problems of form are collected, too: two duplicates are two problems."""
    assert refusal("a: 1\na: 2\nb: {c: 1, c: 2}\n") == [
        "x.yaml:2:1: `a` stands twice",
        "x.yaml:3:11: `c` stands twice",
    ]


@given(st.text(max_size=200))
def test_any_text_is_a_node_or_a_problem(text: str) -> None:
    """No text makes the reader fail in a way of its own."""
    with suppress(SpecError):
        assert read_value(text, Location("x")).where.file == "x"


@pytest.mark.parametrize("written", ['"\\e[31mred"', '"a\\0b"', '"\\u202Eabc"', '"\\x9Bm"'])
def test_text_that_a_terminal_would_obey_is_refused(written: str) -> None:
    """Escapes within quotes can spell control characters, which a report or a terminal would act on."""
    with pytest.raises(SpecError) as caught:
        read(f"plan: {written}\n", "x")
    (problem,) = caught.value.problems
    assert (problem.message, problem.where.column) == ("a control character, which specs do not use", 7)


def test_thousands_of_problems_are_told_in_a_second() -> None:
    """A file of another kind may break a rule in every line; a reader is shown the first hundred."""
    text = "spec: ledger/1\n" + "".join(f"key_{number}: 1\n" for number in range(3000))
    problems = [Problem(Location("x", number + 2), "no field") for number in range(3000)]
    started = perf_counter()
    told = render_problems(problems, {"x": text})
    assert told.count("no field") == 100
    assert told.endswith("and 2900 further problems")
    assert perf_counter() - started < 1


@pytest.mark.parametrize("mark", ["\\n", "\\t", "\\r", "\\x85", "\\u2028", "\\u2029"])
@pytest.mark.parametrize("text", ['plan: "a{}b"', '"a{}b": 1', 'notes: [1, {{x: "a{}"}}]'])
def test_a_value_is_one_line(text: str, mark: str) -> None:
    """A title of two lines would begin a line of its own in every output: a heading, a command to a runner."""
    document = text.format(mark)
    with pytest.raises(SpecError) as caught:
        read(document, "f.yaml")
    (problem,) = caught.value.problems
    assert "line break or a tab" in problem.message or "control character" in problem.message
    assert problem.where.column == document.index('"') + 1


@pytest.mark.parametrize("style", [">", "|", ">-", "|-"])
def test_a_block_of_text_is_one_line_too(style: str) -> None:
    """Of several lines below a key `>` makes one; the break at its end belongs to the style. Tables keep lines."""
    node = read(f"why: {style}\n  one\nrows: |\n  1 2\n  3 4\n", "f.yaml")
    assert node.plain() == {"why": "one", "rows": "1 2\n3 4\n"}
    with pytest.raises(SpecError):
        read("why: |\n  one\n  two\n", "f.yaml")


@pytest.mark.parametrize("mark", ["\\u200e", "\\u061c", "\\ufeff", "\\U000E0041", "\\e", "\\x9b"])
def test_what_nobody_sees_is_refused(mark: str) -> None:
    """Marks of direction, tags, and escapes change what a reader sees, and are seen by none."""
    with pytest.raises(SpecError, match="control character"):
        read(f'plan: "a{mark}b"', "f.yaml")
