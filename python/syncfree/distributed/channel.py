"""Documents and mailboxes over a key-value store; nothing here ever waits for another process."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

# TCPStore refuses values above 8 MiB.
_PART_BYTES = 1 << 20


class Channel:
    """JSON documents under names with a prefix, in a store of `torch.distributed`.

    Args:
        store: any `torch.distributed.Store`.
        prefix: keeps several conversations over one store apart.

    Example:
        >>> import torch.distributed as dist
        >>> from syncfree.distributed.channel import Channel
        >>> channel = Channel(dist.HashStore(), "example")
        >>> channel.read("greeting") is None
        True
        >>> channel.publish("greeting", ["hello"])
        >>> channel.read("greeting")
        ['hello']
    """

    def __init__(self, store: Any, prefix: str) -> None:
        self._store = store
        self._prefix = f"syncfree/{prefix}"

    def publish(self, name: str, document: Any) -> None:
        """Put a document where any process can read it, any number of times."""
        data = zlib.compress(json.dumps(document).encode(), 1)
        parts = range(0, len(data), _PART_BYTES)
        for number, start in enumerate(parts):
            self._store.set(self._key(name, number), data[start : start + _PART_BYTES])
        # Last, so that a reader that finds the number of parts finds the parts.
        self._store.set(self._key(name, "parts"), str(len(parts)))

    def read(self, name: str) -> Any:
        """The document of this name, or `None` if there is none yet."""
        key = self._key(name, "parts")
        if not self._store.check([key]):
            return None
        parts = int(self._store.get(key))
        data = b"".join(self._store.get(self._key(name, number)) for number in range(parts))
        return json.loads(zlib.decompress(data))

    def forget(self, name: str) -> None:
        """Remove a document that has been read."""
        parts = int(self._store.get(self._key(name, "parts")))
        for number in (*range(parts), "parts"):
            self._store.delete_key(self._key(name, number))

    def add(self, name: str, amount: int) -> int:
        """Add to a 64-bit counter atomically, and return its new value; it begins at 0."""
        return int(self._store.add(self._key(name, "counter"), amount))

    def _key(self, name: str, part: object) -> str:
        return f"{self._prefix}/{name}/{part}"


class Mailbox:
    """Messages in order from one process, the sender, to another, the reader.

    Both make an object of the same name. There is no shared count of messages, so that a sender
    that dies between two steps leaves nothing half done.
    """

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name
        self._next = 0

    def post(self, message: Any) -> None:
        """Send a message."""
        self._channel.publish(f"{self._name}/{self._next}", message)
        self._next += 1

    def collect(self) -> Iterator[Any]:
        """Messages that have arrived and have not been read; they are removed from the store."""
        while (message := self._channel.read(f"{self._name}/{self._next}")) is not None:
            self._channel.forget(f"{self._name}/{self._next}")
            self._next += 1
            yield message
