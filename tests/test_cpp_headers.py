"""The public C++ headers, and what an installed package tells of itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cpp_programs
from cpp_programs import ROOT, run
from syncfree._libraries import find


def compiler() -> str:
    found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert found is not None
    return found


def test_every_core_header_stands_alone(tmp_path):
    include = Path(cpp_programs.include_dir())
    headers = sorted([*include.glob("syncfree/*.h"), *include.glob("syncfree/idle_gap/*.h")])
    names = [str(h.relative_to(include / "syncfree")) for h in headers if h.name != "torch.h"]
    expected = {"c_api.h", "psnr.h", "ssim.h", "syncfree.h", "tensor_view.h", "idle_gap/verdict.h"}
    assert expected <= set(names)
    sources = []
    for name in names:
        source = tmp_path / f"{name.replace('/', '_')}.cpp"
        source.write_text(f"#include <syncfree/{name}>\n#include <syncfree/{name}>\n")
        sources.append(source)
    flags = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", include]
    done = run(compiler(), "-std=c++17", *flags, *sources)
    assert done.returncode == 0, done.stderr


def test_the_c_header_is_c(tmp_path):
    source = tmp_path / "program.c"
    source.write_text("#include <syncfree/c_api.h>\n")
    flags = ["-std=c99", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    done = run(
        os.environ.get("CC") or shutil.which("cc") or "gcc",
        *flags, "-I", cpp_programs.include_dir(), source,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backwards", [False, True])
def test_torch_headers_need_no_other_before_them(tmp_path, backwards):
    """LibTorch's headers take seconds, so they are parsed twice, not once for each of ours.

    Each of ours follows every other one in one of the two orders alone, so what it lacked would be
    missing in one of them.
    """
    include = Path(cpp_programs.include_dir())
    names = sorted(f"torch/{h.name}" for h in include.glob("syncfree/torch/*.h"))
    assert {"torch/accuracy.h", "torch/psnr.h", "torch/ssim.h", "torch/tensor.h"} <= set(names)
    names = ["torch.h", *names]
    source = tmp_path / "all.cpp"
    source.write_text(
        "".join(f"#include <syncfree/{n}>\n" for n in (reversed(names) if backwards else names[1:]))
    )
    base = Path(torch.__file__).parent / "include"
    flags = [
        "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", include,
        "-isystem", base, "-isystem", base / "torch/csrc/api/include",
    ]  # fmt: skip
    if torch.version.cuda is not None:
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        flags += ["-isystem", Path(nvcc).resolve().parents[1] / "include"]
    done = run(compiler(), *flags, source)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (
            "tensor_view",
            "const float pixel = 0;\n"
            "const std::int64_t huge = std::int64_t{1} << 40;\n"
            "return syncfree::view(&pixel, {huge, huge}).get()->rank - 2;\n",
        ),
        (
            "ssim",
            "syncfree::Window window;\n"
            'for (const double sigma : {-1e300, std::nan(""), 0.0, 1e6, 1e300, HUGE_VAL})\n'
            "  for (const int kernel : {INT_MIN, 0, INT_MAX})\n"
            "    for (int flags = 0; flags < 4; ++flags) {\n"
            "      window = {flags % 2 == 1, sigma, kernel, flags > 1};\n"
            "      for (int axis = 0; axis < 3; ++axis)\n"
            "        (void)syncfree::detail::map_size(window, axis, 32);\n"
            "    }\n"
            "return 0;\n",
        ),
    ],
)
def test_what_no_memory_holds_is_left_to_the_call(tmp_path, header, body):
    """Which refuses it; a program built with sanitizers must get that far."""
    source, program = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(
        f"#include <syncfree/{header}.h>\n#include <climits>\n#include <cmath>\n"
        f"int main() {{\n{body}}}\n"
    )
    trap = ["-fsanitize=signed-integer-overflow,float-cast-overflow"]
    trap += ["-fsanitize-undefined-trap-on-error"]
    include = cpp_programs.include_dir()
    built = run(compiler(), "-std=c++17", *trap, "-I", include, source, "-o", program)
    assert built.returncode == 0, built.stderr
    assert run(program).returncode == 0


def test_symbols_of_the_library():
    """Functions of the C interface, and nothing else that could meet another library's."""
    library = next(Path(cpp_programs.package_dir()).parents[1].glob("libsyncfree_core.so.*"))
    listed = run("nm", "-D", "--defined-only", library)
    assert listed.returncode == 0, listed.stderr
    symbols = {line.split()[-1] for line in listed.stdout.splitlines()}
    header = (Path(cpp_programs.include_dir()) / "syncfree" / "c_api.h").read_text()
    declared = set(re.findall(r"(syncfree_\w+)\(", header)) - {"syncfree_parallel_for"}
    assert symbols == declared
    # The version stands in the file's own name, since wheels hold no links.
    assert f"SONAME {library.name}" in " ".join(run("objdump", "-p", library).stdout.split())


def test_cuda_is_in_it_where_the_ops_have_it(programs):
    cache = (programs / "CMakeCache.txt").read_text()
    directory = re.search(r"^syncfree_DIR:\w+=(.*)$", cache, re.MULTILINE)
    assert directory is not None
    text = (Path(directory.group(1)) / "syncfreeConfig.cmake").read_text()
    wanted = "ON" if find("syncfree_ops_cuda") is not None else "OFF"
    assert f"set(syncfree_WITH_CUDA {wanted})" in text


def test_version_of_the_package(tmp_path):
    project = (
        "cmake_minimum_required(VERSION 3.24)\nproject(x LANGUAGES NONE)\n"
        "find_package(syncfree {wanted} QUIET CONFIG)\n"
        'message("found=${{syncfree_FOUND}} of ${{syncfree_CONSIDERED_VERSIONS}}")\n'
    )
    pyproject = (ROOT / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.*)"', pyproject, re.MULTILINE)
    assert version is not None
    for wanted, found in [(version.group(1), "1"), ("99.0", "0")]:
        source = tmp_path / wanted
        source.mkdir()
        (source / "CMakeLists.txt").write_text(project.format(wanted=wanted))
        done = cpp_programs.configure(source, source / "build")
        assert f"found={found} of " in done.stderr, done.stderr
        assert version.group(1) in done.stderr


def test_unknown_component_is_named(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(x LANGUAGES NONE)\n"
        "find_package(syncfree REQUIRED COMPONENTS core cuda)\n"
    )
    done = cpp_programs.configure(tmp_path, tmp_path / "build")
    assert done.returncode != 0
    assert "no component cuda; there are core and torch" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("wanted", "works"), [("OPTIONAL_COMPONENTS torch", True), ("COMPONENTS torch", False)]
)
def test_torch_may_be_absent_where_it_is_optional(tmp_path, wanted, works):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(x LANGUAGES CXX)\n"
        f"find_package(syncfree REQUIRED {wanted})\n"
        'message(WARNING "torch=${syncfree_torch_FOUND}")\n'
        "if(NOT TARGET syncfree::core OR TARGET syncfree::torch)\n"
        '  message(FATAL_ERROR "wrong targets")\nendif()\n'
    )
    without = "-DTorch_DIR=/nowhere"
    done = cpp_programs.configure(tmp_path, tmp_path / "build", without)
    assert (done.returncode == 0) == works, done.stderr
    assert ("torch=0" in done.stderr) == works


@pytest.mark.parametrize(
    ("option", "file"),
    [
        ("--include-dir", "syncfree/c_api.h"),
        ("--lib-dir", "libsyncfree_core.so"),
        ("--cmake-dir", "syncfreeConfig.cmake"),
    ],
)
def test_folders_need_nothing_but_python(option, file):
    code = (
        "import sys\n"
        "for name in ('torch', 'typer', 'rich', 'numpy'): sys.modules[name] = None\n"
        f"from syncfree.cli import main; sys.exit(main(['{option}']))"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip(), file).is_file()


def test_folders_of_a_source_tree(tmp_path):
    package = tmp_path / "syncfree"
    shutil.copytree(ROOT / "python" / "syncfree", package,
                    ignore=shutil.ignore_patterns("lib", "include", "__pycache__"))  # fmt: skip
    # Without site, in which an editable install would come first.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "syncfree", "--cmake-dir"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2, done.stdout
    assert "syncfreeConfig.cmake is missing from the installed package" in done.stderr
    assert "pip install" in done.stderr
