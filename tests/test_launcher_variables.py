"""RANK, MASTER_PORT and their like as other programs set them, which use these names too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from syncfree.distributed import rendezvous
from syncfree.errors import LauncherError
from syncs_command import stub_in_a_folder, syncs  # noqa: F401

RIGHT = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
# As Kubernetes sets it for a service of the name "master".
OF_A_SERVICE = "tcp://10.0.0.1:80"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in RIGHT.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_PORT"])
def test_what_is_no_number_is_named(name: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv(name, OF_A_SERVICE)
    with pytest.raises(LauncherError, match=f"{name} is '{OF_A_SERVICE}', but a number") as caught:
        rendezvous.meet()
    assert "Unset RANK and WORLD_SIZE" in str(caught.value)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_missing_is_named(name: str, environment: pytest.MonkeyPatch) -> None:
    environment.delenv(name)
    with pytest.raises(LauncherError, match=f"{name} is not set"):
        rendezvous.meet()


def test_compare_says_so_in_a_line(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (16, 16)).save(tmp_path / folder / "x.png")
    command = [sys.executable, "-m", "syncfree", "compare", "a", "b"]
    done = subprocess.run(
        command,
        env={**os.environ, **RIGHT, "MASTER_PORT": OF_A_SERVICE},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "MASTER_PORT is" in done.stderr
    assert "--alone" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("stub_in_a_folder")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MASTER_PORT", OF_A_SERVICE, f"MASTER_PORT is '{OF_A_SERVICE}'"),
        ("MASTER_ADDR", None, "MASTER_ADDR is not set"),
        ("RANK", OF_A_SERVICE, f"RANK is '{OF_A_SERVICE}'"),
        ("WORLD_SIZE", "many", None),
    ],
)
def test_syncs_reports_all_the_same(
    name: str,
    value: str | None,
    said: str | None,
    environment: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if value is None:
        environment.delenv(name)
    else:
        environment.setenv(name, value)
    script = tmp_path / "waits.py"
    script.write_text("from detector_stub import wait\nwait('Tensor.item')\n")
    syncs("--json", tmp_path / "found.json", script)
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["api"] for each in found["findings"]] == ["Tensor.item"]
    if said:
        assert said in json.dumps(found["note"])
