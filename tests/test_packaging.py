"""Installation as users do it, and the messages they get when something does not fit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from importlib import metadata
from pathlib import Path

import pytest
import torch

from syncfree.detector.operators import library_name

ROOT = Path(__file__).resolve().parent.parent

SMOKE = """
import syncfree, torch
from syncfree.functional import peak_signal_noise_ratio, structural_similarity_index_measure
assert not syncfree.__file__.startswith({root!r}), syncfree.__file__
x = torch.rand(2, 3, 32, 32)
assert peak_signal_noise_ratio(x, x, 1.0).isinf()
assert structural_similarity_index_measure(x, x, data_range=1.0) == 1
print("works", syncfree.__version__)
"""


def run(
    *command: object, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A virtual environment without any package."""
    venv.create(tmp_path / "venv", with_pip=False)
    return tmp_path / "venv" / "bin" / "python"


def site_packages(python: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return python.parent.parent / "lib" / version / "site-packages"


def borrow_packages(python: Path) -> None:
    """Lets the environment see this one's packages (torch, pip), but no editable install."""
    here = Path(torch.__file__).resolve().parent.parent
    (site_packages(python) / "borrowed.pth").write_text(f"{here}\n")


def fake_torch(python: Path, version: str, cuda: str | None) -> None:
    package = site_packages(python) / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\n")


def configure(python: Path, build: Path, *options: str, **env: str) -> str:
    """CMake's output for a configuration that must fail."""
    cmake = Path(sys.executable).parent / "cmake"
    result = run(
        cmake if cmake.exists() else "cmake",
        "-S",
        ROOT,
        "-B",
        build,
        f"-DPython_EXECUTABLE={python}",
        *options,
        env=env,
    )
    assert result.returncode != 0, result.stdout
    return " ".join(result.stderr.split())


def test_no_torch(python: Path, tmp_path: Path) -> None:
    message = configure(python, tmp_path / "build")
    assert "no torch is installed" in message
    assert "pip install 'torch>=2.11'" in message


def test_no_headers_of_python(tmp_path: Path) -> None:
    message = configure(Path(sys.executable), tmp_path, "-DPython_INCLUDE_DIR=/nowhere")
    assert f"{sys.executable} comes without its headers (Python.h)" in message
    assert "apt install python3-dev" in message


def test_old_torch(python: Path, tmp_path: Path) -> None:
    fake_torch(python, "2.9.1+cpu", None)
    message = configure(python, tmp_path / "build")
    assert "needs torch 2.11 or newer" in message
    assert "found torch 2.9.1+cpu" in message


@pytest.fixture
def without_nvcc(tmp_path: Path) -> dict[str, str]:
    """An environment with the tools of a build, but no nvcc."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ["g++", "gcc", "c++", "cc", "ld", "as", "ar", "ranlib", "make", "ninja", "uname"]:
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    return {"PATH": str(tools), "CUDACXX": "", "CUDA_PATH": ""}


@pytest.mark.parametrize("wish", ["a GPU", "ON"])
def test_cuda_without_nvcc(
    python: Path, tmp_path: Path, without_nvcc: dict[str, str], wish: str
) -> None:
    fake_torch(python, "2.13.0+cu130", "13.0")
    options = ["-DSYNCFREE_CUDA=ON"]
    if wish == "a GPU":
        smi = tmp_path / "bin" / "nvidia-smi"
        smi.write_text("#!/bin/sh\necho 9.0\n")
        smi.chmod(0o755)
        (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
        options = []
    message = configure(python, tmp_path / "build", *options, **without_nvcc)
    assert "no nvcc was found" in message
    assert "SYNCFREE_CUDA=OFF" in message


def test_cuda_torch_without_nvcc_and_gpu(
    python: Path, tmp_path: Path, without_nvcc: dict[str, str]
) -> None:
    """`pip install torch` brings one for CUDA on any machine; this one can use the CPU library."""
    fake_torch(python, "2.13.0+cu130", "13.0")
    # It fails later on, without pybind11.
    message = configure(python, tmp_path / "build", "-Dpybind11_DIR=/nowhere", **without_nvcc)
    assert "has neither nvcc nor a GPU" in message
    assert "no nvcc was found" not in message


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc to differ from torch's CUDA")
def test_cuda_major_mismatch(python: Path, tmp_path: Path) -> None:
    fake_torch(python, "2.13.0+cu99", "99.1")
    message = configure(python, tmp_path / "build", "-DCMAKE_CUDA_ARCHITECTURES=75")
    assert "torch 2.13.0+cu99 is built for CUDA 99.1" in message
    assert "CUDACXX=/usr/local/cuda-99/bin/nvcc" in message


def test_unknown_cuda_option(python: Path, tmp_path: Path) -> None:
    fake_torch(python, "2.13.0+cpu", None)
    assert "AUTO, ON or OFF" in configure(python, tmp_path / "build", "-DSYNCFREE_CUDA=maybe")


def failed_import(preparation: str) -> str:
    code = f"{preparation}\nimport syncfree.functional"
    result = run(sys.executable, "-c", code)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("syncfree.errors.LibraryError: "), result.stderr
    return last


def test_import_with_old_torch() -> None:
    message = failed_import("import torch; torch.__version__ = '2.9.1'")
    assert "needs torch 2.11 or newer, but torch 2.9.1 is installed" in message


def test_import_without_library() -> None:
    message = failed_import("import syncfree._libraries as l; l.find = lambda name: None")
    assert "libsyncfree_ops_cpu.so is missing" in message
    assert "pip install --force-reinstall" in message


def test_without_the_cuda_library() -> None:
    """The CPU works as ever; CUDA tensors are refused, with what to do."""
    code = """
import torch
import syncfree._libraries as libraries
torch.version.cuda, find = "13.0", libraries.find
libraries.find = lambda name: None if name.endswith("cuda") else find(name)
from syncfree.functional import peak_signal_noise_ratio
x = torch.rand(2, 3)
assert peak_signal_noise_ratio(x, x + 0.1, 1.0).isfinite()
on_cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
torch.ops.syncfree.safe_divide.default.redispatch(on_cuda, x, x, 0.0)
"""
    result = run(sys.executable, "-c", code)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("syncfree.errors.LibraryError: torch "), result.stderr
    assert "built for CUDA 13.0, but this syncfree has no CUDA library" in last


def test_import_of_a_damaged_library(tmp_path: Path) -> None:
    damaged = tmp_path / "libsyncfree_ops_cpu.so"
    damaged.write_bytes(b"not a library")
    message = failed_import(
        "import pathlib, syncfree._libraries as l\n"
        f"l.find = lambda name: pathlib.Path({str(damaged)!r})"
    )
    assert "does not load into torch" in message


def test_import_is_light() -> None:
    code = "import sys, syncfree; print('torch' in sys.modules, 'torchmetrics' in sys.modules)"
    assert run(sys.executable, "-c", code).stdout.split() == ["False", "False"]


def test_functional_needs_torch_alone() -> None:
    """No extra: neither torchmetrics nor anything of the command line."""
    code = (
        "import sys\n"
        "for name in ('torchmetrics', 'numpy', 'rich', 'typer', 'PIL', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "import torch\n"
        "from syncfree.functional import peak_signal_noise_ratio as f\n"
        "print(f(torch.ones(4), torch.zeros(4), 1.0).item())\n"
    )
    assert float(run(sys.executable, "-c", code).stdout) == 0


def test_info_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['syncfree', 'info', '--json']\n"
        "from syncfree.cli import main; sys.exit(main())"
    )
    result = run(sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["torch"].startswith("unavailable: ")
    assert facts["build"]["torch"]
    assert facts["cpu"]["instruction_set"] in ("baseline", "avx2", "avx512")


def test_info_beside_damaged_packages(tmp_path: Path) -> None:
    for name in ("rich", "numpy"):
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
    bad_text = tmp_path / "numpy-1.0.dist-info" / "METADATA"
    bad_text.write_bytes(b"Name: numpy\nVersion: 1.0\nAuthor: \xff")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from syncfree.cli import main; sys.exit(main(['info', '--json']))"
    )
    result = run(sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr
    packages = json.loads(result.stdout)["packages"]
    assert packages["rich"] == "unavailable: its metadata names no version"
    assert packages["numpy"].startswith("unavailable: UnicodeDecodeError")
    # Its metadata may leave out what torch.__version__ has behind a plus sign.
    assert packages["torch"] == metadata.version("torch")


def test_info_as_text() -> None:
    result = run(sys.executable, "-m", "syncfree", "info")
    assert result.returncode == 0
    assert f"version              {torch.__version__}" in result.stdout
    assert "libsyncfree_ops_cpu.so" in result.stdout


def online() -> bool:
    """Whether pip reaches an index."""
    return run(sys.executable, "-m", "pip", "index", "versions", "pybind11").returncode == 0


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` makes."""
    folder = tmp_path_factory.mktemp("wheel")
    result = run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--wheel-dir",
        folder,
        ROOT,
    )
    assert result.returncode == 0, result.stderr
    return next(folder.glob("syncfree-*.whl"))


def test_sdist_has_no_build_products(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, checkout)
    sources = {"CMakeLists.txt", "csrc/core/a.h", "include/syncfree/b.h", "cmake/c.py"}
    products = {"build/cp311/csrc/core/a.o", ".venv/include/Python.h", "cmake/__pycache__/x.pyc"}
    for name in sources | products:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).touch()
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"
    done = run(sys.executable, "-c", code, cwd=checkout)
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sources <= names
    assert not products & names


def install(python: Path, wheel: Path) -> None:
    borrow_packages(python)
    installed = run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--ignore-installed",
        wheel,
    )
    assert installed.returncode == 0, installed.stderr


@pytest.mark.slow
def test_wheel_in_an_empty_environment(wheel: Path, python: Path, tmp_path: Path) -> None:
    install(python, wheel)
    result = run(python, "-c", SMOKE.format(root=str(ROOT)), cwd=tmp_path)
    assert result.stdout.startswith("works"), result.stderr
    info = run(python.parent / "syncfree", "info", "--json", cwd=tmp_path)
    assert json.loads(info.stdout)["syncfree"] == wheel.name.split("-")[1]


@pytest.mark.slow
def test_wheel_serves_cpp_programs(wheel: Path, python: Path, tmp_path: Path) -> None:
    """The first program of docs/cpp.md, by CMake and by a line for the compiler."""
    install(python, wheel)
    page = (ROOT / "docs" / "cpp.md").read_text()
    project, program, by_cmake, by_line = (
        re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)[number]
        for language, number in (("cmake", 0), ("cpp", 0), ("bash", 0), ("bash", 1))
    )
    search_path = f"{python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name, lines in (("cmake", by_cmake), ("line", by_line)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "CMakeLists.txt").write_text(project)
        (folder / "compare.cpp").write_text(program)
        done = run("bash", "-euc", lines, cwd=folder, env={"PATH": search_path})
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1].startswith("26.02 dB, SSIM 0."), done.stdout


@pytest.mark.slow
def test_wheel_holds_what_it_should(wheel: Path) -> None:
    import zipfile

    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "syncfree/py.typed",
        "syncfree/_runtime.pyi",
        "syncfree/lib/libsyncfree_ops_cpu.so",
        f"syncfree/lib/lib{library_name(torch.__version__)}.so",
        "syncfree/lib/cmake/syncfree/syncfreeConfig.cmake",
        "syncfree/lib/libsyncfree_core.so",
        "syncfree/include/syncfree/c_api.h",
        "syncfree/include/syncfree/version.h",
        "syncfree/include/syncfree/torch/ssim.h",
    } <= names
    assert [n for n in names if n.startswith("syncfree/lib/libsyncfree_core.so.")]
    assert not [n for n in names if n.startswith(("tests/", "csrc/", "benchmarks/")) or "stub" in n]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", [True, False], ids=["isolated", "no-build-isolation"])
def test_pip_install_from_source(isolation: bool, python: Path, tmp_path: Path) -> None:
    if isolation and not online():
        pytest.skip("pip's isolation downloads the build tools, and this machine has no network")
    borrow_packages(python)
    # A build folder of its own, since tests run side by side; optimising would take minutes.
    options = [
        f"--config-settings=build-dir={tmp_path / 'build'}",
        "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0",
    ]
    if not isolation:
        options.append("--no-build-isolation")
    installed = run(
        python, "-m", "pip", "install", "--no-deps", "--ignore-installed", *options, ROOT
    )
    assert installed.returncode == 0, installed.stdout + installed.stderr
    result = run(python, "-c", SMOKE.format(root=str(ROOT)), cwd=tmp_path)
    assert result.stdout.startswith("works"), result.stderr
