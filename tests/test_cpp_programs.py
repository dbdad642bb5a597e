"""Programs in C++: examples, status codes, the timer."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from cpp_programs import ROOT, run
from fake_driver import compiled
from syncfree.benchmarking.gaps import IdleGap


def test_wrong_input_gives_its_status(programs):
    done = run(programs / "core_checks")
    assert done.returncode == 0, done.stdout
    checks = re.fullmatch(r"(\d+) checks, 0 failed\n", done.stdout)
    assert checks is not None, done.stdout
    assert int(checks.group(1)) > 70


def test_requests_of_a_c_program(programs):
    done = run(programs / "request_checks")
    assert done.returncode == 0, done.stdout


def test_timer_by_a_driver_of_the_tests(programs, tmp_path):
    """Events of tests/fake_libcuda.cpp, whose time stands still."""
    driver = compiled(ROOT / "tests" / "fake_libcuda.cpp", tmp_path / "libfakecuda.so")
    done = subprocess.run(
        [programs / "core_checks"], capture_output=True, text=True, check=False,
        env={**os.environ, "CHECK_CUDA_TIMER": "1", "SYNCFREE_LIBCUDA": str(driver)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "timed on CUDA\n" in done.stdout


def test_plain_example(programs):
    done = run(programs / "plain")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"cpu: image (\d) has ([\d.]+) dB, SSIM ([\d.]+)", done.stdout)
    assert [int(image) for image, _, _ in found] == [0, 1, 2, 3]
    decibels = [float(psnr) for _, psnr, _ in found]
    # The error grows as 1 : 2 : 3 : 4.
    assert decibels[0] - decibels[1] == pytest.approx(6.02, abs=0.02)
    assert decibels[0] - decibels[3] == pytest.approx(12.04, abs=0.02)
    assert [float(ssim) for _, _, ssim in found] == sorted(
        (float(ssim) for _, _, ssim in found), reverse=True
    )
    assert run(programs / "plain", "tpu").returncode == 2


@pytest.mark.needs_cuda
def test_plain_example_on_cuda(programs):
    here, there = (run(programs / "plain", device) for device in ("cpu", "cuda"))
    assert there.returncode == 0, there.stderr
    numbers = [[float(x) for x in re.findall(r"\d+\.\d+", done.stdout)] for done in (here, there)]
    assert len(numbers[0]) == 8
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-3)


@pytest.mark.alone
def test_libtorch_example(programs, device, tmp_path):
    done = run(programs / "evaluate", device, tmp_path / "sweep.json")
    assert done.returncode == 0, done.stderr
    timed, _, swept = done.stdout.partition("batch on ")
    quality, _, regions = timed.partition("forward, ")
    found = re.fullmatch(
        r"noisy +([\d.]+) dB, SSIM ([\d.]+)\nrestored ([\d.]+) dB, SSIM ([\d.]+) on (\w+)\n",
        quality,
    )
    assert found is not None, done.stdout
    # Reading the means waited for all regions.
    kinds = {"cpu": "host time", "cuda": "(launch|GPU)-bound"}
    verdict = rf"10 times: {kinds[device]}: [^\n]*\d [um]?s[^\n]*\n"
    assert re.fullmatch(f"{verdict}metrics, {verdict}", regions), regions
    sweep = IdleGap.from_json(json.loads((tmp_path / "sweep.json").read_text()))
    assert f"batch on {swept}" == f"{sweep}\n"
    assert sweep.kind == device
    assert sweep.not_gateable == ""
    assert [point.gap for point in sweep.points] == [0.0, 0.01, 0.1]
    *numbers, place = found.groups()
    noisy, noisy_ssim, restored, restored_ssim = map(float, numbers)
    assert noisy == pytest.approx(20, abs=0.1)
    # The squares of the filter's taps sum to (3 / 8)^2, which takes 8.5 dB off white noise.
    assert restored == pytest.approx(noisy + 8.5, abs=0.5)
    assert 0.1 < noisy_ssim < restored_ssim - 0.1 < 0.9
    assert place == device
