"""Pairs, options and outcomes as JSON documents, for the store and the journals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from syncfree._version import __version__
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.pairs import Pair
from syncfree.cli.compare.pipeline import Outcome
from syncfree.cli.compare.problems import Problem
from syncfree.cli.compare.report import ImageRow

Stamp = list[int]


def options_document(options: CompareOptions) -> dict[str, Any]:
    """All settings; `options_from` reads them."""
    maps = None if options.maps is None else str(options.maps)
    return {**asdict(options), "metrics": list(options.metrics), "maps": maps}


def options_from(document: Mapping[str, Any]) -> CompareOptions:
    """What `options_document` wrote."""
    maps = document["maps"]
    return CompareOptions(
        **{
            **document,
            "metrics": tuple(document["metrics"]),
            "maps": None if maps is None else Path(maps),
        }
    )


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """A pair's row and problems; floats of JSON keep every bit."""
    return {
        "row": None if outcome.row is None else asdict(outcome.row),
        "problems": [asdict(problem) for problem in outcome.problems],
    }


def outcome_sent(document: Mapping[str, Any], pair: Pair) -> Outcome:
    """What another process found, which must be about the pair's own files."""
    files = (str(pair.reference), str(pair.test))
    row = document["row"]
    if row is not None and (row["reference"], row["test"]) != files:
        reason = f"a process sent the row of {row['reference']} and {row['test']} for these files"
        return Outcome(pair, None, (Problem("internal", files, reason),))
    return outcome_from(document, pair)


def outcome_from(document: Mapping[str, Any], pair: Pair) -> Outcome:
    """What `outcome_document` wrote, for its pair, whose files may have had other paths then."""
    found = document["row"]
    files = {"reference": str(pair.reference), "test": str(pair.test)}
    row = None if found is None else ImageRow(**{**found, **files})
    problems = (
        Problem(each["kind"], tuple(each["files"]), each["reason"]) for each in document["problems"]
    )
    return Outcome(pair, row, tuple(problems))


def journal_heading(reference: Path, test: Path, options: CompareOptions) -> dict[str, Any]:
    """What results in a journal depend on, apart from the pictures."""
    return {
        "syncfree": __version__,
        "reference": str(reference.absolute()),
        "test": str(test.absolute()),
        "metrics": list(options.metrics),
        "crop_border": options.crop_border,
        "y_channel": options.y_channel,
        "background": options.background,
        "dtype": options.dtype,
        "maps": None if options.maps is None else str(options.maps.absolute()),
    }


def stamp(pair: Pair) -> Stamp:
    """Sizes and modification times of both files, which tell whether a result is still theirs."""
    found: Stamp = []
    for path in (pair.reference, pair.test):
        try:
            status = path.stat()
        except OSError:
            return []  # decoding will report what is wrong with it
        found += [status.st_size, status.st_mtime_ns]
    return found
