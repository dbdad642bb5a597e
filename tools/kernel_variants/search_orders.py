"""Searches for orders of additions in SSIM's ring strips that compile to the best code.

    python tools/kernel_variants/search_orders.py [--task kValue] [--type float] [--keep-taps]
                                                  [--out FOLDER]

It needs nvcc and nvdisasm, and no GPU. It compiles one kernel with random orders
(csrc/ssim/ssim_ring_orders.h, and csrc/ssim/gradient_orders.h for `--task gradients`) and examines
its loop over rows: the number of instructions; how many of them only move registers or access local
memory; and how many are between the loads of a row's pixels and the first instruction that waits
for the same scoreboard: with fewer than about 700, it waits for memory. The same is counted between
a load from shared memory and the instruction that waits for it: 32 are enough.
The best orders are printed in the form of the header. Only a GPU can tell which of them is the
fastest: `compare.py` times them.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Tasks besides those of StripTask, and whether gradients of errors arrive.
GRADIENTS = {"gradients": "false", "gradients_and_errors": "true"}


@dataclass(frozen=True)
class Kernel:
    """A kernel to compile; its orders are the text after `mark` in the header."""

    header: Path
    mark: str
    source: str


STRIPS = Kernel(
    Path("csrc/ssim/ssim_ring_orders.h"),
    "// Orders of taps are the same",
    """#include "ssim/ssim_ring.cuh"
namespace syncfree::ssim {{
template __global__ void ring_strip_kernel<VectorRows<{element}, 2>, StripTask::{task}>(
    const __grid_constant__ Job<float>, const __grid_constant__ StripUnits);
}}
""",
)
RINGS_OF_GRADIENTS = Kernel(
    Path("csrc/ssim/gradient_orders.h"),
    "// With errors or without",
    """#include "ssim/ssim_backward_ring.cuh"
namespace syncfree::ssim {{
template __global__ void gradient_ring_kernel<VectorPixelsOf<{element}, kColumns>, {errors}>(
    const __grid_constant__ BackwardJob<float>, const __grid_constant__ GradientStrips,
    const __grid_constant__ WalkResults);
}}
""",
)
TAPS = ["kAscending", "kDescending", "kMiddleFirst", "kEndsFirst", "kFifthFirst", "kSeventhFirst"]
ASKS = ["kAtOnce", "kBeforeSums", "kAfterSums", "kBeforeSquares", "kAfterSquares"]
OUTPUTS = ["kWithItsSums", "kWithTheSecondRow", "kLast"]
PLANES = 4  # of the values that windows pass back, each of which has a step of its own
STEP = r"\{k(?:Level|Slope)[SD], TapOrder::k\w+\}"
# The load instruction for four pixels, by their type.
LOADS = {
    "float": "LDG.E.128",
    "Half": "LDG.E.64",
    "BFloat16": "LDG.E.64",
    "std::uint8_t": "LDG.E",
}
# For four columns: one for each output of a pair of rows, or two for each output of one row.
RECIPROCALS = 8
ENOUGH = 32  # instructions between a load from shared memory and its use


@dataclass(frozen=True)
class Instruction:
    """One line of SASS; the scoreboards are in its control code, its second 64 bits."""

    address: int
    text: str
    control: int

    @property
    def sets(self) -> int:
        """The scoreboard that is released when its result is ready; 7 for none."""
        return self.control >> 46 & 7

    def waits_for(self, scoreboard: int) -> bool:
        """Whether it is issued only after the scoreboard is released."""
        return bool(self.control >> 52 >> scoreboard & 1)


@dataclass(frozen=True)
class Loop:
    """The figures of the loop over rows."""

    instructions: int
    moves: int
    distance: int  # from the last load of pixels to the first instruction that waits for it
    local: int = 0  # accesses to local memory, which may wait for the pixels' scoreboard
    missing: int = 0  # between loads from shared memory and their use, up to ENOUGH each

    @property
    def cost(self) -> float:
        """An estimate in instructions."""
        waits = max(0, 700 - self.distance) / 10 + self.missing / 4
        return self.instructions + 100 * self.local + waits


def disassembled(cubin: Path) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions of the only kernel, and the addresses of its labels."""
    command = ["nvdisasm", "-hex", "-c", str(cubin)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    opened = ("", 0)
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            waiting.append(label[1])
        elif first := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", line):
            opened = (first[2].strip(), int(first[1], 16))
            labels.update(dict.fromkeys(waiting, opened[1]))
            waiting.clear()
        elif (second := re.match(r"\s+/\* 0x([0-9a-f]{16}) \*/", line)) and opened[0]:
            instructions.append(Instruction(opened[1], opened[0], int(second[1], 16)))
            opened = ("", 0)
    return instructions, labels


def innermost_loop(
    instructions: list[Instruction], labels: dict[str, int], load: str = LOADS["float"]
) -> Loop:
    """The shortest of the loops that compute the outputs of a row or of a pair of rows.

    Raises:
        RuntimeError: There is no such loop.
    """
    bodies = []
    for each in instructions:
        jump = re.search(r"BRA.*\((\.L_x_\d+)\)", each.text)
        if jump and labels[jump[1]] < each.address:
            body = [i for i in instructions if labels[jump[1]] <= i.address <= each.address]
            if sum("MUFU.RCP" in i.text for i in body) == RECIPROCALS:
                bodies.append(body)
    if not bodies:
        raise RuntimeError("no loop over rows in the kernel's SASS")
    body = min(bodies, key=len)
    # The last load of each scoreboard.
    loads = {each.sets: at for at, each in enumerate(body) if each.text.startswith(load + " ")}
    if not loads:
        raise RuntimeError(f"the loop over rows loads no pixels four at a time ({load})")
    distances = [
        next(k for k, each in enumerate(body[at + 1 :] + body, 1) if each.waits_for(scoreboard))
        for scoreboard, at in loads.items()
    ]
    moves = sum(bool(re.match(r"(@!?P\d+ +)?(IMAD\.)?MOV", each.text)) for each in body)
    local = sum(bool(re.search(r"\b(LDL|STL)\b", each.text)) for each in body)
    return Loop(len(body), moves, min(distances), local, missing_before_use(body))


def missing_before_use(body: list[Instruction]) -> int:
    """How many instructions are missing in total before waits for shared memory and MUFU."""
    asked: dict[int, int] = {}
    missing = 0
    for at, each in enumerate(body):
        for scoreboard in [s for s in asked if each.waits_for(s)]:
            missing += max(0, ENOUGH - (at - asked.pop(scoreboard)))
        if re.match(r"(@!?U?P\d+ +)?(LDS|MUFU)\b", each.text) and each.sets < 6:
            asked[each.sets] = at
    return missing


def random_orders(
    rng: random.Random,
    header: str,
    with_taps: bool,
    mark: str = STRIPS.mark,
    share: float = 1.0,
) -> str:
    """The header with random orders of all tasks: `share` of the choices are drawn again.

    Raises:
        ValueError: The header does not have the mark.
    """

    def chosen(names: list[str]) -> Callable[[re.Match[str]], str]:
        return lambda now: rng.choice(names) if rng.random() < share else now[0]

    def drawn(text: str, kind: str, names: list[str]) -> str:
        return re.sub(rf"(?<={kind}::)k\w+", chosen(names), text)

    head, found, tail = header.partition(mark)
    if not found:
        raise ValueError(
            f"the orders are behind a comment that begins with {mark!r}, but the header has none: "
            "restore it, or change the `mark` of its Kernel in search_orders.py"
        )
    # The steps of the planes are shuffled; each plane keeps its order of taps.
    steps = re.findall(STEP, tail)
    of_kernels = [steps[i : i + PLANES] for i in range(0, len(steps), PLANES)]
    shuffled = iter(
        step
        for each in of_kernels
        for step in (rng.sample(each, PLANES) if rng.random() < share else each)
    )
    tail = re.sub(STEP, lambda _: next(shuffled), tail)
    if with_taps:
        tail = drawn(tail, "TapOrder", TAPS)
    tail = re.sub(r"\b(true|false)\b(?!>)", chosen(["true", "false"]), tail)
    return head + mark + drawn(drawn(tail, "AskAhead", ASKS), "FirstOutputs", OUTPUTS)


def kernel_of(task: str) -> Kernel:
    """The kernel that has the task."""
    return RINGS_OF_GRADIENTS if task in GRADIENTS else STRIPS


def compiled(header: str, task: str, element: str, arch: str) -> Loop:
    """The loop of the task's kernel, compiled with the orders of a header."""
    kernel = kernel_of(task)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(ROOT / "csrc", tree / "csrc")
        (tree / kernel.header).write_text(header)
        (tree / "kernel.cu").write_text(
            kernel.source.format(task=task, element=element, errors=GRADIENTS.get(task))
        )
        command = ["nvcc", "-std=c++20", "-O3", "-DNDEBUG", "-DSYNCFREE_WITH_CUDA", "-cubin"]
        command += [f"-I{tree / 'csrc'}", f"-gencode=arch=compute_{arch},code=sm_{arch}"]
        command += [str(tree / "kernel.cu"), "-o", str(tree / "kernel.cubin")]
        subprocess.run(command, capture_output=True, check=True)
        return innermost_loop(*disassembled(tree / "kernel.cubin"), LOADS[element])


def main() -> None:
    """Searches, and prints the best orders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--task", default="kValue", help=f"a name of StripTask, or {' or '.join(GRADIENTS)}"
    )
    parser.add_argument("--type", default="float", choices=LOADS, help="of the pixels")
    parser.add_argument("--keep-taps", action="store_true", help="leave orders of taps as they are")
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the choices that are drawn anew; 0.1: steps"
    )
    parser.add_argument("--arch", default="90")
    parser.add_argument("--best", type=int, default=5, help="how many to print")
    parser.add_argument("--out", type=Path, help="a folder for the headers of the best")
    arguments = parser.parse_args()
    for program in ("nvcc", "nvdisasm"):
        if shutil.which(program) is None:
            parser.error(f"{program} is not in PATH: it comes with the CUDA toolkit")
    rng = random.Random(arguments.seed)
    kernel = kernel_of(arguments.task)
    now = (ROOT / kernel.header).read_text()
    headers = [now]
    headers += [
        random_orders(rng, now, not arguments.keep_taps, kernel.mark, arguments.share)
        for _ in range(arguments.count)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        loops = list(
            pool.map(
                lambda header: compiled(header, arguments.task, arguments.type, arguments.arch),
                headers,
            )
        )
    print(f"as it is: {loops[0]}")
    # Orders whose loops have the same figures are taken for the same code.
    different = dict(zip(reversed(loops), reversed(headers), strict=True))
    ranked = sorted(different.items(), key=lambda found: found[0].cost)
    for rank, (loop, header) in enumerate(ranked[: arguments.best]):
        print(f"{rank}: {loop}\n{kernel.mark}{header.partition(kernel.mark)[2]}")
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            (arguments.out / f"{rank}.h").write_text(header)


if __name__ == "__main__":
    main()
