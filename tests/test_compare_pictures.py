"""`syncfree compare`: every kind of picture is compared as it looks, or refused with a reason."""

import errno
import struct
import zlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageFile

from comparing import Folders, assert_matches, distorted, picture, save
from syncfree.cli.compare import images


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


def raw_file(header, array):
    return lambda path: path.write_bytes(header + array.astype(">u2").tobytes())


def big_endian_tiff(array):
    return Image.frombytes("I;16B", array.shape[::-1], array.astype(">u2").tobytes())


def pgm16(array):
    return raw_file(b"P5 %d %d 65535\n" % array.shape[::-1], array)


@pytest.mark.parametrize(
    ("name", "convert"),
    [("a.png", Image.fromarray), ("a.tif", big_endian_tiff), ("a.pgm", pgm16)],
)
def test_16_bit_gray_keeps_its_depth(folders, name, convert):
    a = picture(4, channels=1, top=65535)
    b = distorted(a, strength=0.05)  # far below one 8-bit step
    folders.add(name, convert(a), convert(b))
    status, report = folders.compare()
    assert status == 0
    (row,) = report["images"]
    assert (row["color"], row["data_range"]) == ("gray", 65535)
    assert_matches(row, a, b)
    assert row["psnr"] > 70


def test_opaque_alpha_is_dropped(folders):
    a, gray = picture(0), picture(1, channels=1)
    folders.add("a.png", Image.fromarray(a).convert("RGBA"), distorted(a))
    folders.add("b.png", Image.fromarray(gray).convert("LA"), distorted(gray))
    status, report = folders.compare()
    assert status == 0
    assert [row["color"] for row in report["images"]] == ["rgb", "gray"]
    assert_matches(report["images"][0], a, distorted(a))
    assert_matches(report["images"][1], gray, distorted(gray))


@pytest.fixture
def decodes(monkeypatch):
    """The sizes of the pieces that Pillow's decoders are given."""
    sizes = []
    make = Image._getdecoder

    def counted(*arguments):
        decoder = make(*arguments)

        def decode(piece):
            sizes.append(len(piece))
            return decoder.decode(piece)

        return SimpleNamespace(
            decode=decode,
            setimage=decoder.setimage,
            cleanup=decoder.cleanup,
            pulls_fd=decoder.pulls_fd,
            handles_eof=getattr(decoder, "handles_eof", False),
        )

    monkeypatch.setattr(Image, "_getdecoder", counted)
    return sizes


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp"])
def test_a_decoder_gets_its_file_at_once(folders, decodes, monkeypatch, name):
    """Between pieces it would queue for Python's lock with the decoders of other threads."""
    a = np.random.default_rng(0).integers(256, size=(300, 401, 3), dtype=np.uint8)
    folders.add(name, a, distorted(a))
    decodes.clear()
    status, report = folders.compare()
    assert status == 0
    assert len(decodes) == 2
    monkeypatch.setattr(images, "_BYTES_AT_ONCE", 1000)
    assert folders.compare()[1]["images"] == report["images"]
    assert len(decodes) > 4


def test_strips_are_read_once(folders, decodes):
    """Pillow would read all that follows a strip, for each of them."""
    a = picture(0, 400, 300)
    folders.add("a.tif", *(partial(tifffile.imwrite, data=b, rowsperstrip=16) for b in (a, a)))
    tiles = len(Image.open(folders.ref / "a.tif").tile)
    assert tiles > 4
    decodes.clear()
    assert folders.compare()[0] == 0
    assert sum(decodes) <= 2 * tiles * ImageFile.MAXBLOCK


def test_transparency_needs_a_background(folders):
    a, b = picture(0), distorted(picture(0))
    alpha = np.full((*a.shape[:2], 1), 255, np.uint8)
    alpha[:, ::2] = 0
    folders.add("a.png", np.dstack([a, alpha]), np.dstack([b, alpha]))
    status, report = folders.compare()
    assert status == 1
    assert report["problems"][0]["kind"] == "unsupported"
    assert "--background" in report["problems"][0]["reason"]
    for color, level in [("black", 0), ("#ffffff", 255)]:
        status, report = folders.compare("--background", color)
        assert status == 0
        a[:, ::2] = b[:, ::2] = level
        assert_matches(report["images"][0], a, b)


def test_what_is_wrong_with_a_file_beside_itself_is_said_once(folders):
    alpha = np.full((*picture(0).shape[:2], 1), 90, np.uint8)
    folders.add("a.png", np.dstack([picture(0), alpha]), picture(0))
    folders.test = folders.ref
    _, report = folders.compare()
    assert len(report["problems"]) == 1


def test_half_transparent_pixels_mix_with_the_background(folders):
    a = np.full((16, 16, 4), 200, np.uint8)
    a[..., 3] = 51  # a fifth of 200 over four fifths of 100 is 120
    folders.add("a.png", a, np.full((16, 16, 3), 120, np.uint8))
    status, report = folders.compare("--background", "#646464")
    assert status == 0
    assert report["images"][0]["identical"]


def test_color_key_counts_as_transparency(folders):
    a = picture(0)
    a[0, 0] = (1, 2, 3)
    save(folders.ref / "a.png", a, transparency=(1, 2, 3))
    save(folders.test / "a.png", distorted(a))
    status, report = folders.compare()
    assert (status, report["problems"][0]["kind"]) == (1, "unsupported")


@pytest.mark.parametrize(("depth", "value"), [(1, 1), (2, 2), (4, 5)])
def test_color_key_of_few_bits_counts_as_transparency(folders, depth, value):
    """Pillow widens the samples to 8 bits, but not the key."""
    levels = np.arange(32 * 24).reshape(24, 32) % 2**depth
    bits = (levels[..., None] >> np.arange(depth)[::-1] & 1).reshape(24, -1)
    rows = [row.tobytes() for row in np.packbits(bits, axis=1)]
    for folder in (folders.ref, folders.test):
        folder.mkdir(exist_ok=True)
        key = (b"tRNS", struct.pack(">H", value))
        write_png(folder / "a.png", rows, depth, 0, key)
    status, report = folders.compare()
    assert status == 1
    assert "transparent pixels" in report["problems"][0]["reason"]
    save(
        folders.test / "a.png",
        np.where(levels == value, 0, levels * (255 // (2**depth - 1))).astype(np.uint8),
    )
    status, report = folders.compare("--background", "black")
    assert status == 0
    assert report["images"][0]["identical"]


def test_palette_pictures_compare_by_color(folders):
    palette = Image.fromarray(picture(0)).quantize(32)
    folders.add("a.png", palette, distorted(picture(0)))
    status, report = folders.compare()
    assert status == 0
    assert_matches(report["images"][0], palette.convert("RGB"), distorted(picture(0)))


def test_bilevel_pictures_are_black_and_white(folders):
    bits = picture(0, channels=1) > 128
    folders.add("a.png", Image.fromarray(bits), picture(0, channels=1))
    status, report = folders.compare()
    assert status == 0
    assert_matches(report["images"][0], bits * 255.0, picture(0, channels=1))


def test_gray_against_color_is_compared_as_color(folders):
    gray, color = picture(0, channels=1), picture(0)
    folders.add("a.png", gray, color)
    status, report = folders.compare()
    assert status == 0
    assert report["images"][0]["color"] == "rgb"
    assert_matches(report["images"][0], np.dstack([gray] * 3), color)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif"])
def test_exif_orientation_is_applied(folders, name):
    a = picture(0)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by 90 degrees for viewing
    options = {"quality": 100, "subsampling": 0} if name == "a.jpg" else {}
    save(folders.ref / name, np.ascontiguousarray(np.rot90(a)), exif=exif, **options)
    save(folders.test / "a.bmp", a)
    status, report = folders.compare()
    assert status == 0
    (row,) = report["images"]
    assert (row["width"], row["height"]) == (32, 24)
    assert row["psnr"] > 40 if name == "a.jpg" else row["identical"]


@pytest.mark.parametrize("top", [255, 65535])
@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_turned_gray_tiffs_keep_their_rows(folders, top, orientation):
    a = picture(0, channels=1, top=top)
    exif = Image.Exif()
    exif[0x0112] = orientation
    # Uncompressed, Pillow maps such a file into memory, with rows of the wrong length.
    folders.add("a.tif", a, distorted(a), exif=exif)
    turned = [
        {5: x.T, 6: np.rot90(x, -1), 7: np.rot90(x, 2).T, 8: np.rot90(x)}[orientation]
        for x in (a, distorted(a))
    ]
    status, report = folders.compare()
    assert status == 0
    (row,) = report["images"]
    assert (row["width"], row["height"]) == (24, 32)
    assert_matches(row, *turned)


def cut_off(path):
    save(path, picture(0))
    path.write_bytes(path.read_bytes()[:500])


def frames(path):
    first, *others = (Image.fromarray(picture(seed)) for seed in range(3))
    first.save(path, save_all=True, append_images=others)


def png16(path):
    """A 16-bit RGB PNG, which Pillow cannot write."""
    rows = picture(0).astype(">u2") * 257
    write_png(path, (row.tobytes() for row in rows), depth=16, color=2)


def png16_with_alpha(path):
    rows = picture(0, channels=1).astype(">u2")[..., None].repeat(2, axis=-1)
    write_png(path, (row.tobytes() for row in rows), depth=16, color=4)


def write_png(path, rows, depth, color, *others):
    header = struct.pack(">IIBBBBB", 32, 24, depth, color, 0, 0, 0)
    scanlines = b"".join(b"\0" + row for row in rows)
    chunks = ((b"IHDR", header), *others, (b"IDAT", zlib.compress(scanlines)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n"
    for kind, body in chunks:
        checksum = zlib.crc32(kind + body)
        data += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)
    path.write_bytes(data)


def no_samples(path):
    """A PNG with a transparent gray and nothing else."""
    write_png(path, [], 4, 0, (b"tRNS", b"\0\1"))
    path.write_bytes(path.read_bytes().replace(b"IDAT", b"iDAT"))


def tiff16(photometric, channels):
    deep = picture(0, channels=channels, top=65535)
    return lambda path: tifffile.imwrite(path, deep, photometric=photometric)


GRAY = picture(0, channels=1)
REFUSED = {
    "text": ("unreadable", "a.png", lambda path: path.write_text("no picture")),
    "empty": ("unreadable", "a.jpg", lambda path: path.touch()),
    "cut off": ("unreadable", "a.png", cut_off),
    "no samples": ("unreadable", "a.png", no_samples),
    "broken link": ("unreadable", "a.png", lambda path: path.symlink_to("nowhere")),
    "size": ("size-mismatch", "a.png", picture(0, 24, 33)),
    "depth": ("unsupported", "a.png", picture(0, channels=1, top=65535)),
    "CMYK": ("unsupported", "a.jpg", Image.fromarray(picture(0)).convert("CMYK")),
    "float": ("unsupported", "a.tif", GRAY.astype(np.float32)),
    "int": ("unsupported", "a.tif", GRAY.astype(np.int32)),
    "signed": ("unsupported", "a.tif", lambda path: tifffile.imwrite(path, GRAY.view(np.int8))),
    "pages": ("unsupported", "a.tif", frames),
    "frames": ("unsupported", "a.webp", frames),
    "16-bit PNG": ("unsupported", "a.png", png16),
    "16-bit PNG with alpha": ("unsupported", "a.png", png16_with_alpha),
    "16-bit PPM": ("unsupported", "a.ppm", raw_file(b"P6 32 24 65535\n", picture(0, top=65535))),
    "16-bit TIFF": ("unsupported", "a.tif", tiff16("rgb", 3)),
    "white is 0": ("unsupported", "a.tif", tiff16("miniswhite", 1)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_files_are_named_and_cost_only_themselves(folders, case):
    kind, name, content = REFUSED[case]
    folders.add_good()
    folders.add("a.png", picture(0), content, name)
    status, report = folders.compare()
    assert status == 1
    (problem,) = report["problems"]
    assert problem["kind"] == kind
    assert str(folders.test / name) in problem["files"]
    assert problem["reason"]
    assert [row["name"] for row in report["images"]] == ["good.png"]
    status, report = folders.compare("--ignore-errors")
    assert (status, len(report["problems"])) == (0, 1)


@pytest.mark.parametrize(("make", "kind"), [(png16, "color"), (png16_with_alpha, "gray")])
def test_deep_colors_are_told_what_to_do(folders, make, kind):
    folders.add_good()
    folders.add("a.png", picture(0), make)
    (problem,) = folders.compare()[1]["problems"]
    assert problem["reason"].startswith(kind)
    assert "16 bits per sample, of which Pillow keeps only 8; store it with 8" in problem["reason"]


def test_deep_gray_with_transparency_is_told_that_no_background_helps(folders):
    folders.add_good()
    folders.add("a.png", *[picture(0, channels=1, top=65535)] * 2, transparency=7)
    for options in ((), ("--background", "white")):
        problems = folders.compare(*options)[1]["problems"]
        assert [problem["kind"] for problem in problems] == ["unsupported"] * 2
        for problem in problems:
            assert "with or without --background; store it without" in problem["reason"]


def test_a_file_that_may_not_be_read_is_named_once(folders, monkeypatch):
    folders.add_good()
    folders.add("a.png", picture(0), picture(0))
    opened = Path.open

    def denied(path, *how, **named):  # to somebody else: root may read everything
        if path == folders.test / "a.png":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *how, **named)

    monkeypatch.setattr(Path, "open", denied)
    status, report = folders.compare()
    assert status == 1
    (problem,) = report["problems"]
    assert problem["files"] == [str(folders.test / "a.png")]
    assert problem["reason"] == "Permission denied"


def test_two_bad_files_of_a_pair_are_both_named(folders):
    folders.add_good()
    folders.add("a.png", cut_off, frames, "a.tif")
    status, report = folders.compare()
    assert status == 1
    named = [(problem["kind"], problem["files"]) for problem in report["problems"]]
    assert named == [
        ("unreadable", [str(folders.ref / "a.png")]),
        ("unsupported", [str(folders.test / "a.tif")]),
    ]


@pytest.mark.parametrize(
    ("height", "options", "status"),
    [
        (5, [], 1),
        (6, [], 0),
        (5, ["--metrics", "psnr"], 0),
        (8, ["--metrics", "psnr", "--crop-border", 4], 1),
        (8, ["--metrics", "psnr", "--crop-border", 3], 0),
    ],
)
def test_too_small(folders, height, options, status):
    a = picture(0, height, 40)
    folders.add("a.png", a, distorted(a))
    found, report = folders.compare(*options)
    assert found == status
    assert [problem["kind"] for problem in report["problems"]] == ["too-small"] * status
    left = "40x5 pixels, expected" if "psnr" not in options else "no pixels after cropping 4"
    assert all(problem["reason"].startswith(left) for problem in report["problems"])
    assert len(report["images"]) == 1 - status
