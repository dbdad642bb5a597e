"""`syncfree compare`: no result is written over what is compared, under whatever name."""

import os

import pytest
from PIL import Image

from comparing import Folders, picture

PLOT = ("--gpus", "cpu:1", "--plot")


@pytest.fixture
def folders(tmp_path):
    made = Folders(tmp_path)
    for name in ("a.png", "b.png"):
        made.add(name, picture(0), picture(1))
    return made


def refused(folders, capsys, *options):
    before = {
        path: path.read_bytes() for path in sorted(folders.ref.parent.rglob("*")) if path.is_file()
    }
    status, report = folders.compare(*options)
    assert (status, report) == (2, None)
    for path, content in before.items():
        assert path.read_bytes() == content, path
    return capsys.readouterr().err


def test_a_plot_without_an_extension(folders, capsys):
    """matplotlib would write to a.png, which is compared."""
    pytest.importorskip("matplotlib")
    text = refused(folders, capsys, *PLOT, folders.ref / "a")
    assert "its extension says the format; add one" in text


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_an_image_under_another_name(folders, tmp_path, capsys, link):
    link(folders.ref / "a.png", tmp_path / "result.csv")
    text = refused(folders, capsys, "--csv", tmp_path / "result.csv")
    assert f"cannot write {tmp_path / 'result.csv'}: it is one of the images" in text


def test_an_image_that_a_link_leads_to(folders, tmp_path, capsys):
    (tmp_path / "elsewhere.png").write_bytes((folders.ref / "a.png").read_bytes())
    (folders.ref / "a.png").unlink()
    (folders.ref / "a.png").symlink_to(tmp_path / "elsewhere.png")
    text = refused(folders, capsys, "--csv", tmp_path / "elsewhere.png")
    assert "it is one of the images" in text


@pytest.fixture
def linked(folders, tmp_path):
    """A folder that belongs to both, by links."""
    (tmp_path / "linked").mkdir()
    for folder in (folders.ref, folders.test):
        (folder / "sub").symlink_to(tmp_path / "linked")
    Image.fromarray(picture(2)).save(tmp_path / "linked" / "c.png")
    return tmp_path / "linked"


def test_a_new_image_in_a_folder_that_a_link_leads_to(folders, linked, capsys):
    text = refused(folders, capsys, "--csv", linked / "new.png")
    assert "it is one of the images to be compared, or would be" in text


def test_maps_in_a_folder_that_a_link_leads_to(folders, linked, capsys):
    pytest.importorskip("matplotlib")
    text = refused(folders, capsys, "--maps", linked / "maps")
    assert f"--maps is inside {linked}" in text


def test_a_map_in_place_of_an_image(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    folders = Folders(tmp_path)
    folders.add("a.png", picture(0), picture(1), "a.png.ssim.png")
    paths = folders.ref / "a.png", folders.test / "a.png.ssim.png"
    before = paths[1].read_bytes()
    status, report = folders.compare("--maps", folders.test, paths=paths)
    assert (status, report) == (2, None)
    assert paths[1].read_bytes() == before
    assert "it is one of the images" in capsys.readouterr().err


def test_maps_beside_the_images(folders, tmp_path):
    pytest.importorskip("matplotlib")
    assert folders.compare("--maps", tmp_path / "maps", "--csv", tmp_path / "x.csv")[0] == 0


def test_a_dash_is_no_file(folders, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "results are written to files" in refused(folders, capsys, "--csv", "-")
    assert not (tmp_path / "-").exists()
