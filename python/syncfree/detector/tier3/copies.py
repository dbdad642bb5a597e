"""The ends of a copy: which of them is host memory, and of what kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncfree._runtime import DriverCall, DriverWatch

HostKind = Literal["pinned", "pageable", "device", "managed", "unknown"]


@dataclass(frozen=True)
class Copy:
    """The ends of a copy as they were found out.

    Args:
        direction: ``"d2h"``, ``"h2d"``, or None where it is not known.
        host: What the end on the host is.
    """

    direction: str | None
    host: HostKind


def look_up(call: DriverCall, watch: DriverWatch) -> Copy | None:
    """The ends of a copy, asked of the driver where need be; None where no host is in it.

    To be called soon after the call, while its memory is there.
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
    # Managed memory may be anywhere; between two places of the host the GPU has no part in it.
    return Copy(None, "unknown") if {"managed", "unknown"} & {to, source} else None


def _with_host(direction: str, host: HostKind) -> Copy | None:
    return None if host == "device" else Copy(direction, host)
