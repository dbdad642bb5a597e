"""Which frames of a Python stack a report shows."""

from __future__ import annotations

import asyncio
import runpy
import threading
from types import FunctionType

import pytest

from syncfree.detector.findings import Frame
from syncfree.detector.stack import clean, stack_here


@pytest.mark.parametrize("file", ["frozen_layers.py", "frozen/step.py", "built-in.py"])
def test_a_program_may_be_called_frozen(file: str) -> None:
    """A module that is built into Python has no file: its origin is a word, such as `frozen`."""
    stack = (Frame("model.py", 3, "forward"), Frame(file, 7, "step"), Frame("train.py", 9, "main"))
    assert clean(iter(stack)) == stack


@pytest.mark.parametrize("runner", [runpy.run_module, threading.Thread.run, asyncio.run])
def test_a_stack_ends_at_what_started_the_program(runner: FunctionType) -> None:
    begun = Frame("train.py", 9, "<module>")
    beyond = (Frame(runner.__code__.co_filename, 80, "run"), Frame("launcher.py", 1, "main"))
    assert clean(iter((begun, *beyond))) == (begun,)


def test_a_stack_begins_at_the_line_that_asks() -> None:
    assert stack_here()[0].function == "test_a_stack_begins_at_the_line_that_asks"
