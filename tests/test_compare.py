"""`syncfree compare`: its numbers, the options that change them, maps and report files."""

import csv
import io
import math

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image
from skimage.color import rgb2ycbcr
from skimage.metrics import peak_signal_noise_ratio
from torchmetrics.functional.image import structural_similarity_index_measure

from comparing import Folders, assert_matches, distorted, picture, planes
from syncfree.cli.compare import pipeline
from syncfree.cli.compare.options import METRICS
from syncfree.cli.compare.report import ImageRow, describe


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


# Numbers


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("extension", ["png", "bmp", "tif", "tiff", "webp", "jpg", "jpeg", "p_m"])
def test_values_match_the_float64_oracle(folders, channels, extension):
    extension = extension.replace("_", "g" if channels == 1 else "p")
    a = picture(3, 37, 41, channels)
    options = {"lossless": True} if extension == "webp" else {}
    name = f"x.{extension}"
    folders.add(name, a, distorted(a), **options)
    status, report = folders.compare()
    assert status == 0
    (row,) = report["images"]
    # Read back, because JPEG lost something while saving and WebP knows no gray.
    with Image.open(folders.ref / name) as first, Image.open(folders.test / name) as second:
        assert_matches(row, first, second)
    gray = channels == 1 and extension != "webp"
    assert (row["color"], row["data_range"]) == ("gray" if gray else "rgb", 255)
    assert (row["width"], row["height"]) == (41, 37)
    assert not row["identical"]


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_mixed_sizes_keep_their_order_and_values(folders, device):
    arrays = {}
    for seed in range(12):
        a = picture(seed, 20 + 7 * (seed % 3), 30 + 5 * (seed % 2), 1 if seed % 4 == 0 else 3)
        arrays[f"{seed:02}.png"] = (a, distorted(a, seed))
    for name, pair in arrays.items():
        folders.add(name, *pair)
    status, report = folders.compare("--device", device, "--batch", 4)
    assert status == 0
    assert [row["name"] for row in report["images"]] == list(arrays)
    for row in report["images"]:
        assert_matches(row, *arrays[row["name"]])


@pytest.mark.parametrize("metrics", ["psnr,ssim,mae", "psnr"])
def test_results_do_not_depend_on_grouping(folders, monkeypatch, metrics):
    choice = ("--metrics", metrics)
    for seed in range(9):
        a = picture(seed, 40, 33 if seed % 2 else 50)
        folders.add(f"{seed}.png", a, distorted(a, seed))
    runs = [
        folders.compare(*choice, "--batch", size, "--workers", 2 + size % 3) for size in (16, 1, 3)
    ]
    monkeypatch.setattr(pipeline, "_BATCH_BYTES", 1)
    monkeypatch.setattr(pipeline, "_DECODED_BYTES", 1)
    runs.append(folders.compare(*choice))
    monkeypatch.setattr(pipeline, "_BATCH_BYTES", 1 << 30)
    monkeypatch.setattr(pipeline, "_GROUPED_BYTES", 25_000)
    runs.append(folders.compare(*choice))
    for status, report in runs:
        assert status == 0
        assert report["images"] == runs[0][1]["images"]


@pytest.mark.parametrize("metrics", ["psnr", "ssim", "mae", "mae,psnr", "psnr,ssim,mae"])
def test_metrics_choose_the_columns_and_not_the_values(folders, metrics):
    folders.add_good()
    _, everything = folders.compare()
    status, report = folders.compare("--metrics", metrics)
    assert status == 0
    names = metrics.split(",")
    assert list(report["summary"]["metrics"]) == names
    (row,), (full,) = report["images"], everything["images"]
    assert [name for name in row if name in METRICS] == names
    for name in names:
        assert row[name] == pytest.approx(full[name], rel=1e-6)


def test_two_files(folders):
    a = picture(5)
    folders.add("left.png", a, distorted(a), "right.bmp")
    paths = folders.ref / "left.png", folders.test / "right.bmp"
    status, report = folders.compare(paths=paths)
    assert status == 0
    (row,) = report["images"]
    assert (row["name"], row["reference"], row["test"]) == ("left.png", *map(str, paths))
    assert_matches(row, a, distorted(a))


def test_tiny_pictures_compare_without_ssim(folders):
    a = picture(0, 3, 50)
    for name in ("a.png", "b.png"):
        folders.add(name, a, distorted(a))
    status, report = folders.compare("--metrics", "psnr,mae")
    assert status == 0
    expected = np.abs(a.astype(float) - distorted(a)).mean()
    psnr = peak_signal_noise_ratio(a, distorted(a), data_range=255)
    for row in report["images"]:
        assert row["mae"] == pytest.approx(expected, abs=1e-5)
        assert row["psnr"] == pytest.approx(psnr, abs=1e-4)


# Options that change what is compared


@pytest.mark.parametrize("border", [1, 4, 9])
def test_crop_border(folders, border):
    folders.add_good()
    status, report = folders.compare("--crop-border", border)
    assert status == 0
    (row,) = report["images"]
    assert (row["width"], row["height"]) == (32 - 2 * border, 24 - 2 * border)
    inner = np.s_[border:-border, border:-border]
    assert_matches(row, picture(0)[inner], distorted(picture(0))[inner])


def test_y_channel_matches_the_standard_luma(folders):
    folders.add_good()
    status, report = folders.compare("--y-channel")
    assert status == 0
    (row,) = report["images"]
    assert (row["color"], row["data_range"]) == ("y", 255)
    assert_matches(row, *(rgb2ycbcr(x)[..., 0] for x in (picture(0), distorted(picture(0)))))


def test_y_channel_leaves_gray_pictures_as_they_are(folders):
    a = picture(0, channels=1)
    folders.add("a.png", a, distorted(a))
    _, report = folders.compare("--y-channel")
    assert report["images"][0]["color"] == "gray"
    assert_matches(report["images"][0], a, distorted(a))


# Statistics


def test_identical_pictures_have_no_finite_psnr(folders):
    folders.add("same.png", picture(1), picture(1))
    folders.add("other.png", picture(1), picture(2))
    table = folders.ref.with_name("table.csv")
    status, report = folders.compare("--csv", table)
    assert status == 0
    other, same = report["images"]
    assert same["psnr"] is None
    assert (same["identical"], same["mae"]) == (True, 0)
    assert same["ssim"] == pytest.approx(1, abs=1e-6)
    assert not other["identical"]
    psnr = report["summary"]["metrics"]["psnr"]
    assert (psnr["count"], psnr["infinite"]) == (1, 1)
    assert psnr["mean"] == psnr["median"] == psnr["worst"] == other["psnr"]
    assert "identical" in psnr["note"]
    assert report["summary"]["identical"] == 1
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["psnr"], row["identical"]) for row in rows][1] == ("inf", "true")


def test_only_identical_pictures_leave_no_psnr_statistics(folders):
    folders.add("a.png", picture(1), picture(1))
    status, report = folders.compare()
    assert status == 0
    psnr = report["summary"]["metrics"]["psnr"]
    assert (psnr["mean"], psnr["worst"], psnr["count"], psnr["infinite"]) == (None, None, 0, 1)


def test_mae_of_mixed_depths_is_not_summed_up(folders):
    folders.add_good()
    deep = picture(4, channels=1, top=65535)
    folders.add("deep.png", deep, distorted(deep))
    status, report = folders.compare()
    assert status == 0
    mae = report["summary"]["metrics"]["mae"]
    assert (mae["mean"], mae["worst"]) == (None, None)
    assert "65535" in mae["note"]
    assert report["summary"]["metrics"]["psnr"]["count"] == 2


def row(name, psnr, mae):
    return ImageRow(name, name, name, 8, 8, "rgb", 255.0, psnr, 0.5, mae)


def test_statistics():
    rows = [row("a", 30.0, 3), row("b", 20.0, 9), row("c", math.inf, 0), row("d", 25.0, 4)]
    psnr, mae = describe(rows, "psnr"), describe(rows, "mae")
    assert (psnr.mean, psnr.median, psnr.worst, psnr.worst_name) == (25, 25, 20, "b")
    assert (psnr.count, psnr.infinite) == (3, 1)
    assert (mae.mean, mae.median, mae.worst, mae.worst_name) == (4, 3.5, 9, "b")
    assert (mae.count, mae.infinite, mae.note) == (4, 0, None)


# Files


def test_maps_show_the_ssim_of_every_pixel(folders):
    a = picture(0, 30, 44)
    for name in ("a.png", "s/b.bmp"):
        folders.add(name, a, distorted(a))
    maps = folders.ref.with_name("maps")
    status, _ = folders.compare("--maps", maps, "--crop-border", 2)
    assert status == 0
    inner = np.s_[2:-2, 2:-2]
    _, full = structural_similarity_index_measure(
        planes(distorted(a)[inner]), planes(a[inner]), data_range=255.0, return_full_image=True
    )
    expected = full[0].mean(0).clamp(0, 1).numpy()
    for name in ("a.png.ssim.png", "s/b.bmp.ssim.png"):
        with Image.open(maps / name) as image:
            assert image.size == (40, 26)
            level, shown = np.asarray(image), np.asarray(image.convert("RGB"))
        assert np.abs(level - expected * 255).max() < 0.51
        assert (shown == colormaps["magma"](level, bytes=True)[..., :3]).all()


def test_a_map_that_cannot_be_written_is_a_problem(folders):
    folders.add_good()
    blocked = folders.ref.with_name("maps") / "good.png.ssim.png"
    blocked.mkdir(parents=True)
    status, report = folders.compare("--maps", blocked.parent)
    assert status == 1
    (problem,) = report["problems"]
    assert (problem["kind"], problem["files"]) == ("unwritable", [str(blocked)])
    assert len(report["images"]) == 1


HEADER = [
    "name",
    "reference",
    "test",
    "width",
    "height",
    "color",
    "data_range",
    "psnr",
    "ssim",
    "mae",
    "identical",
]


def test_json_and_csv_schema(folders):
    folders.add_good()
    (folders.ref / "lonely.png").touch()
    (folders.test / "readme.md").touch()
    table = folders.ref.with_name("table.csv")
    status, report = folders.compare("--csv", table, "--device", "cpu")
    assert status == 1
    assert (report["format"], report["version"]) == ("syncfree-compare", 1)
    assert " ".join(report) == (
        "format version syncfree reference test options images summary problems ignored"
    )
    assert (report["reference"], report["test"]) == (str(folders.ref), str(folders.test))
    assert report["options"]["device"] == "cpu"
    assert report["ignored"] == {".md": 1}
    assert report["problems"][0] == {
        "kind": "unpaired",
        "files": [str(folders.ref / "lonely.png")],
        "reason": "no image of this name in the test folder",
    }
    summary = report["summary"]
    assert summary["images"] == 1
    assert summary["megapixels"] == pytest.approx(24 * 32 / 1e6)
    rate = summary["megapixels"] / summary["seconds"]
    assert summary["megapixels_per_second"] == pytest.approx(rate)
    header, line = csv.reader(io.StringIO(table.read_text()))
    (image,) = report["images"]
    assert header == list(image) == HEADER
    for name in METRICS:
        assert float(line[header.index(name)]) == image[name] == float(np.float32(image[name]))
