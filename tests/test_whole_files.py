"""Files are each whole, whatever ends the process that writes them."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ledger.whole_files import UnfinishedFile, create_file, draft_of, replace_file, replace_files, scratch_folder

PACKAGE = Path(__file__).resolve().parent.parent / "ledger"
NAMES = ("a.html", "b.pdf", "c.md")
OLD = {name: f"old {name}".encode() for name in NAMES}
NEW = {name: f"new {name}".encode() * 1000 for name in NAMES}
# Writes the files of a folder, and is killed before the call of the system whose number is given.
KILLED = """
import fcntl, os, pathlib, signal, sys
from ledger import whole_files
left = int(sys.argv[2])
def counted(call):
    def counting(*given, **named):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return call(*given, **named)
    return counting
folder = pathlib.Path(sys.argv[1])
contents = {folder / name: f"new {name}".encode() * 1000 for name in sys.argv[3:]}
for module, names in ((os, ("open", "fsync", "fchmod", "close", "fdopen")), (fcntl, ("flock",))):
    for name in names:
        setattr(module, name, counted(getattr(module, name)))
for name in ("replace", "unlink"):
    setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
whole_files.replace_files(contents)
print(left)
"""


def written(folder: Path, contents: Mapping[str, bytes]) -> dict[Path, bytes]:
    """These files of a folder, as `replace_files` takes them."""
    return {folder / name: content for name, content in contents.items()}


def held(folder: Path) -> dict[str, bytes]:
    """What a folder has."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder with the files of an earlier run."""
    folder = tmp_path / "reports"
    replace_files(written(folder, OLD))
    return folder


def killed_at(folder: Path, step: int) -> subprocess.CompletedProcess[str]:
    """A process that is killed before its step so many, while it writes the new files."""
    command = [sys.executable, "-c", KILLED, str(folder), str(step), *NAMES]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_kill_at_every_step_leaves_whole_files_and_the_next_run_mends_the_set(
    old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each file is the old or the new one; afterwards all are new, nothing unfinished lies there, and that is said."""
    steps = 0
    mixed = told = 0
    while (done := killed_at(old, steps)).returncode == -signal.SIGKILL:
        found = held(old)
        assert all(found[name] in (OLD[name], NEW[name]) for name in NAMES), steps
        sets = {found[name] == NEW[name] for name in NAMES}
        mixed += len(sets) == 2
        left = set(found) - set(NAMES)
        assert left <= {draft_of(Path(name)).name for name in NAMES}
        caplog.clear()
        replace_files(written(old, NEW))
        assert held(old) == NEW
        assert bool(caplog.messages) == bool(left), "what was left is taken away and told, and nothing else"
        told += bool(caplog.messages)
        replace_files(written(old, OLD))
        steps += 1
    assert done.returncode == 0, done.stderr
    assert steps > 20
    assert mixed > 0, "no kill was between two files"
    assert told > steps / 2


def test_an_error_leaves_the_old_set(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full at any file, or one that cannot be put in its place, changes none, and names the file."""
    (old / "c.md").unlink()
    (old / "c.md").mkdir()
    with pytest.raises(IsADirectoryError, match=r"reports/c\.md'$"):
        replace_files(written(old, NEW))
    (old / "c.md").rmdir()
    replace_file(old / "c.md", OLD["c.md"])
    replace = Path.replace

    def refused(self: Path, target: Path) -> Path:
        if target.name == "c.md":
            raise PermissionError(errno.EPERM, "Operation not permitted", str(self))
        return replace(self, target)

    (old / "b.pdf").unlink()
    before = held(old)
    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(PermissionError, match=r"reports/c\.md'$"):
        replace_files(written(old, NEW))
    assert held(old) == before


@pytest.mark.parametrize("call", ["fsync", "fdopen", "fchmod"])
def test_a_full_disk_names_the_file_and_leaves_nothing(old: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Whichever call of the system says it."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    if call == "fchmod":  # a mode that cannot be kept is no reason to lose a file
        replace_files(written(old, NEW))
        return
    with pytest.raises(OSError, match=r"No space left on device: .*reports/a\.html'$"):
        replace_files(written(old, NEW))
    assert held(old) == OLD


def test_a_file_that_grows_too_large_names_itself(tmp_path: Path) -> None:
    """The system's own refusal in the middle of a write, by the limit of a process."""
    code = (
        "import resource, sys, pathlib; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
        "from ledger.whole_files import replace_file; replace_file(pathlib.Path(sys.argv[1]), bytes(10000))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "big.pdf")], capture_output=True, text=True, check=False
    )
    assert done.stderr.endswith(f"File too large: '{tmp_path / 'big.pdf'}'\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_between_two_files_leaves_the_old_set(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is no kill: what was put in its place is put back."""
    replace = Path.replace
    stopped = []

    def interrupted(self: Path, target: Path) -> Path:
        if target.name == "b.pdf" and not stopped:
            stopped.append(target)
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_files(written(old, NEW))
    assert stopped
    assert held(old) == OLD


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_a_new_file_is_as_open_as_the_umask_leaves_it(tmp_path: Path, mask: int, mode: int) -> None:
    """A file for oneself alone stays one, also when it is written anew under another umask."""
    before = os.umask(mask)
    try:
        replace_file(tmp_path / "new", b"1")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode
        os.umask(0o022)
        replace_file(tmp_path / "new", b"2")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode
    finally:
        os.umask(before)


def test_files_and_their_folder_are_on_disk_before_they_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content before the name, the name before the verb goes on; a cache waits for neither."""
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def replaced(self: Path, target: Path) -> Path:
        done.append("name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    replace_file(tmp_path / "a", b"1")
    assert done == ["file", "name", "folder"]
    done.clear()
    replace_file(tmp_path / "a", b"2", durable=False)
    assert done == ["name"]


# Writes part of a file, says so, and waits to be killed.
HOLDING = """
import pathlib, sys, time
from ledger.whole_files import UnfinishedFile, scratch_folder
with UnfinishedFile(pathlib.Path(sys.argv[1])) as file, scratch_folder() as folder:
    file.write(b"half")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[subprocess.Popen[str], Path, Path]]:
    """A process in the middle of a file, the file, and its scratch folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", HOLDING, str(tmp_path / "a")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)})
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    yield process, tmp_path / "a", folder
    process.kill()
    process.wait()
    process.stdout.close()


def test_what_a_living_process_writes_is_let_be(holder: tuple[subprocess.Popen[str], Path, Path]) -> None:
    """Its file is waited for, then refused by name; its folder stays. Killed, both are gone with the next run."""
    process, path, folder = holder
    with pytest.raises(OSError, match=r"another process is writing it: .*a'$"):
        UnfinishedFile(path, patience=0.1)
    with scratch_folder() as own:
        assert own != folder
        assert folder.is_dir()
    assert draft_of(path).read_bytes() == b"half"
    process.kill()
    process.wait()
    assert folder.is_dir()
    with UnfinishedFile(path) as file:
        assert file.left_over
        assert file.draft.read_bytes() == b""
        with scratch_folder():
            assert not folder.exists()
    assert [one.name for one in path.parent.iterdir()] == []


def test_two_writers_of_one_set_take_turns(tmp_path: Path) -> None:
    """Whole sets follow each other; none of two is mixed."""
    sets = [written(tmp_path, {name: f"{number} {name}".encode() * 50000 for name in NAMES}) for number in range(4)]
    threads = [threading.Thread(target=replace_files, args=(one,)) for one in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({content.partition(b" ")[0] for content in held(tmp_path).values()}) == 1
    assert sorted(held(tmp_path)) == sorted(NAMES)


def test_a_new_file_never_takes_the_place_of_one(tmp_path: Path) -> None:
    """Nothing is made for it, either."""
    path = tmp_path / "plan.yaml"
    create_file(path, lambda: b"first")
    with pytest.raises(FileExistsError):
        create_file(path, lambda: pytest.fail("it is made only where it is new"))
    assert held(tmp_path) == {"plan.yaml": b"first"}


def test_where_there_are_no_locks_age_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems of clusters have none: what nobody has written for a minute is a dead process's."""

    def none(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    path = tmp_path / "a"
    draft_of(path).write_bytes(b"half")
    with pytest.raises(OSError, match="another process is writing it"):
        UnfinishedFile(path, patience=0)
    os.utime(draft_of(path), (1, 1))
    replace_file(path, b"whole")
    assert held(tmp_path) == {"a": b"whole"}


# Where the package opens files to write beside `whole_files`, and why that leaves nothing half-written.
WRITERS: Mapping[str, str] = {
    "whole_files.py": "the writer itself",
    "lab/bench/records.py": "records are appended, and a torn one is cut off",
    "lab/bench/collectives.py": "in a scratch folder",
    "lab/reference/cuda_guard.py": "in a scratch folder",
    "report/seals/opening.py": "in a scratch folder",
    "search/outputs.py": "a draft of an unfinished file",
    "search/tasks.py": "a draft of an unfinished file",
}
WRITING = ("write_text", "write_bytes", "replace", "rename", "touch", "mkstemp", "mkdtemp", "TemporaryDirectory")
MODES = ("w", "a", "x", "+")


def writes(node: ast.Call) -> bool:
    """Whether a call writes a file, as far as its name and its mode tell."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("replace", "rename"):  # of texts and dataclasses there are two arguments, or named ones
        return isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords
    if name == "open":
        given = [
            one.value for one in (*node.args, *(key.value for key in node.keywords)) if isinstance(one, ast.Constant)
        ]
        return any(isinstance(one, str) and len(one) < 4 and any(mode in one for mode in MODES) for one in given)
    return name in WRITING


def test_files_are_written_in_one_place() -> None:
    """Each module that writes without it is listed with its reason, and lists none that does not."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and writes(node)
    }
    assert found == set(WRITERS)
