"""The version, from the installed package's metadata."""

from importlib import metadata

try:
    __version__ = metadata.version("syncfree")
except metadata.PackageNotFoundError:  # a source tree on PYTHONPATH
    __version__ = "0+unknown"
