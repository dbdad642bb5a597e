"""Entry point of the `syncfree` command; imports little, so that `info` works on a bare install."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from io import TextIOWrapper

_NEEDED = ("typer", "rich", "PIL", "numpy")
_PRINTED = {"--version", "--cmake-dir", "--include-dir", "--lib-dir"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `syncfree` command and return its exit status.

    `info`, `--version`, `--cmake-dir`, `--include-dir` and `--lib-dir` need the standard library
    only; several of these options may be given, and each prints a line. Every other command needs
    the `cli` extra; without it, a message with the `pip install` line goes to standard error and
    the status is 2.

    Args:
        argv: the arguments after the program's name; default `sys.argv[1:]`.

    Returns:
        0 for success, 1 for problems found, 2 for wrong usage or a missing extra, 130 after Ctrl-C.

    Example:
        >>> from syncfree.cli import main
        >>> status = main(["info"])  # doctest: +SKIP
    """
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # before a command began, which would handle it
        print("interrupted", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    _print_any_text()
    if arguments[:1] == ["info"]:
        from syncfree._info import main as info

        return info(arguments[1:])
    if arguments and set(arguments) <= _PRINTED:
        return _print(arguments)
    from syncfree.errors import MissingExtraError

    try:
        _require_extra(arguments)
        from syncfree.cli.app import run

        return run(arguments)
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        return 2


def _print_any_text() -> None:
    """Prints characters that the encoding lacks as escapes: an é in a name must lose no result."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, TextIOWrapper):
            continue  # a replacement, whose owner decides
        takes_any = stream.encoding == "utf-8" and stream.errors == "surrogateescape"
        if stream.errors in ("strict", "surrogateescape") and not takes_any:
            stream.reconfigure(errors="backslashreplace")


def _print(options: Sequence[str]) -> int:
    from syncfree._cpp import cmake_dir, include_dir, lib_dir
    from syncfree._version import __version__
    from syncfree.errors import LibraryError

    printed: dict[str, Callable[[], object]] = {
        "--version": lambda: f"syncfree {__version__}",
        "--cmake-dir": cmake_dir,
        "--include-dir": include_dir,
        "--lib-dir": lib_dir,
    }
    try:
        lines = [str(printed[option]()) for option in options]
    except LibraryError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


def _require_extra(arguments: Sequence[str]) -> None:
    from syncfree.errors import MissingExtraError

    for module in _NEEDED:
        try:
            found = find_spec(module) is not None
        except ImportError:
            found = False
        if not found:
            command = " ".join(["syncfree", *arguments[:1]])
            raise MissingExtraError(f"`{command}`", "cli")
