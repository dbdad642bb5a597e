"""Exceptions of syncfree's own; everything else raises the types that TorchMetrics raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SyncfreeError(Exception):
    """Base of every exception that only syncfree raises.

    They are sent between processes. Unpickling calls the class, so an exception that builds its
    text from its arguments has to give `pickle` these arguments: a `multiprocessing.Pool` hangs if
    unpickling fails.
    """


class LibraryError(SyncfreeError, ImportError):
    """A compiled library is missing or does not fit what is installed."""


class MissingExtraError(SyncfreeError, ImportError):
    """A feature needs packages of an extra that is not installed.

    Args:
        feature: What was asked for, as the start of a sentence, for example ``"syncfree compare"``.
        extra: The extra that installs the missing packages.

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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.feature, self.extra), self.__dict__


class DeviceError(SyncfreeError, RuntimeError):
    """A device does not exist, or a tensor is on one for which there is no kernel."""


class TimerError(SyncfreeError, RuntimeError):
    """The event timer cannot do what was asked, or the CUDA driver refused."""


class BenchmarkError(SyncfreeError, RuntimeError):
    """A function cannot be measured here as was asked."""


class DetectorError(SyncfreeError, RuntimeError):
    """The sync detector cannot do here what was asked."""


class VirtualDeviceError(DetectorError, NotImplementedError):
    """A program called something on tier 0's virtual CUDA device that needs a real GPU.

    Args:
        call: What was called, for example ``"torch.cuda.CUDAGraph"``.
        advice: What to do; by default, to use a GPU or leave the call out.
    """

    def __init__(self, call: str, advice: str = "") -> None:
        super().__init__(
            f"{call} is not supported without a GPU. "
            f"{advice or 'Run the sync detector on a machine with one, or leave this call out.'}"
        )
        self.call = call
        self.advice = advice

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.call, self.advice), self.__dict__


class SyncError(SyncfreeError, RuntimeError):
    """Code made the host wait for the GPU though it must not; the text lists the lines.

    Args:
        message: What happened, with the table of the guilty lines.
        report: The :class:`syncfree.detector.Report` with all findings.
    """

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report


class LauncherError(SyncfreeError, RuntimeError):
    """Environment variables of `torchrun`, by which processes meet, are missing or wrong."""


class RankError(SyncfreeError, RuntimeError):
    """Processes of a fleet died, failed or were stuck.

    Args:
        lost: what became of each, by rank.
    """

    def __init__(self, lost: Mapping[int, str]) -> None:
        text = "; ".join(f"rank {rank}: {reason}" for rank, reason in sorted(lost.items()))
        super().__init__(text)
        self.lost = dict(lost)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.lost,), self.__dict__


class EvaluationError(SyncfreeError, RuntimeError):
    """Items of a data set could not be evaluated.

    Args:
        failures: the reason by item.
        evaluation: the :class:`syncfree.distributed.Evaluation` with the values of all others.
    """

    def __init__(self, failures: Mapping[int, str], evaluation: Any = None) -> None:
        first, reason = next(iter(failures.items()))
        many = len(failures) > 1
        which = f"{len(failures)} items failed; the first is" if many else "1 item failed,"
        super().__init__(f"{which} item {first}: {reason}")
        self.failures = dict(failures)
        self.evaluation = evaluation

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failures, self.evaluation), self.__dict__


class SyncWarning(UserWarning):
    """The host waited for the GPU, or the sync detector sees less than it could."""
