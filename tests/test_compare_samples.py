"""`syncfree compare`: files whose samples Pillow would change, lose or stumble over."""

import struct
import subprocess
import sys

import numpy as np
import PIL
import pytest
import tifffile
from PIL import Image

from comparing import Folders, assert_matches, distorted, picture, save


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


def tiff(bands, **tags):
    return lambda path: tifffile.imwrite(path, bands, **tags)


@pytest.mark.parametrize(
    ("photometric", "bands", "extra"),
    [("rgb", 4, [0]), ("rgb", 5, [0, 0]), ("rgb", 5, [2, 0]), ("minisblack", 2, [0])],
)
def test_a_tiff_of_more_bands_than_pillow_reads_is_refused(folders, photometric, bands, extra):
    """Pillow skips them, and pictures that differ in nothing else would be identical."""
    a = picture(0, channels=bands)
    b = a.copy()
    b[..., -1] = 255 - b[..., -1]
    tags = {"photometric": photometric, "extrasamples": extra, "planarconfig": "contig"}
    folders.add("a.tif", tiff(a, **tags), tiff(b, **tags))
    status, report = folders.compare("--background", "white")
    assert status == 1
    assert report["images"] == []
    assert len(report["problems"]) == 2
    kinds = {problem["kind"] for problem in report["problems"]}
    if photometric == "minisblack" and int(PIL.__version__.partition(".")[0]) < 13:
        assert kinds == {"unreadable"}  # it opens no such file
        return
    assert kinds == {"unsupported"}
    assert "more samples per pixel" in report["problems"][0]["reason"]


def test_a_tiff_with_alpha_is_read(folders):
    a = np.dstack([picture(0), np.full((24, 32), 255, np.uint8)])
    folders.add("a.tif", tiff(a, photometric="rgb", extrasamples=[2]), picture(0))
    status, report = folders.compare()
    assert status == 0
    assert report["images"][0]["identical"]


def pnm(kind, top, samples):
    height, width = samples.shape[:2]
    head = b"%s %d %d %d\n" % (kind, width, height, top)
    data = samples.astype(">u2" if top > 255 else np.uint8).tobytes()
    return lambda path: path.write_bytes(head + data)


@pytest.mark.parametrize(
    ("kind", "name", "top"),
    [(b"P5", "a.pgm", 100), (b"P6", "a.ppm", 254), (b"P5", "a.pgm", 128)],
)
def test_a_white_that_pillow_would_round_is_refused(folders, kind, name, top):
    channels = 3 if kind == b"P6" else 1
    a = picture(0, channels=channels).astype(np.int64) * top // 255
    b = (a + 1).clip(0, top)
    folders.add(name, pnm(kind, top, a), pnm(kind, top, b))
    status, report = folders.compare()
    assert status == 1
    assert report["images"] == []
    assert f"samples from 0 to {top}" in report["problems"][0]["reason"]


@pytest.mark.parametrize("top", [15, 51, 255])
def test_a_white_that_divides_255_is_exact(folders, top):
    a = picture(0, channels=1) // (255 // top)
    b = distorted(picture(0, channels=1)) // (255 // top)
    folders.add("a.pgm", pnm(b"P5", top, a), pnm(b"P5", top, b))
    status, report = folders.compare()
    assert status == 0
    assert_matches(report["images"][0], a * (255 // top), b * (255 // top))


@pytest.mark.parametrize(
    ("background", "color"), [("#646464", "gray"), ("white", "gray"), ("#640000", "y")]
)
def test_gray_over_gray_stays_gray(folders, background, color):
    """As colors it would be scored by their luma, which is 16 to 235."""
    gray = picture(0, channels=1)
    alpha = np.full_like(gray, 255)
    alpha[::2] = 0
    a, b = (np.dstack([each, alpha]) for each in (gray, distorted(gray)))
    folders.add("a.png", Image.fromarray(a, "LA"), Image.fromarray(b, "LA"))
    status, report = folders.compare("--background", background, "--y-channel")
    assert status == 0
    (row,) = report["images"]
    assert row["color"] == color
    if color == "gray":
        level = 0x64 if background == "#646464" else 255
        assert_matches(row, *(np.where(alpha == 0, level, each[..., 0]) for each in (a, b)))


def text_for_tag(tag):
    """A TIFF that has text where a number belongs."""

    def write(path):
        save(path, picture(0))
        data = bytearray(path.read_bytes())
        (place,) = struct.unpack_from("<I", data, 4)
        while struct.unpack_from("<H", data, place + 2)[0] != tag:
            place += 12
        struct.pack_into("<HHII", data, place + 2, tag, 2, 1, 0)
        path.write_bytes(data)

    return write


def test_a_damaged_tiff_is_unreadable_and_no_defect_of_ours(folders):
    """Pillow lets a TypeError out."""
    folders.add_good()
    folders.add("a.tif", picture(0), text_for_tag(273))
    status, report = folders.compare()
    assert status == 1
    (problem,) = report["problems"]
    assert problem["kind"] == "unreadable"
    assert problem["files"] == [str(folders.test / "a.tif")]
    assert problem["reason"].startswith("damaged")
    assert len(report["images"]) == 1


def test_what_pillow_says_without_a_name_stays_off_standard_error(folders):
    command = [sys.executable, "-c", NOISY, str(folders.ref), str(folders.test)]
    folders.add_good()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


NOISY = """
import logging, sys, warnings
from PIL import Image
from syncfree.cli import main

load = Image.Image.load

def loud(image):
    warnings.warn_explicit("Truncated File Read", UserWarning, "x.py", 1, "PIL.TiffImagePlugin")
    logging.getLogger("PIL.TiffImagePlugin").error("More samples than can be decoded")
    return load(image)

Image.Image.load = loud
sys.exit(main(["compare", *sys.argv[1:], "--device", "cpu"]))
"""
