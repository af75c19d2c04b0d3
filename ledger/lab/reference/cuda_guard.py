"""Fake CUDA tensors without CUDA: autograd's device guard, torch's names of formats, and the identity of storages."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.caches import Cache
from ledger.lab.transformers.config import NoReferenceError
from ledger.whole_files import scratch_folder

if TYPE_CHECKING:
    import torch


SOURCE = Path(__file__).with_name("guard.cpp")
BUILT = Cache("guards")


class GuardBuildError(RuntimeError):
    """The guard cannot be built on this machine; the message holds the compiler's words."""


def install_cuda_guard() -> None:
    """Let this process run backward passes on fake `cuda` tensors; does nothing where torch has CUDA.

    Raises `GuardBuildError` where no C++ compiler is found or the build fails.
    """
    import torch

    if torch.backends.cuda.is_built():
        return
    name, guard = _guard(Path(torch.__file__).parent, torch.__version__)
    with scratch_folder() as folder:  # of this process alone: what is checked there is what is loaded
        library = folder / name
        library.write_bytes(guard)
        ctypes.CDLL(str(library)).install_guard()


def _guard(torch_folder: Path, torch_version: str) -> tuple[str, bytes]:
    """The name and the content of the built guard, kept per source and torch version in the user's cache."""
    digest = hashlib.sha256(SOURCE.read_bytes() + torch_version.encode()).hexdigest()[:16]
    name = f"cuda_guard-{digest}.so"
    guard = BUILT.read(name)
    if guard is None:
        guard = _build(name, torch_folder)
        BUILT.keep(name, guard)
    return name, guard


def _build(name: str, torch_folder: Path) -> bytes:
    """The guard, compiled in a folder of this process alone."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise GuardBuildError("fake cuda tensors need a C++ compiler (g++) to build a device guard; none was found")
    with scratch_folder() as folder:
        built = folder / name
        flags = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{torch_folder / 'include'}"]
        links = [f"-L{torch_folder / 'lib'}", "-lc10", "-ltorch_cpu"]
        done = subprocess.run(  # noqa: S603  # the user's compiler on our own source
            [compiler, *flags, str(SOURCE), "-o", str(built), *links], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise GuardBuildError(f"building the device guard failed:\n{done.stderr}")
        return built.read_bytes()


# --- PyTorch's names of formats ---

TORCH_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a spec's dtype that tensors can have; raises `NoReferenceError` for fp8 and tf32."""
    import torch

    if name not in TORCH_DTYPES:
        raise NoReferenceError(f"{name}: transformers trains in {', '.join(TORCH_DTYPES)} only")
    return getattr(torch, TORCH_DTYPES[name])


# --- the identity of a storage, which views share ---


def identity(storage: torch.UntypedStorage) -> int:
    """A number of its own for each storage that is alive; data_ptr() is 0 for every fake tensor."""
    return int(storage._cdata)  # noqa: SLF001  # has no public name


def storage_of(tensor: torch.Tensor) -> int:
    """The number of the storage that a tensor lies in."""
    return identity(tensor.untyped_storage())
