"""Loads the compiled op libraries; errors say what was found and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from syncfree._installation import find_file
from syncfree.errors import LibraryError

MINIMUM_TORCH = (2, 11)


def find(name: str) -> Path | None:
    """Where the library ``name`` of this installation is, or None."""
    return find_file(f"lib/lib{name}.so")


def minor_version(torch_version: str) -> str:
    """The torch version for which a library that uses torch's C++ interface is built.

    Releases of one minor version share that interface; any other build may have its own.

    Example:
        >>> from syncfree._libraries import minor_version
        >>> minor_version("2.13.1+cu130"), minor_version("2.14.0a0+git1234")
        ('2.13', '2.14.0a0+git1234')
    """
    release = re.fullmatch(r"(\d+\.\d+)\.\d+(\+.*)?", torch_version)
    return release[1] if release else torch_version


def load() -> None:
    """Loads the CPU ops and, where torch was built with CUDA, the CUDA ops.

    Without a CUDA library the CPU ops still work, and calls on CUDA tensors raise.
    """
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < MINIMUM_TORCH:
        raise LibraryError(
            f"syncfree needs torch {'.'.join(map(str, MINIMUM_TORCH))} or newer, but torch "
            f"{torch.__version__} is installed. Upgrade it: pip install 'torch>=2.11'"
        )
    _load("syncfree_ops_cpu")
    if torch.version.cuda is None:
        return
    if find("syncfree_ops_cuda") is not None:
        _load("syncfree_ops_cuda")
    else:
        _refuse_cuda_tensors()


# Kept alive, since the registrations of a Library last only as long as the object.
_refusals: list[torch.library.Library] = []


def _refuse_cuda_tensors() -> None:
    message = (
        f"torch {torch.__version__} is built for CUDA {torch.version.cuda}, but this syncfree has "
        "no CUDA library: it was built with SYNCFREE_CUDA=OFF, against a CPU torch, or where there "
        "was neither nvcc nor a GPU. Install the CUDA toolkit and build it again with this torch "
        "installed: pip install --force-reinstall --no-deps ."
    )

    def refuse(*_: object, **__: object) -> None:
        raise LibraryError(message)

    library = torch.library.Library("syncfree", "IMPL")
    _refusals.append(library)
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("syncfree::"):
            library.impl(name.removeprefix("syncfree::"), refuse, "CUDA", allow_override=True)


def _load(name: str) -> None:
    path = find(name)
    if path is None:
        raise LibraryError(
            f"lib{name}.so is missing from the installed package: the installation is incomplete. "
            "Install it again: pip install --force-reinstall --no-deps ."
        )
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise LibraryError(
            f"{path} does not load into torch {torch.__version__} "
            f"(CUDA {torch.version.cuda}): {error}. "
            "Build syncfree again: pip install --force-reinstall --no-deps ."
        ) from error
