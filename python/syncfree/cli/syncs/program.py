"""Runs a script or a function as the interpreter itself would."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from syncfree.errors import SyncfreeError

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# Under this name a script finds what is called at the end of each of its steps.
_STEP = "__syncfree_step__"

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class ProgramError(SyncfreeError):
    """There is no such script, module or function."""


class Program:
    """A script with its arguments, or a function of a module.

    Args:
        target: Path of a script, or ``module:function``.
        arguments: What stands behind it on the command line.

    Raises:
        ProgramError: It is neither.
    """

    def __init__(self, target: str, arguments: Sequence[str] = ()) -> None:
        self.target = target
        self._arguments = list(arguments)
        self._script: Path | None = None
        if Path(target).is_file():
            self._script = Path(target).absolute()
        elif not _FUNCTION.fullmatch(target):
            raise ProgramError(
                f"{target} is neither a script that exists nor module:function, as in "
                "mypackage.train:main"
            )

    def run(self, step_function: str | None = None, wrap_step: Wrap = lambda each: each) -> Any:
        """Runs it to its end; its exceptions pass through.

        Args:
            step_function: A function that ends a step, as ``module:function``, or a function of the
                script by its name alone.
            wrap_step: Gets that function and returns what takes its place.

        Raises:
            ProgramError: The function, or the step function, is not there.
        """
        with (
            _as_interpreter([self.target, *self._arguments], self._script),
            self._stepping(step_function, wrap_step) as step_in_script,
        ):
            if self._script is None:
                return _resolve(self.target)()
            return _run_script(self._script, step_in_script, wrap_step)

    @contextmanager
    def _stepping(self, step_function: str | None, wrap: Wrap) -> Iterator[str | None]:
        if step_function is None:
            yield None
            return
        module, _, name = step_function.rpartition(":")
        if self._script is not None and module in ("", "__main__", self._script.stem):
            yield name
            return
        if not module:
            raise ProgramError(
                f"--step-function {step_function}: of a program that is no script it needs its "
                "module, as in mypackage.train:step"
            )
        original = _resolve(step_function)
        path, _, last = name.rpartition(".")
        owner = _resolve(f"{module}:{path}") if path else importlib.import_module(module)
        setattr(owner, last, wrap(original))
        try:
            yield None
        finally:
            setattr(owner, last, original)


@contextmanager
def _as_interpreter(arguments: list[str], script: Path | None) -> Iterator[None]:
    """`sys.argv`, `sys.path` and `__main__` as `python script.py` and `python -m` have them."""
    argv, path, main = sys.argv, list(sys.path), sys.modules["__main__"]
    sys.argv = arguments
    sys.path.insert(0, str(script.resolve().parent if script is not None else Path.cwd()))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        sys.modules["__main__"] = main


def _run_script(script: Path, step: str | None, wrap: Wrap) -> None:
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(script), __builtins__=__builtins__)
    if step is None:
        code = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    else:
        tree = ast.parse(script.read_bytes(), str(script))
        definition = _find(tree.body, step.split("."))
        if definition is None:
            raise ProgramError(f"--step-function {step}: {script} defines no function of this name")
        # The outermost decorator: what the script's own make of the function is what it calls.
        mark = ast.copy_location(ast.Name(_STEP, ast.Load()), definition)
        definition.decorator_list.insert(0, mark)
        main.__dict__[_STEP] = wrap
        code = compile(tree, str(script), "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _find(
    body: Sequence[ast.stmt], names: Sequence[str]
) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for each in body:
        if isinstance(each, ast.ClassDef) and len(names) > 1 and each.name == names[0]:
            return _find(each.body, names[1:])
        is_function = isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function and [each.name] == list(names):  # type: ignore[attr-defined]
            return each  # type: ignore[return-value]
    return None


def _resolve(target: str) -> Any:
    """The object of a ``module:path``."""
    module, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A module that the program itself lacks is the program's error.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ProgramError(f"{target}: there is no module {error.name}") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise ProgramError(f"{target}: {module} has no {path}")
        found = getattr(found, name)
    return found


def show_error(error: BaseException) -> None:
    """Shows an exception of the program with the traceback that it would have had alone."""
    here = str(Path(__file__).parent.parent.parent)
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(here):
        frames = frames.tb_next
    sys.excepthook(type(error), error.with_traceback(frames), frames)
