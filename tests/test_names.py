"""Every import site of TorchMetrics under our name: what is ours, and what is passed on."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
import typing
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
import torchmetrics

import syncfree
from syncfree import _torchmetrics_names as table

ACCURACIES = ["Accuracy", "BinaryAccuracy", "MulticlassAccuracy", "MultilabelAccuracy"]
ACCURACY_FUNCTIONS = ["accuracy", "binary_accuracy", "multiclass_accuracy", "multilabel_accuracy"]
PSNR, PSNR_FUNCTION = "PeakSignalNoiseRatio", "peak_signal_noise_ratio"
SSIMS = ["StructuralSimilarityIndexMeasure", "MultiScaleStructuralSimilarityIndexMeasure"]
SSIM_FUNCTIONS = [
    "structural_similarity_index_measure",
    "multiscale_structural_similarity_index_measure",
]
IMAGE_FUNCTIONS = [PSNR_FUNCTION, *SSIM_FUNCTIONS]

SITES = {
    "": ["Accuracy", PSNR, *SSIMS, "MetricCollection"],
    ".classification": ACCURACIES,
    ".classification.accuracy": ACCURACIES,
    ".collections": ["MetricCollection"],
    ".functional": ["accuracy", *IMAGE_FUNCTIONS],
    ".functional.classification": ACCURACY_FUNCTIONS,
    ".functional.classification.accuracy": ACCURACY_FUNCTIONS,
    ".functional.image": IMAGE_FUNCTIONS,
    ".functional.image.psnr": [PSNR_FUNCTION],
    ".functional.image.ssim": SSIM_FUNCTIONS,
    ".image": [PSNR, *SSIMS],
    ".image.psnr": [PSNR],
    ".image.ssim": SSIMS,
}
PACKAGES = ["", ".classification", ".image"] + [
    f".functional{package}" for package in ("", ".classification", ".image")
]
OUR_MODULES = {
    module.name
    for module in pkgutil.walk_packages(syncfree.__path__, "syncfree.")
    if not module.name.endswith("__main__")
}

IS_TABLED = torchmetrics.__version__.startswith(f"{table.VERSION}.")


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("site", "name"), [(s, n) for s, names in SITES.items() for n in names])
def test_ours_where_torchmetrics_has_it(site: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = getattr(importlib.import_module(f"syncfree{site}"), name)
    assert ours.__name__ == name
    assert ours.__module__.startswith("syncfree.")
    theirs = getattr(importlib.import_module(f"torchmetrics{site}"), name)
    if inspect.isclass(ours) and not theirs.__name__.startswith("_"):  # deprecated at the root
        assert issubclass(ours, theirs)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_other_name_is_torchmetrics_own(package: str) -> None:
    ours = importlib.import_module(f"syncfree{package}")
    theirs = importlib.import_module(f"torchmetrics{package}")
    for name in theirs.__all__:
        if name not in ours._OWN and hasattr(theirs, name):
            assert getattr(ours, name) is getattr(theirs, name), name
    assert set(ours.__all__) <= set(dir(ours))
    if IS_TABLED:
        assert set(theirs.__all__) <= set(dir(ours))
        for name in dir(ours):
            getattr(ours, name)


def test_every_other_module_is_torchmetrics_own() -> None:
    loaded = [name for name in sys.modules if name.startswith("torchmetrics.")]
    assert len(loaded) > 200
    for name in loaded:
        here = "syncfree" + name.removeprefix("torchmetrics")
        private = any(part.startswith("_") for part in here.split("."))
        if here in OUR_MODULES:
            assert sys.modules.get(here, here) is not sys.modules[name]
        elif not private:
            assert importlib.import_module(here) is sys.modules[name], here


ALL_MODULES = """
import importlib, sys, types
import syncfree, torchmetrics

def function(name):
    package, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(package), attribute, None)
    return None if isinstance(found, types.ModuleType) else found

loaded = [name for name in sys.modules if name.startswith("torchmetrics.")]
both = {name: function(name) for name in loaded if function(name) is not None}
assert len(both) > 5, both
for name, known in both.items():
    here = "syncfree" + name.removeprefix("torchmetrics")
    module = importlib.import_module(here)
    assert isinstance(module, types.ModuleType), here
    assert function(name) is known, name
    ours = function(here)
    assert ours is known or ours.__module__.startswith("syncfree."), here
    package = sys.modules[here.rpartition(".")[0]]
    assert type(package) is types.ModuleType, package
"""


def test_a_module_does_not_hide_the_function_of_its_name() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALL_MODULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_our_modules_are_never_shadowed() -> None:
    for name in OUR_MODULES:
        assert importlib.import_module(name).__name__ == name
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        assert spec.origin.startswith(tuple(syncfree.__path__)), spec.origin


@pytest.mark.parametrize("name", ["nonsense", "_nonsense", "text.nonsense", "image.nonsense"])
def test_no_such_module(name: str) -> None:
    assert find_spec(f"syncfree.{name}") is None
    for path in (name, f"{name}.deeper"):
        with pytest.raises(ModuleNotFoundError, match=rf"No module named 'syncfree\.{name}'"):
            importlib.import_module(f"syncfree.{path}")


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("name", ["nonsense", "Nonsense", "_private", "__dunder__", "os"])
def test_no_such_name(package: str, name: str) -> None:
    module = importlib.import_module(f"syncfree{package}")
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(module, name)


def test_forms_of_import() -> None:
    import syncfree.text
    from syncfree.aggregation import MeanMetric
    from syncfree.regression.mse import MeanSquaredError
    from syncfree.utilities import data
    from syncfree.wrappers import BootStrapper

    from syncfree.classification import MulticlassF1Score
    from syncfree.functional.classification import multiclass_f1_score

    assert syncfree.text is torchmetrics.text
    assert data is torchmetrics.utilities.data
    assert MeanMetric is torchmetrics.MeanMetric is syncfree.MeanMetric
    assert MulticlassF1Score is torchmetrics.classification.MulticlassF1Score
    assert multiclass_f1_score is torchmetrics.functional.classification.multiclass_f1_score
    assert MeanSquaredError is torchmetrics.MeanSquaredError
    assert BootStrapper is torchmetrics.wrappers.BootStrapper
    assert syncfree.functional.text is torchmetrics.functional.text


@pytest.mark.parametrize("package", PACKAGES)
def test_star_imports_bring_what_torchmetrics_has_and_ours(package: str) -> None:
    ours = importlib.import_module(f"syncfree{package}")
    theirs = importlib.import_module(f"torchmetrics{package}")
    names: dict[str, object] = {}
    exec(f"from syncfree{package} import *", names)
    del names["__builtins__"]
    assert names.keys() == {*vars(ours).get("_STARRED", ours._OWN), *theirs.__all__}
    for name, value in names.items():
        assert value is getattr(ours if name in ours._OWN else theirs, name), name


@pytest.mark.parametrize("module", ["classification.accuracy", "image.psnr", "image.ssim"])
@pytest.mark.parametrize("package", ["", "functional."])
def test_a_star_from_a_module_of_one_metric_brings_that(package: str, module: str) -> None:
    names: dict[str, object] = {}
    exec(f"from syncfree.{package}{module} import *", names)
    del names["__builtins__"]
    assert list(names) == sorted(SITES[f".{package}{module}"])
    theirs = vars(importlib.import_module(f"torchmetrics.{package}{module}"))
    assert names.keys() <= theirs.keys()


def test_pickle_reload_and_inspection() -> None:
    from syncfree.regression import mse

    assert pickle.loads(pickle.dumps(mse.MeanSquaredError)) is torchmetrics.MeanSquaredError
    assert "class MeanSquaredError" in inspect.getsource(mse)
    assert inspect.getmodule(mse.MeanSquaredError) is mse
    typing.get_type_hints(mse.MeanSquaredError.update)
    assert mse.__spec__ is not None
    assert mse.__spec__.name == mse.__name__ == "torchmetrics.regression.mse"
    code = """
import importlib, sys, syncfree, syncfree.text.wer as wer
assert importlib.reload(wer) is wer is sys.modules["torchmetrics.text.wer"]
finders = len(sys.meta_path)
assert importlib.reload(syncfree) is syncfree and len(sys.meta_path) == finders
assert importlib.reload(syncfree.image) is sys.modules["syncfree.image"]
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_imported_anew() -> None:
    """As by those who empty `sys.modules` between tests or runs of a notebook."""
    code = """
import sys
import torch
from torch._library.fake_impl import FakeImplHolder
for function in (  # torch 2.11 replaces nothing by default
    torch.library.register_fake,
    torch.library.Library.impl,
    torch.library.Library._register_fake,
    FakeImplHolder.register,
):
    function.__kwdefaults__["allow_override"] = False
for _ in range(2):
    import syncfree, syncfree.text
    from syncfree.functional import safe_divide
    assert sys.modules["torchmetrics.text"] is syncfree.text
    for name in [name for name in sys.modules if name.partition(".")[0] == "syncfree"]:
        del sys.modules[name]
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_finders_of_the_old_protocol_are_passed_over() -> None:
    """As Python does: those that know `find_module` alone, which 3.12 no longer asks."""
    code = """
import sys
class Old:
    def find_module(self, name, path=None):
        return None
sys.meta_path.insert(0, Old())
import syncfree.text, torchmetrics
assert syncfree.text is torchmetrics.text
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = """
import sys, syncfree
from importlib.util import find_spec
assert find_spec("syncfree.text").origin.endswith("__init__.py")
assert find_spec("syncfree.nonsense") is None
dir(syncfree)
assert not {"torch", "torchmetrics"} & sys.modules.keys()
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_threads_import_one_module() -> None:
    names = [f"syncfree.text.{name}" for name in ("bleu", "cer", "chrf", "eed")] * 8
    for name in names:
        sys.modules.pop(name, None)
    with ThreadPoolExecutor(8) as pool:
        for name, module in zip(names, pool.map(importlib.import_module, names), strict=True):
            assert module.__name__ == "torchmetrics" + name.removeprefix("syncfree")


def test_threads_may_be_the_first_to_ask_for_names() -> None:
    """TorchMetrics' modules import each other in circles."""
    code = """
import sys, syncfree
from concurrent.futures import ThreadPoolExecutor
sys.setswitchinterval(1e-4)
names = [*syncfree._OWN, "F1Score", "text"]
with ThreadPoolExecutor(len(names)) as pool:
    list(pool.map(lambda name: getattr(syncfree, name), names))
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_from_a_zip_file(tmp_path: Path) -> None:
    archive = tmp_path / "packed.zip"
    root = Path(syncfree.__file__ or "").parent
    with ZipFile(archive, "w") as packed:
        for path in root.rglob("*.py"):
            packed.write(path, path.relative_to(root.parent))
    code = f"""
import sys
# An editable install finds the package before the path is asked.
sys.meta_path[:] = [x for x in sys.meta_path if "editable" not in type(x).__module__]
sys.path.insert(0, {str(archive)!r})
import syncfree, syncfree.errors, syncfree.text
assert all("packed.zip" in m.__file__ for m in (syncfree, syncfree.errors))
assert syncfree.text is sys.modules["torchmetrics.text"]
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


WITHOUT = "import sys; sys.modules['torchmetrics'] = None; import syncfree\n"


@pytest.mark.parametrize(
    ("statement", "feature"),
    [
        ("from syncfree import F1Score", "syncfree.F1Score"),
        ("from syncfree import Accuracy", "syncfree.classification"),
        ("from syncfree import MetricCollection", "syncfree.collections"),
        ("import syncfree.image", "syncfree.image"),
        ("import syncfree.text", "syncfree.text"),
        ("import syncfree.text.wer", "syncfree.text"),
        ("syncfree.text", "syncfree.text"),
        ("syncfree.patch_torchmetrics()", "syncfree.patch_torchmetrics"),
        (
            "from syncfree.functional.classification import multiclass_f1_score",
            "syncfree.functional.classification.multiclass_f1_score",
        ),
        ("import syncfree.functional.text", "syncfree.functional.text"),
    ],
)
def test_without_torchmetrics_the_extra_is_named(statement: str, feature: str) -> None:
    last = run(WITHOUT + statement).stderr.splitlines()[-1]
    assert last.startswith(f"syncfree.errors.MissingExtraError: `{feature}` needs packages")
    assert last.endswith("pip install 'syncfree[torchmetrics]'")


@pytest.mark.parametrize("package", ["", ".functional", ".losses", ".timing"])
def test_without_torchmetrics_star_takes_what_there_is(package: str) -> None:
    result = run(f"""{WITHOUT}
from syncfree{package} import *
import importlib
for name in importlib.import_module("syncfree{package}").__all__:
    assert name in globals(), name
if not {package!r}:
    assert callable(benchmark) and functional.safe_divide and EventTimer
    assert "Accuracy" not in globals() and "image" not in globals()
""")
    assert result.returncode == 0, result.stderr


def test_star_takes_our_names_but_hides_no_module() -> None:
    result = run("""
import collections, syncfree
from syncfree import *
assert collections.OrderedDict and "__version__" not in globals()
assert {*syncfree._NAMES, "functional"} <= globals().keys()
assert not {*syncfree._MODULES} & globals().keys() - {"functional", "collections"}
assert {*syncfree._NAMES, *syncfree._MODULES} <= set(syncfree._OWN)
""")
    assert result.returncode == 0, result.stderr


def test_without_torchmetrics_nonsense_is_only_missing() -> None:
    code = """
from importlib.util import find_spec
assert not hasattr(syncfree, "nonsense") and not hasattr(syncfree, "Nonsense")
assert find_spec("syncfree.nonsense") is None
assert find_spec("syncfree.functional.image.nonsense") is None
assert not hasattr(syncfree.functional, "nonsense")
assert not {"F1Score", "Accuracy"} & set(dir(syncfree))
syncfree.functional.peak_signal_noise_ratio
"""
    result = run(WITHOUT + code)
    assert result.returncode == 0, result.stderr


def test_without_torchmetrics_help_and_completion_work() -> None:
    code = """
import pydoc, rlcompleter
assert "class EventTimer" in pydoc.render_doc(syncfree, renderer=pydoc.plaintext)
assert rlcompleter.Completer({"syncfree": syncfree}).complete("syncfree.", 0)
for name in dir(syncfree):
    getattr(syncfree, name)
"""
    result = run(WITHOUT + code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "name", ["benchmarking", "detector", "distributed", "timing", "timing.statistics"]
)
def test_modules_of_the_pages_need_no_import_of_their_own(name: str) -> None:
    result = run(f"import syncfree; print(syncfree.{name}.__name__)")
    assert result.stdout == f"syncfree.{name}\n", result.stderr
    if "." not in name:
        assert name in dir(syncfree)


@pytest.mark.parametrize("site", [*PACKAGES, *(f".{name}" for name in syncfree._MODULES)])
def test_annotations_can_be_read(site: str) -> None:
    module = importlib.import_module(f"syncfree{site}")
    names = vars(module).get("_OWN") or getattr(module, "__all__", vars(module))
    listed = [getattr(module, name) for name in names]
    classes = [each for each in listed if inspect.isclass(each)]
    members = [member for each in classes for member in vars(each).values()]
    functions = [getattr(each, "fget", each) for each in listed + members]
    for each in filter(inspect.isfunction, functions):
        typing.get_type_hints(each)
    for each in classes:
        typing.get_type_hints(each)


def test_table_of_names_is_that_of_its_version() -> None:
    if IS_TABLED:
        for module, names in table.NAMES.items():
            theirs = importlib.import_module("torchmetrics" + module.removeprefix("syncfree"))
            assert names == set(theirs.__all__)
        packages = {m.name for m in pkgutil.iter_modules(torchmetrics.__path__)}
        assert {p for p in packages if not p.startswith("_")} == table.PACKAGES
