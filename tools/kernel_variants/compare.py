"""Times variants of SSIM's CUDA kernels beside the kernels as they are.

    python tools/kernel_variants/compare.py build OUT [PATCH ...] [--arch 90]
    python tools/kernel_variants/compare.py run OUT [CASE ...] [--rounds 3]
    python tools/kernel_variants/compare.py sanitize OUT [CASE ...] [--tools memcheck racecheck]

A variant is a patch of csrc, as `git diff` writes it. `build` needs nvcc and no GPU, so it may run
on another machine; `run` needs a GPU and no compiler. `sanitize` looks for memory errors and races
with compute-sanitizer, without torch; memcheck takes seconds, racecheck minutes.

Cases: value, errors (with the value), scale (of MS-SSIM's pyramid, with the images of the next
scale), uniform (window), small (images), gradients, loss (value and gradients at once), patches
(value, gradients and loss of small images), frames (the same of larger images).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("time_ssim.cu")
AS_IS = "as it is"


def sources(tree: Path) -> list[Path]:
    """The sources in csrc that the program needs, relative to the tree."""
    files = [*(tree / "csrc/core").glob("*.cu"), *(tree / "csrc/ssim").glob("*.cu")]
    return sorted(file.relative_to(tree) for file in files)


def read_files(made_by_nvcc: Path) -> list[Path]:
    """The files that an object was made from, by the dependency file of nvcc."""
    _, _, files = made_by_nvcc.read_text().replace("\\\n", " ").partition(":")
    return [Path(file.replace("\\ ", " ")) for file in re.split(r"(?<!\\)\s+", files) if file]


def dependencies(made_by_nvcc: Path, tree: Path) -> set[Path]:
    """Those of these files that are in the tree, relative to it."""
    files = read_files(made_by_nvcc)
    return {file.relative_to(tree) for file in files if file.is_relative_to(tree)}


def is_current(made: Path) -> bool:
    """Whether no file that it was made from is newer."""
    files = made.with_suffix(".d")
    if not made.exists() or not files.exists():
        return False
    at = made.stat().st_mtime
    return all(file.exists() and file.stat().st_mtime <= at for file in read_files(files))


def compile_object(source: Path, to: Path, tree: Path, arch: str) -> None:
    """Compiles a source with the options of the library, unless its object is current."""
    if is_current(to):
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "nvcc",
        "-std=c++20",
        "-O3",
        "-DNDEBUG",
        "-DSYNCFREE_WITH_CUDA",
        f"-I{tree / 'csrc'}",
    ]
    command += [f"--generate-code=arch=compute_{arch},code=[sm_{arch}]", "-Xptxas=-v"]
    command += ["-MD", "-MF", str(to.with_suffix(".d")), "-c", str(source), "-o", str(to)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    to.with_suffix(".log").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        raise RuntimeError(f"nvcc could not compile {source}:\n{done.stderr}")


def compile_all(jobs: list[tuple[Path, Path]], tree: Path, arch: str) -> None:
    """Compiles pairs of a source and its object in parallel."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: compile_object(*job, tree, arch), jobs))


def objects_of(tree: Path, arch: str) -> dict[Path, Path]:
    """The place of each source's object, including that of the program."""
    of = {source: tree / arch / source.with_suffix(".o") for source in sources(tree)}
    return {PROGRAM: tree / arch / "time_ssim.o", **of}


def build(out: Path, patches: list[Path], arch: str) -> None:
    """Builds a program for each variant, compiling again only what the patch affects."""
    base = out / "base"
    for stale in (out / "programs", out / "trees", base / "csrc"):
        shutil.rmtree(stale, ignore_errors=True)
    shutil.copytree(ROOT / "csrc", base / "csrc")
    objects = objects_of(base, arch)
    compile_all([(base / source, to) for source, to in objects.items()], base, arch)
    link(objects.values(), out / "programs" / AS_IS)
    for patch in patches:
        tree = out / "trees" / patch.stem
        shutil.copytree(ROOT / "csrc", tree / "csrc")
        changed = apply(patch, tree, base)
        mine = objects_of(tree, arch)
        kept = {
            source: objects[source]
            for source in mine.keys() & objects.keys()
            if not changed & dependencies(objects[source].with_suffix(".d"), base)
        }
        anew = {source: to for source, to in mine.items() if source not in kept}
        if not anew:
            raise RuntimeError(f"{patch} changes nothing of which the program is made")
        compile_all([(tree / source, to) for source, to in anew.items()], tree, arch)
        link([*kept.values(), *anew.values()], out / "programs" / patch.stem)
        print(f"{patch.stem}: {len(anew)} files compiled, {spills(list(anew.values()))}")


def apply(patch: Path, tree: Path, base: Path) -> set[Path]:
    """Applies a patch; returns the files that now differ from the base or exist in only one tree.

    Raises:
        RuntimeError: The patch does not apply, or changes nothing in csrc.
    """
    # In a subfolder of a checkout, git would silently skip files outside of that folder.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.resolve().parent)}
    command = ["git", "apply", str(patch.resolve())]
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{patch} does not apply: {done.stderr.strip()}")
    texts = [
        {file.relative_to(root): file.read_bytes() for file in root.glob("csrc/**/*.*")}
        for root in (base, tree)
    ]
    changed = {
        name
        for name in texts[0].keys() | texts[1].keys()
        if texts[0].get(name) != texts[1].get(name)
    }
    if not changed:
        raise RuntimeError(f"{patch} changes nothing of csrc")
    return changed


def link(objects: Iterable[Path], to: Path) -> None:
    """Links with the static CUDA runtime, so that none is needed where the program runs."""
    to.parent.mkdir(parents=True, exist_ok=True)
    command = ["nvcc", "-cudart=static", *map(str, objects), "-o", str(to)]
    subprocess.run(command, check=True)


def spills(objects: list[Path]) -> str:
    """The bytes spilled by all objects, as reported by ptxas."""
    text = "".join(each.with_suffix(".log").read_text() for each in objects)
    stored = sum(map(int, re.findall(r"(\d+) bytes spill stores", text)))
    return f"{stored} bytes spilled"


def run(out: Path, cases: list[str], rounds: int) -> None:
    """Runs all programs in turn, so that a falling clock affects all of them."""
    programs = sorted(
        (out / "programs").iterdir(), key=lambda each: (each.name != AS_IS, each.name)
    )
    found: dict[str, dict[str, list[tuple[float, str]]]] = {}
    for _ in range(rounds):
        for program in programs:
            done = subprocess.run([program, *cases], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{program.name} failed: {done.stderr.strip()}")
            for line in done.stdout.splitlines():
                case, median, _, value = line.rsplit(maxsplit=3)
                runs = found.setdefault(case, {}).setdefault(program.name, [])
                runs.append((float(median), value))
    for case, variants in found.items():
        print(case)
        (_, expected), *_ = variants[AS_IS]
        for name, runs in variants.items():
            us = statistics.median(median for median, _ in runs)
            note = (
                ""
                if all(value == expected for _, value in runs)
                else f"  value {runs[0][1]}, not {expected}"
            )
            print(f"  {us:10.2f} us  {name}{note}")


def sanitize(out: Path, cases: list[str], tools: list[str]) -> None:
    """Runs each case once in each program, under each tool of compute-sanitizer.

    Raises:
        RuntimeError: A tool found an error, or a program failed.
    """
    for program in sorted((out / "programs").iterdir()):
        for tool in tools:
            command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1"]
            done = subprocess.run(
                [*command, program, "--once", *cases], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise RuntimeError(f"{program.name} under {tool}:\n{done.stdout}{done.stderr}")
            print(f"{program.name} under {tool}: {done.stdout.splitlines()[-1].strip('= ')}")


def main() -> None:
    """Build, run or sanitize."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser(
        "build", help="compile the kernels as they are, and with each patch"
    )
    building.add_argument("out", type=Path)
    building.add_argument("patches", type=Path, nargs="*")
    building.add_argument("--arch", default="90", help="compute capability without its point")
    running = commands.add_parser("run", help="time all that was built")
    running.add_argument("out", type=Path)
    running.add_argument("cases", nargs="*")
    running.add_argument("--rounds", type=int, default=3)
    sanitizing = commands.add_parser("sanitize", help="look for memory errors and races")
    sanitizing.add_argument("out", type=Path)
    sanitizing.add_argument("cases", nargs="*")
    sanitizing.add_argument("--tools", nargs="+", default=["memcheck", "racecheck"])
    arguments = parser.parse_args()
    if arguments.command == "build":
        if shutil.which("nvcc") is None:
            parser.error("nvcc is not in PATH: it comes with the CUDA toolkit")
        if len({patch.stem for patch in arguments.patches}) < len(arguments.patches):
            parser.error("two patches have the same name, which would name both variants")
        build(arguments.out, arguments.patches, arguments.arch)
    elif arguments.command == "sanitize":
        if shutil.which("compute-sanitizer") is None:
            parser.error("compute-sanitizer is not in PATH: it comes with the CUDA toolkit")
        sanitize(arguments.out, arguments.cases, arguments.tools)
    else:
        run(arguments.out, arguments.cases, arguments.rounds)


if __name__ == "__main__":
    sys.exit(main())
