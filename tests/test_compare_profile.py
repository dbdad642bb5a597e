"""`syncfree compare --profile`: what limits a run, what overlap gains, and memory used again."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from comparing import TOLERANCE, Folders, assert_matches, distorted, picture
from syncfree.cli import main
from syncfree.cli.compare import engine
from syncfree.cli.compare.alone import compare_alone
from syncfree.cli.compare.documents import journal_heading
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.pairs import find_pairs
from syncfree.cli.compare.profile import make_profile
from syncfree.cli.compare.stages import Spans, StageClock
from syncfree.detector.findings import Recorder, Verdict
from syncfree.detector.tier0 import Tier0


@pytest.fixture
def folders(tmp_path):
    """Nine pairs, of 8 bits in color."""
    found = Folders(tmp_path)
    for seed in range(9):
        found.add(f"{seed}.png", picture(seed), distorted(picture(seed)))
    return found


def profile_of(spans, end=10.0, threads=2, streams=3, **options):
    filled = {}
    for name, intervals in spans.items():
        filled[name] = Spans()
        for interval in intervals:
            filled[name].add(*interval)
    arguments = {"dtype": None, "reuse": (), **options}
    return make_profile(filled, begin=0.0, end=end, threads=threads, streams=streams, **arguments)


# What the figures say, on runs that are made up


def test_a_run_that_decoding_limits():
    """Two threads decode for 18 of 20 thread seconds; the GPU works one second in ten."""
    found = profile_of(
        {
            "decode": [(0, 9), (1, 10)],
            "host-to-device": [(5, 5.5, 1_000_000_000)],
            "compute": [(5.25, 5.75)],
        }
    )
    decode, upload, compute = found.stages
    assert (decode.seconds, decode.busy_seconds, decode.alone_seconds) == (18, 10, 9)
    assert decode.hidden_seconds == pytest.approx(0.75)  # where the GPU works too
    assert (upload.busy_seconds, upload.hidden_seconds) == (0.5, 0.5)
    assert upload.gigabytes_per_second == pytest.approx(2)
    assert compute.gigabytes_per_second is None
    assert found.limit == "decode"
    assert "decode limits: alone it would take 90% of the run" in found.verdict
    assert "--workers" in found.verdict
    assert found.serial_seconds == 10
    assert (found.gain, found.longest.name) == (1, "decode")


@pytest.mark.parametrize(("dtype", "advice"), [("float32", "--dtype uint8"), (None, "--gpus")])
def test_a_run_that_copies_limit_gains_by_overlap(dtype, advice):
    spans = {
        "decode": [(0, 4), (0, 4), (4, 8), (4, 8)],
        "enqueue": [(0, 9)],
        "host-to-device": [(0.5, 5), (5, 10)],
        "compute": [(5, 6), (9, 10)],
        "device-to-host": [(6, 6.5)],
    }
    found = profile_of(spans, dtype=dtype)
    assert found.limit == "host-to-device"
    assert advice in found.verdict
    assert found.serial_seconds == 8 + 9.5 + 2 + 0.5  # without the enqueueing
    assert found.gain == 2
    assert "2.00 times as fast, of at most 2.11" in found.overlap
    assert [stage.lanes for stage in found.stages] == [2, 1, 3, 3, 3]


def test_a_run_that_nothing_limits():
    found = profile_of({"decode": [(0, 2)], "compute": [(2, 3)]})
    assert found.limit is None
    assert "no stage limits: decode, the longest, alone would take 20% of the run" in found.verdict
    assert "gains nothing" in found.overlap
    assert profile_of({}).verdict == "nothing was compared"
    assert profile_of({}).overlap == ""


def test_fewer_pairs_than_threads_do_not_decode_faster():
    (decode,) = profile_of({"decode": [(0, 4)]}, threads=16).stages
    assert decode.alone_seconds == 4


steps = st.integers(0, 30)
intervals = st.lists(st.tuples(steps, steps).map(sorted).map(tuple), min_size=1, max_size=12)


@given(st.lists(intervals, min_size=1, max_size=3))
def test_busy_and_hidden_time_are_counted_second_by_second(drawn):
    names = ("host-to-device", "compute", "device-to-host")
    spans = dict(zip(names, drawn, strict=False))
    covered = {
        name: {second for a, b in each for second in range(a, b)} for name, each in spans.items()
    }
    for stage in profile_of(spans, end=30.0).stages:
        others = set().union(*(covered[name] for name in spans if name != stage.name))
        assert stage.seconds == sum(b - a for a, b in spans[stage.name])
        assert stage.busy_seconds == len(covered[stage.name])
        assert stage.hidden_seconds == len(covered[stage.name] & others)


def test_spans_are_exact_beyond_those_that_are_kept():
    spans = Spans()
    for number in range(10_000):
        spans.add(number, number + 0.5, 3)
        spans.add(number + 0.25, number + 0.75)
    assert (spans.count, spans.bytes, spans.seconds) == (20_000, 30_000, 10_000)
    assert sum(b - a for a, b in spans.union()) == 7500
    timeline = make_profile(
        {"compute": spans}, begin=0, end=10_000, threads=1, streams=1, dtype=None, reuse=()
    ).timeline["compute"]
    assert len(timeline) == 400
    assert timeline[-1] == (9999.25, 9999.75)


def test_a_clock_keeps_every_batch():
    """More than the timer keeps samples of."""
    clock = StageClock(torch.device("cpu"))
    for _ in range(2000):
        with clock.on_device("compute", size=7):
            pass
        clock.landed()
    with pytest.raises(ZeroDivisionError), clock.on_device("compute"):
        _ = 1 / 0
    with pytest.raises(ZeroDivisionError), clock.on_host("decode"):
        _ = 1 / 0
    found = clock.spans()
    assert list(found) == ["compute"]  # what raises does not count
    assert (found["compute"].count, found["compute"].bytes) == (2000, 14_000)
    assert clock.notes == []


# The command


def test_a_profile_says_what_limits(folders, capsys):
    plot = folders.ref.with_name("plot.png")
    choice = ("--device", "cpu", "--workers", 2, "--batch", 2)
    _, plain = folders.compare(*choice)
    capsys.readouterr()
    status, report = folders.compare(*choice, "--profile", "--plot", plot)
    assert status == 0
    assert report["images"] == plain["images"]
    assert "profile" not in plain
    found = report["profile"]
    decode, compute = found["stages"]
    assert (decode["name"], decode["count"], decode["lanes"]) == ("decode", 9, 2)
    assert (compute["name"], compute["count"]) == ("compute", 5)
    for stage in found["stages"]:
        assert 0 < stage["alone_seconds"] <= stage["seconds"]
        assert 0 <= stage["hidden_seconds"] <= stage["busy_seconds"] <= found["seconds"]
    assert found["serial_seconds"] == decode["alone_seconds"] + compute["alone_seconds"]
    assert found["gain"] == pytest.approx(found["serial_seconds"] / found["seconds"])
    assert list(found["absent"]) == ["host-to-device", "device-to-host"]
    assert (found["dtype"], found["streams"]) == ("auto", 0)
    pictures, batches = found["buffers"]
    assert pictures["made"] + pictures["reused"] == 9
    assert (batches["made"], batches["reused"]) == (1, 4)
    shown = capsys.readouterr().out
    for text in ("absent: the CPU measures", found["verdict"], found["overlap"], "share the CPU"):
        assert text in shown
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_maps_are_a_stage(folders):
    maps = folders.ref.with_name("maps")
    status, report = folders.compare("--profile", "--maps", maps, "--device", "cpu")
    assert status == 0
    names = [stage["name"] for stage in report["profile"]["stages"]]
    assert names == ["decode", "compute", "maps"]
    assert report["profile"]["stages"][2]["count"] == 9 == len(list(maps.iterdir()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--profile", "--gpus", "cpu:2"], "--profile is of one process"),
        (["--plot", "plot.png"], "add --profile or --gpus"),
        (["--profile", "--plot", "plot.docx"], "no image format is called 'docx'"),
        (["--streams", "0"], "streams is at least 1"),
        (["--dtype", "float64"], "float32, float16, bfloat16, uint8"),
    ],
)
def test_wrong_usage(folders, capsys, options, message):
    assert main(["compare", str(folders.ref), str(folders.test), *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


# Dtypes: what docs/compare.md says is lost


# SSIM is rounded to the type: half a step of the numbers from 0.5 to 1.
SSIM_LOST = {"uint8": 0.0, "float32": 0.0, "float16": 2.0**-12, "bfloat16": 2.0**-9}


@pytest.mark.parametrize("dtype", SSIM_LOST)
@pytest.mark.parametrize("choice", [(), ("--metrics", "psnr"), ("--y-channel",)], ids=str)
def test_eight_bits_lose_nothing_but_digits_of_ssim(folders, device, dtype, choice):
    _, exact = folders.compare("--device", device, *choice)
    status, report = folders.compare("--device", device, "--dtype", dtype, *choice)
    assert status == 0
    assert report["options"]["dtype"] == dtype
    # Luma is float32 whatever the samples are.
    lost = 0.0 if "--y-channel" in choice else SSIM_LOST[dtype]
    allowed = {**TOLERANCE, "ssim": TOLERANCE["ssim"] + lost}
    for row, expected in zip(report["images"], exact["images"], strict=True):
        for metric in report["options"]["metrics"]:
            assert row[metric] == pytest.approx(expected[metric], rel=0, abs=allowed[metric])


def test_sixteen_bits_are_rounded_or_refused(tmp_path, device):
    folders = Folders(tmp_path)
    a = picture(4, channels=1, top=65535)
    folders.add("deep.png", a, distorted(a, strength=2))
    choice = ("--device", device, "--dtype")
    status, report = folders.compare(*choice, "float32")
    assert status == 0
    assert_matches(report["images"][0], a, distorted(a, strength=2))
    for dtype in ("uint8", "float16"):
        status, report = folders.compare(*choice, dtype)
        assert status == 1
        (problem,) = report["problems"]
        assert problem["kind"] == "unsupported"
        assert f"16 bits per sample do not fit into {dtype}" in problem["reason"]
    status, report = folders.compare(*choice, "bfloat16")
    assert status == 0
    rounded = [
        torch.from_numpy(each.astype(np.float32)).bfloat16().double().numpy()
        for each in (a, distorted(a, strength=2))
    ]
    row = report["images"][0]
    assert row["mae"] == pytest.approx(np.abs(rounded[0] - rounded[1]).mean(), rel=1e-4)


# The engine of a GPU, on the virtual device


without_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="tier 0 stands in for a GPU, and here is a real one"
)


@without_gpu
@pytest.mark.parametrize("streams", [1, 3])
def test_every_batch_goes_through_its_stream_and_is_waited_for_once(folders, streams):
    _, expected = folders.compare("--device", "cpu", "--batch", 2)
    options = CompareOptions(device="cuda", batch=2, streams=streams)
    pairing = find_pairs(folders.ref, folders.test)
    recorder = Recorder()
    with Tier0(recorder):
        found = compare_alone(folders.ref, folders.test, pairing, options, profile=True)
    assert [row.psnr for row in found.rows] == [row["psnr"] for row in expected["images"]]
    assert [row.ssim for row in found.rows] == [row["ssim"] for row in expected["images"]]
    stages = {stage.name: stage for stage in found.profile.stages}
    assert list(stages) == ["decode", "enqueue", "host-to-device", "compute", "device-to-host"]
    assert [stage.count for stage in stages.values()] == [9, 5, 5, 5, 5]
    assert stages["host-to-device"].bytes == 9 * 2 * 24 * 32 * 3
    assert stages["device-to-host"].bytes == 9 * 3 * 4
    assert found.profile.streams == stages["compute"].lanes == streams
    assert (found.profile.reuse[1].made, found.profile.reuse[1].reused) == (streams, 5 - streams)
    waits = [each for each in recorder.findings() if each.event.verdict is Verdict.SYNC]
    assert [(each.event.api, each.count) for each in waits] == [("torch.cuda.Event.synchronize", 5)]


@without_gpu
def test_memory_of_the_device_that_runs_out_is_given_up(folders, monkeypatch):
    """Batches of three and more do not fit."""
    tried, as_ever = [], engine.measure

    def measure(reference, *arguments):
        tried.append(len(reference))
        if len(reference) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return as_ever(reference, *arguments)

    pairing = find_pairs(folders.ref, folders.test)
    options = CompareOptions(device="cuda", batch=8, workers=1)
    monkeypatch.setattr(engine, "measure", measure)
    with Tier0(Recorder()):
        found = compare_alone(folders.ref, folders.test, pairing, options, profile=True)
    assert len(found.rows) == 9
    assert found.problems == []
    assert tried[:3] == [8, 4, 2]
    stages = {stage.name: stage.count for stage in found.profile.stages}
    assert stages["compute"] == stages["device-to-host"] == stages["enqueue"] == 5
    assert stages["host-to-device"] == len(tried)  # those that were measured in vain, too
    # Of three streams, for two pairs each: 9216 bytes, rounded up. Nothing of larger ones is left.
    assert found.profile.reuse[1].bytes == 3 * 10_240


def test_results_of_another_dtype_are_not_resumed(tmp_path):
    def heading(**options):
        return journal_heading(tmp_path, tmp_path, CompareOptions(**options))

    assert heading(dtype="float16") != heading()
    assert heading(streams=1, batch=4, workers=1) == heading()
