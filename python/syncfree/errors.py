"""Exceptions of syncfree's own; everything else raises the types that TorchMetrics raises."""


class SyncfreeError(Exception):
    """Base of every exception that only syncfree raises."""


class LibraryError(SyncfreeError, ImportError):
    """A compiled library is missing or does not fit what is installed."""


class MissingExtraError(SyncfreeError, ImportError):
    """A feature needs packages of an extra that is not installed.

    Args:
        feature: What was asked for, as the start of a sentence, for example ``"syncfree compare"``.
        extra: The extra that brings what is missing.

    Example:
        >>> from syncfree.errors import MissingExtraError
        >>> print(MissingExtraError("`syncfree compare`", "cli"))
        `syncfree compare` needs packages that are not installed: pip install 'syncfree[cli]'
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs packages that are not installed: pip install 'syncfree[{extra}]'"
        )
        self.feature = feature
        self.extra = extra


class DeviceError(SyncfreeError, RuntimeError):
    """A tensor is on a device for which there is no kernel."""
