"""Templates that were compiled before: read from the user's cache, and compiled anew where they changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from ledger.report.html import CompiledTemplates


def rendered(text: str, name: str = "page") -> str:
    """What a template of this text prints in an environment that has compiled nothing yet."""
    loaded = Environment(loader=DictLoader({"one": text}), autoescape=True, bytecode_cache=CompiledTemplates(name))
    return loaded.get_template("one").render(value="<")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_a_template_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second environment prints the same without compiling; one of another name has code of its own."""
    assert rendered("a {{ value }}") == "a &lt;"
    monkeypatch.setattr(Environment, "compile", lambda *_: pytest.fail("compiled again"))
    assert rendered("a {{ value }}") == "a &lt;"
    with pytest.raises(pytest.fail.Exception):
        rendered("a {{ value }}", "markdown")


def test_a_template_that_changed_is_compiled_anew() -> None:
    """What is kept is held to the text that it was compiled from."""
    assert rendered("a {{ value }}") == "a &lt;"
    assert rendered("b {{ value }}") == "b &lt;"


def test_code_that_another_planted_is_not_run(home: Path) -> None:
    """An entry without this user's mark is passed over: it could be any program."""
    rendered("a {{ value }}")
    (entry,) = (home / "cache" / "ledger" / "templates").iterdir()
    entry.write_bytes(b"\0" * 32 + b"cos\nsystem\n(S'false'\ntR.")
    assert rendered("a {{ value }}") == "a &lt;"
