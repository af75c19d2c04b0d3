"""Fake CUDA tensors on a machine without CUDA: autograd needs a device guard, which a CPU build of PyTorch lacks."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from ledger.whole_files import replace_file, scratch_folder

SOURCE = Path(__file__).with_name("guard.cpp")


class GuardBuildError(RuntimeError):
    """The guard cannot be built on this machine; the message holds the compiler's words."""


def install_cuda_guard() -> None:
    """Let this process run backward passes on fake `cuda` tensors; does nothing where torch has CUDA.

    Raises `GuardBuildError` where no C++ compiler is found or the build fails.
    """
    import torch

    if torch.backends.cuda.is_built():
        return
    ctypes.CDLL(str(_library(Path(torch.__file__).parent, torch.__version__))).install_guard()


def _library(torch_folder: Path, torch_version: str) -> Path:
    """The built guard, kept per source and torch version in the user's cache folder."""
    digest = hashlib.sha256(SOURCE.read_bytes() + torch_version.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ledger"
    library = cache / f"cuda_guard-{digest}.so"
    if not library.exists():
        _build(library, torch_folder)
    return library


def _build(library: Path, torch_folder: Path) -> None:
    """Compile the guard to `library`, so that two processes may build it at once."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise GuardBuildError("fake cuda tensors need a C++ compiler (g++) to build a device guard; none was found")
    with scratch_folder() as folder:
        built = folder / library.name
        flags = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{torch_folder / 'include'}"]
        links = [f"-L{torch_folder / 'lib'}", "-lc10", "-ltorch_cpu"]
        done = subprocess.run(  # noqa: S603  # the user's compiler on our own source
            [compiler, *flags, str(SOURCE), "-o", str(built), *links], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise GuardBuildError(f"building the device guard failed:\n{done.stderr}")
        replace_file(library, built.read_bytes(), durable=False)
