"""The script that looks for orders of additions: what it reads of a kernel's SASS."""

from __future__ import annotations

import random
import re

import pytest
from kernel_variants import search_orders
from kernel_variants.search_orders import Instruction, Loop, innermost_loop

HEADER = (search_orders.ROOT / search_orders.STRIPS.header).read_text()
GRADIENTS = search_orders.RINGS_OF_GRADIENTS


def instruction(
    address: int, text: str, sets: int = 7, waits_for: int | None = None
) -> Instruction:
    waits = 0 if waits_for is None else 1 << 52 + waits_for
    return Instruction(address, text, sets << 46 | waits)


def loop(first_wait: int) -> tuple[list[Instruction], dict[str, int]]:
    """Twenty instructions, whose pixels are asked for in the fourth and fifth."""
    texts = ["FADD R1, R2, R3"] * 20
    texts[3] = texts[4] = "LDG.E.128 R4, desc[UR4][R8.64]"
    texts[6:14] = ["MUFU.RCP R1, R1"] * 8
    texts[15] = "@P1 MOV R1, R2"
    texts[16] = "IMAD.MOV.U32 R1, RZ, RZ, R2"
    texts[19] = "@P2 BRA P5, `(.L_x_1)"
    body = [
        instruction(
            16 * i, text, 5 if "LDG" in text else 7, waits_for=5 if i == first_wait else None
        )
        for i, text in enumerate(texts)
    ]
    return [*body, instruction(320, "EXIT")], {".L_x_1": 0, ".L_x_2": 320}


def test_a_loop_is_counted() -> None:
    assert innermost_loop(*loop(first_wait=17)) == Loop(instructions=20, moves=2, distance=13)


def test_behind_the_last_instruction_comes_the_first() -> None:
    assert innermost_loop(*loop(first_wait=0)).distance == 16


def test_a_loop_around_another_is_left_alone() -> None:
    body, labels = loop(first_wait=17)
    around = [*body[:-1], instruction(320, "BRA `(.L_x_1)")]
    assert innermost_loop(around, labels).instructions == 20


def test_a_kernel_without_the_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no loop over rows"):
        innermost_loop([instruction(0, "EXIT")], {})


def test_a_loop_without_loads_is_refused() -> None:
    body, labels = loop(first_wait=17)
    without = [
        Instruction(i.address, i.text.replace("LDG.E.128", "LDG.E"), i.control) for i in body
    ]
    with pytest.raises(RuntimeError, match="loads no pixels"):
        innermost_loop(without, labels)


def test_pixels_of_other_types_take_narrower_loads() -> None:
    body, labels = loop(first_wait=17)
    bytes_ = [Instruction(i.address, i.text.replace("LDG.E.128", "LDG.E"), i.control) for i in body]
    assert innermost_loop(bytes_, labels, search_orders.LOADS["std::uint8_t"]).distance == 13
    with pytest.raises(RuntimeError, match=r"LDG\.E\.64"):
        innermost_loop(bytes_, labels, search_orders.LOADS["Half"])


@pytest.mark.parametrize("missing", ["nvcc", "nvdisasm"])
def test_a_missing_tool_is_named(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["search_orders.py", "--count", "0"])
    monkeypatch.setattr(
        search_orders.shutil, "which", lambda name: None if name == missing else name
    )
    with pytest.raises(SystemExit):
        search_orders.main()
    assert f"{missing} is not in PATH" in capsys.readouterr().err


def test_control_codes_are_read() -> None:
    one = instruction(0, "LDG.E.128 R4, desc[UR4][R8.64]", sets=3, waits_for=2)
    assert one.sets == 3
    assert [one.waits_for(i) for i in range(6)] == [False, False, True, False, False, False]


def test_waiting_costs() -> None:
    assert Loop(920, 0, 700).cost == Loop(920, 9, 800).cost == 920
    assert Loop(920, 0, 600).cost == 930


def test_early_use_of_shared_memory_costs() -> None:
    body = [instruction(0, "LDS.128 R4, [R1]", sets=2), instruction(16, "@P1 MUFU.RCP R1, R2", 3)]
    body += [instruction(32, "FADD R1, R2, R3", waits_for=2)]
    body += [instruction(48, "FADD R1, R2, R3")] * 40
    body += [instruction(64, "FADD R1, R2, R3", waits_for=3)]
    assert search_orders.missing_before_use(body) == 30
    assert Loop(920, 0, 700, missing=20).cost == Loop(925, 0, 700).cost
    assert Loop(920, 0, 700, local=1).cost == Loop(1020, 0, 700).cost


@pytest.mark.parametrize("kernel", [search_orders.STRIPS, GRADIENTS], ids=lambda k: k.header.stem)
def test_orders_are_found_in_the_header(kernel: search_orders.Kernel) -> None:
    now = (search_orders.ROOT / kernel.header).read_text()
    assert now.count(kernel.mark) == 1
    found = search_orders.random_orders(random.Random(3), now, True, kernel.mark)
    assert found != now
    assert found.startswith(now.partition(kernel.mark)[0])


def test_a_header_without_the_mark_is_refused() -> None:
    """Otherwise each random order would be that of the header."""
    reworded = HEADER.replace(search_orders.STRIPS.mark, "// The taps of all tasks are the same")
    with pytest.raises(ValueError, match=r"begins with '// Orders of taps are the same'.*Kernel"):
        search_orders.random_orders(random.Random(3), reworded, True)


@pytest.mark.parametrize("with_taps", [True, False])
def test_random_orders_of_gradients_are_orders(with_taps: bool) -> None:
    """Each plane once, without taps with its own."""
    now = (search_orders.ROOT / GRADIENTS.header).read_text()
    found = search_orders.random_orders(random.Random(2), now, with_taps, GRADIENTS.mark)
    assert found != now
    steps = [re.findall(search_orders.STEP, text) for text in (now, found)]
    assert steps[0] != steps[1]
    assert len(steps[0]) == len(steps[1]) == 2 * search_orders.PLANES
    for kernel in (slice(0, 4), slice(4, 8)):
        before, after = (sorted(each[kernel]) for each in steps)
        assert [x.split(",")[0] for x in before] == [x.split(",")[0] for x in after]
        if not with_taps:
            assert before == after
    hidden = r"(?<=::)k\w+|k(?:Level|Slope)[SD]|\b(?:true|false)\b(?!>)"
    assert re.sub(hidden, "", found) == re.sub(hidden, "", now)


@pytest.mark.parametrize("with_taps", [True, False])
def test_random_orders_change_choices_alone(with_taps: bool) -> None:
    found = search_orders.random_orders(random.Random(1), HEADER, with_taps)
    assert found != HEADER
    hidden = r"(?<=::)k\w+"
    assert re.sub(hidden, "", found) == re.sub(hidden, "", HEADER)
    if not with_taps:
        taps = r"TapOrder::\w+"
        assert re.findall(taps, found) == re.findall(taps, HEADER)
    names = re.findall(
        r"(?:AskAhead|FirstOutputs|TapOrder)::(k\w+)", found.partition("// Orders of taps")[2]
    )
    assert set(names) <= {*search_orders.TAPS, *search_orders.ASKS, *search_orders.OUTPUTS}


def test_steps_change_few_choices() -> None:
    def choices(header: str) -> list[str]:
        return re.findall(r"(?<=::)k\w+", header.partition(search_orders.STRIPS.mark)[2])

    now = choices(HEADER)
    steps = [
        choices(search_orders.random_orders(random.Random(i), HEADER, True, share=0.1))
        for i in range(20)
    ]
    changed = [sum(a != b for a, b in zip(now, each, strict=True)) for each in steps]
    assert 0 < sum(changed) / len(changed) < 0.2 * len(now)
    still = search_orders.random_orders(random.Random(0), HEADER, True, share=0.0)
    assert still == HEADER


def test_all_names_are_those_of_the_header() -> None:
    for kind, names in (
        ("TapOrder", search_orders.TAPS),
        ("AskAhead", search_orders.ASKS),
        ("FirstOutputs", search_orders.OUTPUTS),
    ):
        listed = re.search(rf"enum class {kind} \{{(.*?)\}}", HEADER, re.DOTALL)
        assert listed is not None
        assert re.findall(r"k\w+", listed[1]) == names
