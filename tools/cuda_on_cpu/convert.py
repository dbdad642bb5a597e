"""Turns CUDA sources into C++ that a host compiler accepts after the emulator's header.

`python convert.py CSRC OUT` writes each header and kernel source of the metrics from CSRC to OUT
under its own path, sources as `<name>.cu.cpp`. Only what macros cannot express is rewritten:
launches, shared variables, PTX and tests for the compiler. Line numbers do not change, and `#line`
names the original file, so that messages and debuggers refer to it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# These use torch, Python or the host's CUDA runtime, and contain no kernels.
HOST_FOLDERS = {"api", "ops", "runtime"}
HOST_SOURCES = {"kept_workspace.cu", "kept_workspace.h"}

# PTX instructions, and the emulator's functions that compute them.
PTX = {
    "rcp.approx.ftz.f32": "rcp_approx",
    "max.NaN.f32": "max_nan",
    "min.NaN.f32": "min_nan",
}
ASM = re.compile(
    r'asm\("(?P<name>[\w.]+) [^"]*"\s*:\s*"=f"\((?P<result>\w+)\)'
    r"\s*:(?P<inputs>(?:\s*\"f\"\(\w+\),?)+)\);"
)
# Code that nvcc accepts and a host compiler does not: a template argument deduced from those of a
# launch, and a constant without an initializer. Tests for the compiler select the device's code.
SPELLINGS = {
    "coefficients_kernel<<<": "coefficients_kernel<Acc><<<",
    "constexpr StripTaps kTaps;": "constexpr StripTaps kTaps{};",
    "__noinline__": "__attribute__((noinline))",  # not by a macro: the C++ library spells it so too
    "#if __CUDA_ARCH__ >= 800": "#if 1",
    "#if defined(__CUDACC__)": "#if 1",
}
DYNAMIC_SHARED = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?(.+?) (\w+)\[\];")
STATIC_SHARED = re.compile(r"__shared__ (.+?) (\w+)((?:\[[^;]*\])?);")


def matching(text: str, start: int, step: int) -> int:
    """Index of the bracket that closes (step 1) or opens (step -1) the one at `start`."""
    near, far = text[start], {"(": ")", ">": "<"}[text[start]]
    depth, i = 0, start
    while True:
        depth += (text[i] == near) - (text[i] == far)
        if depth == 0:
            return i
        i += step


def convert_launches(text: str) -> str:
    """`kernel<A><<<grid, block>>>(x)` becomes `launch(grid, block)(kernel<A>)(x)`."""
    converted, position = "", 0
    while (opening := text.find("<<<", position)) >= 0:
        end = len(text[:opening].rstrip())
        begin = end - 1
        if text[begin] == ">":
            begin = matching(text, begin, -1) - 1
        while re.match(r"[\w:]", text[begin]):
            begin -= 1
        kernel = text[begin + 1 : end]
        closing = text.index(">>>", opening)
        arguments = closing + 3
        last = matching(text, arguments, 1)
        gap = text[end:opening]  # line breaks, so that line numbers do not change
        converted += (
            f"{text[position : begin + 1]}{gap}::cuda_on_cpu::launch({text[opening + 3 : closing]})"
            f"(*({kernel})){text[arguments : last + 1]}"
        )
        position = last + 1
    return converted + text[position:]


def convert_shared(text: str) -> str:
    """Shared variables become references into the memory of the running block."""

    def static(match: re.Match[str]) -> str:
        type_, name, dims = match.groups()
        # The address of a static object, one for each function and instantiation, identifies the
        # variable.
        return (
            f"static char {name}_key; using {name}_type = std::type_identity_t<{type_}>{dims}; "
            f"auto& {name} = ::cuda_on_cpu::shared_variable<{name}_type>(&{name}_key);"
        )

    text = DYNAMIC_SHARED.sub(
        r"\1* const \2 = static_cast<\1*>(::cuda_on_cpu::dynamic_shared());", text
    )
    return STATIC_SHARED.sub(static, text)


def convert_asm(text: str) -> str:
    """Known PTX instructions become calls of the emulator's functions."""

    def call(match: re.Match[str]) -> str:
        inputs = ", ".join(re.findall(r"\((\w+)\)", match["inputs"]))
        return f"{match['result']} = ::cuda_on_cpu::{PTX[match['name']]}({inputs});"

    return ASM.sub(call, text)


def convert(text: str, name: str) -> str:
    """Converts the text of one file, which messages call `name`."""
    for spelling, accepted in SPELLINGS.items():
        text = text.replace(spelling, accepted)
    text = convert_launches(convert_shared(convert_asm(text)))
    for left in ("asm(", "__shared__ ", "<<<"):
        if left in text:
            raise SystemExit(f"{name}: tools/cuda_on_cpu/convert.py does not understand `{left}`")
    return f'#line 1 "{name}"\n{text}'


def main() -> None:
    """Writes only changed files, so that no other is compiled again, and removes stale ones."""
    source, out = map(Path, sys.argv[1:3])
    left = {path for path in out.rglob("*") if path.is_file()}
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.suffix not in {".cu", ".cuh", ".h"} or path.name in HOST_SOURCES:
            continue
        if relative.parts[0] in HOST_FOLDERS:
            continue
        to = out / relative
        if path.suffix == ".cu":
            to = to.with_name(path.name + ".cpp")
        left.discard(to)
        text = convert(path.read_text(), f"csrc/{relative}")
        if not to.is_file() or to.read_text() != text:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text)
    for path in left:
        path.unlink()


if __name__ == "__main__":
    main()
