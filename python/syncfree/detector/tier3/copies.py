"""The ends of a copy: which of them is host memory, and of what kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncfree._runtime import DriverCall, DriverWatch

HostKind = Literal["pinned", "pageable", "device", "managed", "unknown"]


@dataclass(frozen=True)
class Copy:
    """The ends of a copy as far as they are known.

    Args:
        direction: ``"d2h"``, ``"h2d"``, or None if it is not known.
        host: The kind of memory at the host's end.
    """

    direction: str | None
    host: HostKind


def look_up(call: DriverCall, watch: DriverWatch) -> Copy | None:
    """The ends of a copy, for which the driver may be asked; None if neither is on the host.

    To be called soon after the copy, while its memory still exists.
    """

    def kind(address: int, is_host: bool = False) -> HostKind:
        return watch.memory_kind(address, call.context, is_host)

    if call.kind == "wait" or call.host_memory == "pinned":
        return Copy(call.direction, call.host_memory)
    if call.kind == "fill":
        return Copy(None, kind(call.to))
    if call.direction is not None:
        host = call.to if call.direction == "d2h" else call.source
        return _with_host(call.direction, kind(host, is_host=True))
    return _between(kind(call.to), kind(call.source))


def _between(to: HostKind, source: HostKind) -> Copy | None:
    if to == "device":
        return _with_host("h2d", source)
    if source == "device":
        return _with_host("d2h", to)
    # Managed memory may be anywhere. A copy from host to host does not involve the GPU.
    return Copy(None, "unknown") if {"managed", "unknown"} & {to, source} else None


def _with_host(direction: str, host: HostKind) -> Copy | None:
    return None if host == "device" else Copy(direction, host)
