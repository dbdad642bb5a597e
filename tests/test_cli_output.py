"""What `syncfree compare` shows, which stream it goes to, and what Ctrl-C leaves."""

import json
import math
import os
import pty
import signal
import subprocess
import sys

import pytest

from picture_folders import two_folders
from syncfree.cli import main
from syncfree.cli.interrupt import deferred_interrupt

SLOW = """
import sys, time
from syncfree.cli import main
from syncfree.cli.compare import pipeline

load = pipeline.load_pair

def slow(pair, *rest):
    print("decoding", flush=True)
    time.sleep(0.3)
    return load(pair, *rest)

pipeline.load_pair = slow
sys.exit(main(["compare", *sys.argv[1:], "--device", "cpu", "--workers", "2"]))
"""


@pytest.fixture
def folders(tmp_path):
    return two_folders(tmp_path)


def test_a_pipe_gets_a_plain_table_and_no_notes(folders, capsys):
    (folders[0] / "lonely.png").write_bytes((folders[0] / "00.png").read_bytes())
    (folders[0] / "notes.txt").touch()
    assert main(["compare", *map(str, folders)]) == 1
    captured = capsys.readouterr()
    assert captured.out.isascii()
    assert "\x1b" not in captured.out
    assert "lonely" not in captured.out
    assert "unpaired" in captured.err
    assert "lonely.png" in captured.err
    assert ".txt (1)" in captured.err


def listed(text):
    return [line.split()[0] for line in text.splitlines() if line[:2].isdigit() and ".png" in line]


def test_long_lists_show_the_worst(folders, capsys):
    arguments = ["compare", *map(str, folders)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert listed(shown) == [f"{index:02}.png" for index in range(24, 4, -1)]
    assert "5 more" in shown
    assert main([*arguments, "--metrics", "mae,psnr"]) == 0
    assert listed(capsys.readouterr().out)[0] == "24.png"
    assert main([*arguments, "--all"]) == 0
    shown = capsys.readouterr().out
    assert listed(shown) == [f"{index:02}.png" for index in range(25)]
    assert "more" not in shown


def test_numbers_in_the_table(folders, capsys):
    """Every sample differs by `index + 1`, so MAE and PSNR are known."""
    assert main(["compare", *map(str, folders), "--all"]) == 0
    shown = capsys.readouterr().out.splitlines()
    (line,) = [line for line in shown if line.startswith("09.png")]
    name, size, color, psnr, _, mae = line.split()
    assert (name, size, color, mae) == ("09.png", "16x16", "rgb", "10.0000")
    assert float(psnr) == pytest.approx(20 * math.log10(25.5), abs=5e-4)
    assert any(line.endswith("MAE (0..255)") for line in shown)
    (line,) = [line for line in shown if line.startswith("MAE")]
    assert line.split() == ["MAE", "13.0000", "13.0000", "25.0000", "24.png"]


def test_identical_pictures_show_inf(folders, capsys):
    ref = str(folders[0])
    assert main(["compare", ref, ref]) == 0
    shown = capsys.readouterr().out
    assert "inf" in shown
    assert "without 25 identical" in shown


def test_odd_file_names_survive(folders, tmp_path, capsys):
    names = ["[bold]x.png", ":smile:.png", "a b.png"]
    for folder in folders:
        for name in names:
            (folder / name).write_bytes((folder / "00.png").read_bytes())
        raw = os.fsencode(folder) + b"/\xff.png"
        with open(raw, "wb") as file:  # noqa: PTH123 - a name that is no text
            file.write((folder / "00.png").read_bytes())
    table, report = tmp_path / "t.csv", tmp_path / "t.json"
    arguments = ["compare", *map(str, folders), "--all"]
    assert main([*arguments, "--csv", str(table), "--json", str(report)]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    assert b"\n\xff.png," in table.read_bytes()
    assert "\udcff.png" in [image["name"] for image in json.loads(report.read_text())["images"]]


def test_names_can_neither_break_lines_nor_command_the_terminal(folders, capsys):
    good = (folders[0] / "00.png").read_bytes()
    for folder, name in (
        (folders[0], "al\tone.png"),
        *((each, "a\nb\x1b[31m.png") for each in folders),
    ):
        (folder / name).write_bytes(good)
    (folders[0] / "other.e\x1bt").touch()
    assert main(["compare", *map(str, folders), "--metrics", "mae", "--all"]) == 1
    shown = capsys.readouterr()
    assert "\na\\nb\\x1b[31m.png  " in shown.out
    assert "al\\tone.png: no image" in shown.err
    assert ".e\\x1bt (1)" in shown.err
    assert "\x1b" not in shown.out + shown.err


def test_a_terminal_gets_color_and_a_progress_bar(folders):
    main_end, terminal = pty.openpty()
    command = [sys.executable, "-m", "syncfree", "compare", *folders]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=terminal, text=True, env=environment
    )
    os.close(terminal)
    written = b""
    try:
        while chunk := os.read(main_end, 4096):
            written += chunk
    except OSError:  # how a terminal tells that the other end has closed
        pass
    os.close(main_end)
    out = running.communicate()[0]
    assert running.returncode == 0
    assert b"25/25" in written
    assert b"\x1b[" in written
    assert "\x1b" not in out
    assert "25 images" in out


def test_interrupts_wait_for_a_safe_moment(interruptible):
    """KeyboardInterrupt inside `threading` can turn into another error, or hold a lock for ever."""
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupt() as interrupt:
        interrupt.check()
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()
        with pytest.raises(KeyboardInterrupt):  # the second one is not put off
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_stops_at_once_without_a_traceback(folders, interruptible):
    running = subprocess.Popen(
        [sys.executable, "-c", SLOW, *folders],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "decoding" in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    out, error = running.communicate(timeout=60)
    assert running.returncode == 130, error
    assert "interrupted" in error
    assert "Traceback" not in error
    assert out.count("decoding") < 10  # of 25: those already begun are waited for, no others
