"""Libraries that load late, when others have taken the room for static thread storage."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import syncfree

# ELF: type of a section, tags of its entries, and a flag (the System V ABI).
SECTION_DYNAMIC = 6
TAG_FLAGS = 30
STATIC_TLS = 0x10


def libraries() -> list[Path]:
    found = {file.resolve() for place in syncfree.__path__ for file in Path(place).rglob("*.so*")}
    # A name for the linker alone is a line of text: wheels hold no links.
    return sorted(file for file in found if file.read_bytes().startswith(b"\x7fELF"))


def dynamic_entries(file: Path) -> Iterator[tuple[int, int]]:
    """The tags and values by which the loader finds its way; 64 bits, little endian."""
    data = file.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01"
    (sections_at,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    for i in range(count):
        at = sections_at + i * size
        (kind,) = struct.unpack_from("<I", data, at + 4)
        begin, length = struct.unpack_from("<QQ", data, at + 0x18)
        if kind == SECTION_DYNAMIC:
            yield from struct.iter_unpack("<QQ", data[begin : begin + length])


@pytest.mark.parametrize("file", libraries(), ids=lambda file: file.name)
def test_needs_no_room_that_may_be_taken(file: Path) -> None:
    """Else it loads or not, depending on what else the process has loaded: torch takes much."""
    entries = list(dynamic_entries(file))
    assert len(entries) > 5
    flags = sum(value for tag, value in entries if tag == TAG_FLAGS)
    assert not flags & STATIC_TLS


def test_there_are_libraries() -> None:
    assert len(libraries()) >= 3
