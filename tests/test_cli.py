"""The `syncfree` command: extras, wrong usage, exit statuses."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from picture_folders import two_folders
from syncfree import __version__
from syncfree.cli import main

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
from syncfree.cli import main
sys.exit(main({arguments!r}))
"""


def run_without(blocked, *arguments):
    code = BLOCKED.format(blocked=set(blocked), arguments=[str(each) for each in arguments])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.fixture
def folders(tmp_path):
    return two_folders(tmp_path)


# Extras


def test_info_needs_the_standard_library_only():
    done = run_without({"typer", "rich", "PIL", "numpy", "torch"}, "info", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_version_needs_the_standard_library_only():
    done = run_without({"typer", "rich", "PIL", "numpy", "torch"}, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"syncfree {__version__}\n"


def test_what_prints_a_line_can_be_asked_together(capsys):
    assert main(["--cmake-dir", "--version"]) == 0
    folder, version = capsys.readouterr().out.splitlines()
    assert Path(folder, "syncfreeConfig.cmake").is_file()
    assert version.endswith(__version__)
    assert main(["--version", "info"]) == 2
    assert "go without a command" in re.sub(r"[│\s]+", " ", capsys.readouterr().err)


@pytest.mark.parametrize("missing", ["typer", "rich", "PIL", "numpy"])
@pytest.mark.parametrize("command", [["compare", "a", "b"], ["--help"], []])
def test_a_missing_extra_is_named(missing, command):
    done = run_without({missing}, *command)
    assert done.returncode == 2
    assert "pip install 'syncfree[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["compare", "syncs", "bench"])
def test_a_missing_extra_names_the_command(command):
    done = run_without({"typer"}, command, "target")
    assert done.stderr == (
        f"`syncfree {command}` needs packages that are not installed: pip install 'syncfree[cli]'\n"
    )


def test_maps_name_their_extra_before_any_work(folders, tmp_path):
    done = run_without({"matplotlib"}, "compare", *folders, "--maps", tmp_path / "maps")
    assert done.returncode == 2
    assert "pip install 'syncfree[plot]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "maps").exists()


def test_help_needs_no_torch():
    done = run_without({"torch"}, "compare", "--help")
    assert done.returncode == 0, done.stderr
    assert "--crop-border" in done.stdout


# Usage


def test_python_m_syncfree_is_the_command(folders):
    command = [sys.executable, "-m", "syncfree", "compare", *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "25 images" in done.stdout


def test_help_lists_the_commands(capsys):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert "info" in listed
    assert "compare" in listed


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ([], "syncfree [OPTIONS] COMMAND [ARGS]..."),
        (["compare"], "syncfree compare [OPTIONS]"),
        (["syncs"], "syncfree syncs [OPTIONS]"),
        (["bench", "idle-gap"], "syncfree bench idle-gap [OPTIONS]"),
        (["info"], "syncfree info [-h] [--json]"),
    ],
)
def test_h_is_help(command, usage):
    done = run_without(set(), *command, "-h")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "usage:" in line.lower())
    assert f" {usage}" in line
    assert "[[" not in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metrics", "psnr,lpips"], "lpips"),
        (["--metrics", ""], "psnr, ssim, mae"),
        (["--metrics", "psnr,psnr"], "each once"),
        (["--device", "tpu"], "auto, cpu, cuda or cuda:N"),
        (["--device", "cuda:"], "auto, cpu, cuda or cuda:N"),
        (["--device", "cuda:999"], "999"),
        (["--batch", "0"], "batch is at least 1"),
        (["--workers", "0"], "workers is at least 1"),
        (["--crop-border", "-1"], "crop-border is at least 0"),
        (["--background", "nocolor"], "opaque color"),
        (["--background", "#ffffff80"], "opaque color"),
        (["--csv", "missing/table.csv"], "missing does not exist"),
        (["--json", "."], "cannot write .: it is a folder"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_wrong_usage(folders, capsys, options, message):
    assert main(["compare", *map(str, folders), *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_cuda_without_a_gpu_is_wrong_usage(folders):
    command = [sys.executable, "-m", "syncfree", "compare", *folders, "--device", "cuda"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert "no GPU" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_paths_are_wrong_usage(folders, capsys):
    ref, test = map(str, folders)
    assert main(["compare", ref, f"{test}/nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main(["compare", ref, f"{test}/00.png"]) == 2
    assert "two folders or two files" in capsys.readouterr().err
    assert main(["compare", ref]) == 2
    assert main(["unknown"]) == 2


@pytest.mark.parametrize("options", [[], ["--maps", "maps"]])
def test_paths_that_may_not_be_searched_are_wrong_usage(folders, capsys, monkeypatch, options):
    stat = Path.stat
    closed = folders[0] / "closed" / "x"

    def denied(path, **how):  # to somebody else: root may search everywhere
        if path == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", denied)
    assert main(["compare", str(closed), str(folders[1]), *options]) == 2
    assert f"cannot read {closed}: Permission denied" in capsys.readouterr().err
    long = "x" * 300
    assert main(["compare", long, str(folders[1])]) == 2
    assert f"cannot read {long}: File name too long" in capsys.readouterr().err


def test_no_pair_at_all_is_wrong_usage(folders, tmp_path, capsys):
    (tmp_path / "strangers").mkdir()
    (tmp_path / "strangers" / "other.png").write_bytes((folders[0] / "00.png").read_bytes())
    assert main(["compare", str(folders[0]), str(tmp_path / "strangers")]) == 2
    shown = capsys.readouterr().err
    assert "has a partner" in shown
    assert shown.count("unpaired") == 26


def test_of_many_files_without_a_partner_some_are_named(folders, tmp_path, capsys):
    strangers = tmp_path / "strangers"
    strangers.mkdir()
    for i in range(60):
        (strangers / f"other{i}.png").write_bytes((folders[0] / "00.png").read_bytes())
    assert main(["compare", str(folders[0]), str(strangers)]) == 2
    shown = capsys.readouterr().err
    assert shown.count("unpaired") == 50
    assert "... and 35 more" in shown


@pytest.mark.parametrize("place", [0, 1])
def test_an_empty_path_is_not_the_current_folder(folders, capsys, place):
    paths = [str(folders[0]), str(folders[1])]
    paths[place] = ""
    assert main(["compare", *paths]) == 2
    assert "got an empty text" in capsys.readouterr().err


def test_a_folder_beside_itself_is_told(folders, tmp_path, capsys):
    link = tmp_path / "link"
    link.symlink_to(folders[0])
    assert main(["compare", str(folders[0]), str(link)]) == 0
    assert "both are the same: each image was compared with itself" in capsys.readouterr().err
    assert main(["compare", *map(str, folders)]) == 0
    assert "both are the same" not in capsys.readouterr().err
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name, folder in (("a.png", folders[0]), ("a_x2.png", folders[1])):
        (mixed / name).write_bytes((folder / "00.png").read_bytes())
    main(["compare", str(mixed), str(mixed), "--suffix=_x2"])  # other images beside their partners
    assert "both are the same" not in capsys.readouterr().err


def test_names_with_a_suffix_are_paired_by_option(folders, tmp_path, capsys):
    upscaled = tmp_path / "upscaled"
    upscaled.mkdir()
    for file in sorted(folders[1].glob("*.*")):
        (upscaled / f"{file.stem}_x4{file.suffix}").write_bytes(file.read_bytes())
    arguments = ["compare", str(folders[0]), str(upscaled)]
    assert main(arguments) == 2
    assert "if all names there end in _x4, pass --suffix=_x4" in " ".join(
        capsys.readouterr().err.split()
    )
    assert main([*arguments, "--suffix=_x4", "--all"]) == 0
    with_suffix = capsys.readouterr().out
    assert main(["compare", *map(str, folders), "--all"]) == 0
    assert with_suffix.splitlines()[:10] == capsys.readouterr().out.splitlines()[:10]


def test_a_folder_without_pictures_is_named(folders, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "notes.txt").touch()
    for pair in ((folders[0], empty), (empty, folders[0])):
        assert main(["compare", *map(str, pair)]) == 2
        shown = capsys.readouterr().err
        assert f"{empty} has no images" in shown
        assert ".txt (1)" in shown
        assert "unpaired" not in shown


def test_files_that_are_no_pictures_are_named_once(folders, capsys):
    for name, content in (("empty.png", b""), ("text.png", b"no picture")):
        for folder in folders:
            (folder / name).write_bytes(content)
    assert main(["compare", *map(str, folders)]) == 1
    lines = capsys.readouterr().err.splitlines()
    for name, reason in (("empty.png", "empty file"), ("text.png", "not an image")):
        found = [line for line in lines if name in line]
        assert len(found) == 2
        assert all(line.count(name) == 1 and reason in line for line in found)


def test_a_folder_that_is_a_file_is_named(folders, capsys):
    file = folders[0] / "00.png"
    assert main(["compare", *map(str, folders), "--csv", f"{file}/table.csv"]) == 2
    assert f"{file} is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--csv", "{}/x"],
        ["--json", "{}/x"],
        ["--profile", "--plot", "{}/x.png"],
        ["--maps", "{}"],
        ["--maps", "{}/new/maps"],
        ["--gpus", "cpu:1", "--resume", "{}/new"],
    ],
)
def test_a_folder_that_takes_no_files_is_refused_before_the_run(
    folders, tmp_path, capsys, monkeypatch, options
):
    closed = tmp_path / "closed"
    closed.mkdir()

    def access(place, mode):  # of somebody else: root may write anywhere
        return Path(place) != closed or not mode & os.W_OK

    monkeypatch.setattr("os.access", access)
    arguments = [option.format(closed) for option in options]
    assert main(["compare", *map(str, folders), *arguments]) == 2
    captured = capsys.readouterr()
    assert f"cannot write {arguments[-1]}: you may not write in" in captured.err
    assert captured.out == ""
    assert list(closed.iterdir()) == []


def test_a_folder_of_maps_that_is_a_file_is_named(folders, tmp_path, capsys):
    (tmp_path / "file").touch()
    for maps in (tmp_path / "file", tmp_path / "file" / "maps"):
        assert main(["compare", *map(str, folders), "--maps", str(maps)]) == 2
        assert f"{tmp_path / 'file'} is no folder" in capsys.readouterr().err


def test_maps_do_not_go_where_they_would_be_compared(folders, capsys):
    ref, test = map(str, folders)
    assert main(["compare", ref, test, "--maps", f"{test}/maps"]) == 2
    assert "inside" in capsys.readouterr().err


def test_results_do_not_replace_pictures_or_each_other(folders, capsys):
    ref, test = folders
    picture = sorted(ref.iterdir())[0]
    before = picture.read_bytes()
    for option in (["--csv"], ["--json"], ["--profile", "--plot"]):
        assert main(["compare", str(ref), str(test), *option, str(picture)]) == 2
        assert "is one of the images to be compared" in capsys.readouterr().err
        assert main(["compare", str(picture), str(picture), *option, str(picture)]) == 2
        assert "is one of the images to be compared" in capsys.readouterr().err
    assert picture.read_bytes() == before
    same = ["--csv", str(ref / "x.txt"), "--json", str(ref / "." / "x.txt")]
    assert main(["compare", str(ref), str(test), *same]) == 2
    assert "asked for twice" in capsys.readouterr().err


def test_a_result_in_the_place_of_a_folder_is_told_so(folders, capsys):
    ref, test = map(str, folders)
    for option in (["--csv"], ["--json"], ["--profile", "--plot"]):
        assert main(["compare", ref, test, *option, ref]) == 2
        assert f"cannot write {ref}: it is a folder" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_does_not_cost_the_table(folders, capsys):
    full = "/dev/full"  # opens, and refuses every byte
    assert main(["compare", *map(str, folders), "--csv", full]) == 1
    captured = capsys.readouterr()
    assert "cannot write /dev/full" in captured.err
    assert "25 images" in captured.out


def test_a_table_that_cannot_be_written_is_told_and_costs_nothing_else(folders, tmp_path):
    (folders[0] / "alone.png").write_bytes((folders[0] / "00.png").read_bytes())
    command = [sys.executable, "-m", "syncfree", "compare", *folders, "--csv", tmp_path / "x.csv"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    first, *others = done.stderr.splitlines()
    assert first == "syncfree compare: cannot write the table: No space left on device"
    assert "alone.png" in others[-1]
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 26
