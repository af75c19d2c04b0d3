"""What has no end, no room or no sense is refused, in seconds, in one sentence, by every verb that meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

import ledger
from ledger.cli.verbs import OWN_MISTAKE
from ledger.spec.architecture import MOST_LAYERS
from ledger.spec.faults import Faults, StatedValue
from ledger.spec.kinds import KINDS, TYPES
from ledger.spec.overrides import MOST_SETTINGS
from ledger.spec.parallelism import MOST_STAGES
from ledger.spec.parts import nested_types
from ledger.spec.problems import Location
from ledger.spec.quantities import DIMENSIONS, write
from ledger.spec.reader import LARGEST_TEXT, as_node
from ledger.spec.structures import Row, Sourced
from ledger.spec.values import Integer, Number, Quantity, Size
from tests.fuzz.mutants import Mutant
from tests.fuzz.mutations import document
from tests.fuzz.seeds import seeds
from tests.fuzz.watch import quiet_room, run_warm

ROOT = Path(__file__).resolve().parents[2]
LEDGER = (sys.executable, "-m", "ledger")
PLAN = seeds()["plan"][0].text
LECTURE = seeds()["lecture"][0].text
EVIDENCE = seeds()["evidence"][0].text
MILLION = LARGEST_TEXT - 10_000  # letters of a text that is just short enough to be read
Command = Callable[..., Result]


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    """An empty folder, in which mutants run."""
    with quiet_room() as folder:
        yield folder


def filled(head: str, line: str, tail: str = "") -> bytes:
    """A text of a megabyte: a line again and again, each with its number where it has a place for it."""
    count = MILLION // max(1, len(line.replace("#", "9" * 5)))
    return (head + "".join(line.replace("#", str(number)) for number in range(count)) + tail).encode()


MEGABYTES: dict[str, tuple[Sequence[str], bytes]] = {
    "keys.yaml": (["check"], filled(PLAN, "key_#: 1\n")),
    "twice.yaml": (["check"], filled(PLAN, "plan: again\n")),
    "groups.yaml": (
        ["check"],
        filled(PLAN.replace('"layers": [', '"layers": [\n'), "", "").replace(
            b"[\n", b"[" + b'{"group": "g"},' * 50_000
        ),
    ),
    "list.yaml": (["check"], filled(PLAN + "expect: [\n", "{parameters: #},\n", "]\n")),
    "stages.yaml": (
        ["check"],
        filled(PLAN.replace('"zero": 1', '"zero": 1, "stages": [') + "", "").replace(
            b"[}", b"[" + b"1," * 400_000 + b"]}"
        ),
    ),
    "deep.yaml": (["check"], filled("spec: ledger/1\nplan: ", "[")),
    "text.yaml": (["check"], filled("spec: ledger/1\nplan: ", "long ")),
    "sizes.yaml": (["check"], PLAN.replace('"4 * d_model"', '"' + "d_model + " * 90_000 + '1"').encode()),
    "number.yaml": (["check"], PLAN.replace('"1B tokens"', '"' + "9" * MILLION + ' tokens"').encode()),
    "blanks.yaml": (["check"], PLAN.replace('"1B tokens"', '"1' + " " * MILLION + 'B tokens"').encode()),
    "comments.yaml": (["check"], filled("", "# nothing\n")),
    "tabs.yaml": (["check"], filled(PLAN, "\tx\n")),
    "questions.yaml": (["check"], filled(LECTURE, "  - {id: q#, asks: what, operation: {steps: []}}\n")),
    "records.yaml": (
        ["calibrate", "--table"],
        filled(EVIDENCE.partition("series:")[0] + "records:\n", "  - {what: matmul.bf61, value: #}\n"),
    ),
    "rows.yaml": (
        ["calibrate", "--table"],
        filled(
            EVIDENCE.partition("series:")[0] + "series:\n  - {what: copy, unit: us, columns: [bytes, value], rows: '",
            "x y\n\n    ",
            "'}\n",
        ),
    ),
    "columns.csv": (["score", "--rows"], filled("id", ",column_#", "\n")),
    "header.csv": (["score", "--rows"], filled("id,model\n", "#,x\n")),
    "quotes.csv": (["score", "--rows"], filled('id,"', "x")),
    "config.json": (["import"], filled('{"model_type": "llama"', ', "key_#": 1', "}")),
    "nested.json": (["import"], filled('{"model_type": ', "[")),
    "script.sh": (["import"], filled("--num-layers 4", " --option-# 1")),
    "shell.sh": (["import"], filled("A=1\n", "A=$A$A\n", "--num-layers $A\n")),
    "job.toml": (["import", "--plan"], filled("[model]\nname = 'llama3'\n", "key_# = 1\n")),
    "digits.toml": (["import", "--plan"], filled("[model]\nname = 'llama3'\nsize = ", "9")),
    "dotted.toml": (["import", "--plan"], filled("a", ".a", " = 1\n")),
    "key.yaml": (["check"], PLAN.encode() + b"? " + b"k" * MILLION + b"\n: 1\n"),
    "values.json": (["reproduce"], filled('{"seal": [', "[],", "[]]}")),
    "report.json": (["reproduce"], filled('{"seal": "', "eJw", '"}')),
}


@pytest.mark.parametrize("name", MEGABYTES)
def test_a_megabyte_of_anything_is_answered_in_seconds(room: Path, name: str) -> None:
    """Within 5 s of the processor and 500 MB, with exit code 2: no such file says anything that can be used."""
    words, data = MEGABYTES[name]
    outcome = run_warm(Mutant("megabyte", words[0], (*words[1:], name), {name: data}), room)
    assert len(data) > LARGEST_TEXT // 2
    assert (outcome.fault, outcome.code) == ("", 2), outcome.detail


@pytest.mark.parametrize("verb", ["show", "check"])
def test_as_many_layers_as_a_model_may_have_are_answered_in_seconds(room: Path, verb: str) -> None:
    """The greatest number is answered as any other plan, and one more is refused, in one group or several."""
    files = {"plan.yaml": PLAN.replace('"repeat": 4', f'"repeat": {MOST_LAYERS}').encode()}
    outcome = run_warm(Mutant("layers", verb, ("plan.yaml",), files), room)
    assert (outcome.fault, outcome.code) == ("", 0), outcome.detail
    groups = [{"group": f"g{number}", "repeat": MOST_LAYERS // 2} for number in range(3)]
    for layers in ([{"group": "decoder", "repeat": MOST_LAYERS + 1}], groups):
        (layer,) = yaml.safe_load(PLAN)["model"]["layers"]
        tree = yaml.safe_load(PLAN)
        tree["model"]["layers"] = [{**layer, **one} for one in layers]
        outcome = run_warm(Mutant("layers", verb, ("plan.yaml",), {"plan.yaml": document(tree).encode()}), room)
        assert (outcome.fault, outcome.code) == ("", 2), outcome.detail


@pytest.mark.parametrize(("stages", "code"), [(MOST_STAGES, 0), (MOST_STAGES + 1, 2)])
def test_as_many_stages_as_a_pipeline_may_have_are_drawn_in_seconds(room: Path, stages: int, code: int) -> None:
    """Each kind of stage is priced, and one stage more is refused."""
    settings = {
        "model.layers.decoder.repeat": stages,
        "parallelism": f"{{data: 1, pipeline: {stages}}}",
        "cluster.devices": stages,
        "run.global_batch": 4 * stages,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    mutant = Mutant(
        "stages",
        "report",
        ("plan.yaml", "--no-search", "--format", "html,md,json", "--out", "out", *words),
        {"plan.yaml": PLAN.encode()},
    )
    outcome = run_warm(mutant, room)
    assert (outcome.fault, outcome.code) == ("", code), outcome.detail


READERS = (
    (("check", "{}"), ".yaml"),
    (("show", "{}"), ".yaml"),
    (("diff", "gpt2", "{}"), ".yaml"),
    (("calibrate", "--table", "{}"), ".yaml"),
    (("score", "{}"), ".yaml"),
    (("score", "{}"), ".csv"),
    (("import", "{}"), ".json"),
    (("import", "{}"), ".toml"),
    (("import", "{}"), ".sh"),
    (("reproduce", "{}"), ".json"),
    (("reproduce", "{}"), ".html"),
    (("reproduce", "{}"), ".pdf"),
    (("check", "gpt2", "--set", "model={}"), ".yaml"),
    (("check", "gpt2", "--set", "assumptions.price={}"), ".yaml"),
)


def a_device(path: Path) -> None:
    """A link to a device without an end."""
    path.symlink_to("/dev/zero")


def a_pipe(path: Path) -> None:
    """A pipe that nobody fills."""
    os.mkfifo(path)


def a_hole(path: Path) -> None:
    """A file of a terabyte that takes no room."""
    with path.open("wb") as stream:
        stream.truncate(2**40)


@pytest.mark.parametrize("made", [a_device, a_pipe, a_hole])
@pytest.mark.parametrize(
    ("words", "suffix"), READERS, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_what_has_no_end_is_not_read_to_it(
    room: Path, words: Sequence[str], suffix: str, made: Callable[[Path], None]
) -> None:
    """By no verb, wherever a file may be named: exit code 2, within the time and the memory of any answer."""
    path = room.parent / f"endless{suffix}"
    made(path)
    try:
        outcome = run_warm(Mutant("endless", words[0], tuple(word.format(path) for word in words[1:])), room)
    finally:
        path.unlink()
    assert (outcome.fault, outcome.code) == ("", 2), outcome.detail


BYTES = b"\xff\xfe"
WORDS: dict[str, tuple[Sequence[bytes], int]] = {
    "a key of 900 steps": ([b"check", b"gpt2", b"--set", b".".join([b"model"] * 900) + b"=1"], 2),
    "a value of 900 brackets": ([b"check", b"gpt2", b"--set", b"run=" + b"[" * 900 + b"]" * 900], 2),
    "many overrides": ([b"check", b"gpt2", *[b"--set", b"run.micro_batch=1"] * (MOST_SETTINGS + 1)], 2),
    "bytes in a key": ([b"check", b"gpt2", b"--set", b"run." + BYTES + b"=1"], 2),
    "bytes in a value": ([b"check", b"gpt2", b"--set", b"plan=" + BYTES], 2),
    "bytes in a file's name": ([b"check", BYTES + b".yaml"], 2),
    "bytes in a library name": ([b"show", BYTES], 2),
    "bytes in a total": ([b"explain", b"gpt2", BYTES], 2),
    "bytes in a key that is looked for": ([b"solve", b"gpt2", b"--for", BYTES], 2),
    "bytes in a condition": ([b"solve", b"gpt2", b"--for", b"run.micro_batch", b"--subject-to", BYTES], 2),
    "bytes in a table's name": ([b"score", BYTES + b".csv"], 2),
    "bytes in a configuration's name": ([b"import", BYTES + b".json"], 2),
    "bytes in a verb": ([BYTES], 2),
    "a subnormal ratio": ([b"check", b"gpt2", b"--set", b"assumptions.mfu=5e-324"], 2),
    "a ratio of 5000 digits": ([b"check", b"gpt2", b"--set", b"assumptions.mfu=0." + b"0" * 5000 + b"1"], 2),
    "a name of 5000 letters": ([b"check", b"x" * 5000], 2),
    "the root as a file": ([b"check", b"/"], 2),
}


@pytest.mark.parametrize("case", WORDS)
def test_odd_words_on_the_command_line_are_a_sentence(room: Path, case: str) -> None:
    """As Python is given them by a shell, with bytes that are no UTF-8: no traceback, no own mistake."""
    words, code = WORDS[case]
    verb, *further = map(os.fsdecode, words)
    outcome = run_warm(Mutant("words", verb, tuple(further)), room)
    assert (outcome.fault, outcome.code) == ("", code), outcome.detail


@pytest.mark.parametrize("case", ["a key of 900 steps", "bytes in a value", "bytes in a file's name"])
def test_odd_words_of_a_command_are_a_sentence(tmp_path: Path, case: str) -> None:
    """The same of a process of its own: exit code 2, something to read, no traceback."""
    words, code = WORDS[case]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*LEDGER, *words], cwd=tmp_path, capture_output=True, check=False, env=environment)
    told = (done.stderr + done.stdout).decode("utf-8", errors="replace")
    assert done.returncode == code, told
    assert "Traceback" not in told
    assert told.strip()


@pytest.mark.parametrize("name", [b"\xff.yaml", "é → 名.yaml".encode(), b"a b\nc.yaml", b"x\x1b[31m.yaml"])
def test_a_file_of_any_name_is_read(tmp_path: Path, name: bytes) -> None:
    """What a file is called changes nothing of what its plan comes to, and is printed harmlessly."""
    Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_text(PLAN, encoding="utf-8")
    done = subprocess.run(
        [*LEDGER, b"check", name],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert b"passed" in done.stdout


@pytest.mark.parametrize("home", [None, "/nowhere", "/dev/null"])
def test_no_home_is_needed(tmp_path: Path, home: str | None) -> None:
    """Caches are kept where there is a place, and computed again where there is none."""
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in {"HOME", "XDG_CACHE_HOME"}}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if home is None else {"HOME": home})
    for words in (("show", "plan.yaml"), ("report", "plan.yaml", "--format", "md,html", "--out", "out")):
        done = subprocess.run(
            [*LEDGER, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"plan.md", "plan.html"}


def test_a_mistake_of_the_program_is_one_line(command_line: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 70, what happened and where, without control characters, and where to report it."""
    monkeypatch.delenv("LEDGER_TRACEBACK", raising=False)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a\nb\x1b[31m")

    monkeypatch.setattr(ledger, "compile", fail)
    result = command_line("show", "gpt2")
    (line,) = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (OWN_MISTAKE, "") == (70, "")
    assert "a mistake of ledger" in line
    assert "ZeroDivisionError: a b?[31m" in line
    assert "Please report it" in line


@pytest.fixture
def command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command line in an empty folder."""
    from click.testing import CliRunner

    from ledger.cli import main

    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, list(words), prog_name="ledger")


QUOTED = {"0x10": 16, "1_000": 1000, "8 ": 8}  # numbers in another spelling


@pytest.mark.parametrize("text", ["2026-13-45", "d_model", "07", "1.", "1e3", *QUOTED])
def test_a_size_in_quotes_is_not_a_sum_by_accident(command_line: Command, text: str) -> None:
    """A date is no difference of three numbers: quoted, `2026-13-45` was a vocabulary of 1968."""
    Path("plan.yaml").write_text(PLAN.replace('"vocab": 256', f'"vocab": "{text}"'), encoding="utf-8")
    result = command_line("show", "plan.yaml", "--json")
    if text == "d_model":  # what names sizes is an expression
        assert result.exit_code == 0
    elif text in QUOTED:
        assert (result.exit_code, ledger.compile("plan.yaml").plan.model.vocab) == (0, QUOTED[text])
    else:
        assert result.exit_code == 2
        assert "plan.yaml:5:" in result.stderr


@pytest.mark.parametrize(
    "day", ["2026-02-30", "2025-99", "2026-13-45", "2026-5-18", "18.05.2026", "0", "yesterday", "2026-00-10"]
)
@pytest.mark.parametrize("key", ["assumptions.price.date", "stack.date"])
def test_a_date_is_one_of_the_calendar(command_line: Command, key: str, day: str) -> None:
    """Of prices and of software alike."""
    price = (
        ["--set", "assumptions.price={per_device_hour: 2 USD, date: 2026-05, source: an offer}"]
        if "price" in key
        else []
    )
    assert command_line("check", "gpt2", "--no-search", *price, "--set", f"{key}=2026-05").exit_code == 0
    result = command_line("check", "gpt2", "--no-search", *price, "--set", f"{key}={day}")
    assert result.exit_code == 2
    assert f"--set {key}={day}:1:" in result.stdout


@pytest.mark.parametrize(
    "block", ["[1., 128.]", "[1.0, 128]", "['1.', 128]", "[1.5, 128]", "1.", "[0, 128]", "[1, 1e9]", "[-1, 128]"]
)
def test_a_block_of_scales_has_whole_sides(command_line: Command, block: str) -> None:
    """`1.` is the whole number 1 by YAML's schema; what is none, or a text of one, is refused."""
    scales = f"precision={{base: fp8-block, matmul: {{scales: {{activations: {block}}}}}}}"
    result = command_line("check", "8b", "--no-search", "--set", scales)
    whole = block in {"[1., 128.]", "[1.0, 128]"}
    assert result.exit_code == (0 if whole else 2), result.output


def numeric_rows() -> Iterator[tuple[str, Any]]:
    """Every field of every kind of spec that holds a number, with its type."""
    for kind in KINDS:
        for row in nested_types(TYPES[kind]):
            if isinstance(row, Row):
                inner = row.type.inner if isinstance(row.type, Sourced) else row.type
                if isinstance(inner, Integer | Number | Quantity):
                    yield f"{kind}: {row.key or row.attribute}", inner


NUMERIC = dict(numeric_rows())


def faults(kind: Any, value: object) -> Faults:
    """What a type has against a value."""
    found: Faults = []
    kind.read(StatedValue(as_node(value, Location("x"))), found)
    return found


def said(kind: Any, value: Fraction | float) -> object:
    """The value as a spec has it: bare, or with a unit."""
    if not isinstance(kind, Quantity):
        return value
    whole = int(value) if value == int(value) else float(value)
    return write(whole, kind.unit)


@pytest.mark.parametrize("name", NUMERIC)
def test_every_number_has_a_range_and_is_held_to_it(name: str) -> None:
    """Both ends are taken, and nothing beyond them, nor what is no number, of another dimension, or not finite."""
    kind = NUMERIC[name]
    least, greatest = kind.interval
    assert -(10**40) < least <= greatest < 10**40
    whole = isinstance(kind, Integer) or (
        isinstance(kind, Quantity) and DIMENSIONS[kind.unit].is_counted and not kind.measured
    )
    if greatest > least:
        assert faults(kind, said(kind, greatest)) == []
        assert faults(kind, said(kind, least)) == []
    beyond = int(greatest) + 1 if whole else greatest * 2 or 1
    assert faults(kind, said(kind, beyond))
    assert faults(kind, said(kind, int(least) - 1 if whole or least <= 0 else least / 2))
    for wrong in (True, [1], {"a": 1}, None, float("nan"), float("inf"), "nan", "inf", "1e999", "9" * 5000, "80 x", ""):
        assert faults(kind, wrong), wrong
    other = "1 kg" if getattr(kind, "unit", "") != "kg" else "1 W"
    assert faults(kind, other)
    if whole and not isinstance(kind, Quantity):
        assert faults(kind, 1.5)
    if isinstance(kind, Size):
        assert faults(kind, "1 / 0")
