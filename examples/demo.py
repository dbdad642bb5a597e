"""Shows syncfree at work: compares JPEG copies of photographs, then trains a small net.

Run it as `python examples/demo.py --keep photos`.

The photographs come with scikit-image, the digits with scikit-learn; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from skimage import data

# Only pictures that the scikit-image package contains; others would be downloaded on first use.
PHOTOGRAPHS = ("astronaut", "camera", "chelsea", "coffee", "hubble_deep_field", "moon", "rocket")


def write_photographs(folder: Path, count: int) -> Path:
    """Write the photographs as PNG, which is lossless."""
    references = folder / "original"
    references.mkdir(parents=True, exist_ok=True)
    for name in PHOTOGRAPHS[:count]:
        Image.fromarray(getattr(data, name)()).save(references / f"{name}.png")
    return references


def write_jpegs(references: Path, folder: Path, quality: int) -> Path:
    """Write a JPEG copy of each reference, all with the same quality (1 to 95)."""
    copies = folder / f"jpeg-{quality}"
    copies.mkdir(parents=True, exist_ok=True)
    for path in sorted(references.glob("*.png")):
        with Image.open(path) as image:
            image.save(copies / f"{path.stem}.jpg", quality=quality)
    return copies


def compare(references: Path, copies: Path, device: str) -> dict[str, Any]:
    """Run `syncfree compare` as a user would, and read the report that it writes."""
    report = copies.with_suffix(".json")
    command = ["compare", str(references), str(copies), "--device", device, "--json", str(report)]
    print(f"\n$ syncfree {' '.join(command)}", flush=True)
    subprocess.run([sys.executable, "-m", "syncfree", *command], check=True)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def print_closing(summaries: dict[int, dict[str, Any]]) -> None:
    """Print how the metrics depend on the JPEG quality."""
    print("\nJPEG quality   mean PSNR (dB)   mean SSIM")
    for quality, summary in summaries.items():
        psnr, ssim = (summary["metrics"][name]["mean"] for name in ("psnr", "ssim"))
        print(f"{quality:12}   {psnr:14.2f}   {ssim:9.4f}")


def run(folder: Path, arguments: argparse.Namespace) -> None:
    """Compare at every quality, then train."""
    references = write_photographs(folder, arguments.photographs)
    summaries = {}
    for quality in arguments.quality:
        copies = write_jpegs(references, folder, quality)
        summaries[quality] = compare(references, copies, arguments.device)["summary"]
    print_closing(summaries)

    print("\n$ python examples/train_digits.py", flush=True)
    training = [str(Path(__file__).with_name("train_digits.py")), "--epochs", str(arguments.epochs)]
    if arguments.device != "auto":
        training += ["--device", arguments.device]
    subprocess.run([sys.executable, *training], check=True)


def main() -> None:
    """Read the command line and run in a temporary folder, or in the one to keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the images here")
    parser.add_argument("--quality", type=int, nargs="+", default=[90, 50, 10])
    parser.add_argument("--photographs", type=int, default=len(PHOTOGRAPHS), help="how many")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    arguments = parser.parse_args()
    if arguments.keep is not None:
        run(arguments.keep, arguments)
        return
    with tempfile.TemporaryDirectory(prefix="syncfree-demo-") as folder:
        run(Path(folder), arguments)


if __name__ == "__main__":
    main()
