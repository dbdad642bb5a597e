"""`syncfree compare`: which files meet, and that no failure of a thread or a batch is lost."""

import threading
from dataclasses import replace

import pytest
import torch

from comparing import Folders, distorted, picture
from syncfree.cli.compare import pipeline
from syncfree.cli.compare.buffers import BufferPool
from syncfree.cli.compare.options import CompareOptions, UsageError
from syncfree.cli.compare.pairs import common_suffix, find_pairs


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def pairs_of(folders):
    found = find_pairs(folders.ref, folders.test)
    pairs = {pair.name: pair.test.relative_to(folders.test).as_posix() for pair in found.pairs}
    problems = [(problem.kind, len(problem.files)) for problem in found.problems]
    return pairs, problems


UNPAIRED, AMBIGUOUS = ("unpaired", 1), "ambiguous"
PAIRING = {  # references, tests: pairs, problems
    "same path": ("a.png s/b.png", "a.png s/b.png", {"a.png": "a.png", "s/b.png": "s/b.png"}, []),
    "same stem": ("a.png s/b.PNG", "a.jpg s/b.JPEG", {"a.png": "a.jpg", "s/b.PNG": "s/b.JPEG"}, []),
    "dots": (
        "a.1.png a.2.png",
        "a.1.jpg a.2.jpg",
        {"a.1.png": "a.1.jpg", "a.2.png": "a.2.jpg"},
        [],
    ),
    "path before stem": ("a.png", "a.png a.jpg", {"a.png": "a.png"}, [UNPAIRED]),
    "path and stem": ("a.png b.png", "a.png b.jpg", {"a.png": "a.png", "b.png": "b.jpg"}, []),
    "two tests": ("a.png", "a.jpg a.webp", {}, [(AMBIGUOUS, 3)]),
    "two references": ("a.png a.tif", "a.jpg", {}, [(AMBIGUOUS, 3)]),
    "no guess": ("a.png a.jpg", "a.png a.webp", {"a.png": "a.png"}, [(AMBIGUOUS, 2)]),
    "other folder": ("s/a.png", "t/a.png", {}, [UNPAIRED, UNPAIRED]),
    "left over": ("a.png b.png", "a.png c.png", {"a.png": "a.png"}, [UNPAIRED, UNPAIRED]),
}


def test_names_with_a_suffix(folders):
    touch(folders.ref, "a.png", "s/b.png", "c_x4.png", "d.1.png")
    touch(folders.test, "a_x4.png", "s/b_x4.jpg", "c_x4_x4.png", "d.1_x4.png", "a.png", "e_x4.png")
    found = find_pairs(folders.ref, folders.test, "_x4")
    pairs = {pair.name: pair.test.relative_to(folders.test).as_posix() for pair in found.pairs}
    assert pairs == {
        "a.png": "a_x4.png",
        "c_x4.png": "c_x4_x4.png",
        "d.1.png": "d.1_x4.png",
        "s/b.png": "s/b_x4.jpg",
    }
    reasons = {problem.files[0]: problem.reason for problem in found.problems}
    assert reasons == {
        str(folders.test / "a.png"): "its name does not end in '_x4', as --suffix has it",
        str(folders.test / "e_x4.png"): "no image of this name in the reference folder",
    }


def test_a_suffix_that_all_have_is_named(folders):
    for name in ("a", "s/b", "b2"):
        touch(folders.ref, f"{name}.png")
        touch(folders.test, f"{name}_x4_net.png")
    assert common_suffix(folders.ref, folders.test) == "_x4_net"
    touch(folders.test, "c.png")
    assert common_suffix(folders.ref, folders.test) == ""
    touch(folders.ref, "d.png")
    assert common_suffix(folders.ref, folders.test) == ""


def test_names_that_only_look_alike_are_explained(folders):
    touch(folders.ref, "stra\u00dfe.png", "gre\u00e9/a.png", "b.png")
    touch(folders.test, "stra\u00dfe.png", "gree\u0301/a.jpg", "\u00e9.png")
    found = find_pairs(folders.ref, folders.test)
    assert [pair.name for pair in found.pairs] == ["stra\u00dfe.png"]
    reasons = {problem.files[0]: problem.reason for problem in found.problems}
    assert len(reasons) == 4
    here = reasons[str(folders.ref / "gre\u00e9/a.png")]
    assert here == (
        "no image of this name in the test folder, but one in another normal form of Unicode, as "
        r"NFD in place of NFC: 'gree\u0301/a', while this is 'gre\xe9/a'; rename one of them"
    )
    there = reasons[str(folders.test / "gree\u0301/a.jpg")]
    assert there.startswith("no image of this name in the reference folder, but one in another")
    assert r"'gre\xe9/a', while this is 'gree\u0301/a'" in there
    for lone in (folders.ref / "b.png", folders.test / "\u00e9.png"):
        assert "Unicode" not in reasons[str(lone)]


@pytest.mark.parametrize("case", PAIRING)
def test_pairing(folders, case):
    references, tests, pairs, problems = PAIRING[case]
    touch(folders.ref, *references.split())
    touch(folders.test, *tests.split())
    assert pairs_of(folders) == (pairs, problems)


def test_other_files_are_counted_by_extension(folders):
    touch(folders.ref, "a.png", "notes.txt", "more.TXT", "Makefile")
    touch(folders.test, "a.png", "a.npy")
    ignored = find_pairs(folders.ref, folders.test).ignored
    assert ignored == {".txt": 2, "(no extension)": 1, ".npy": 1}


def test_names_that_begin_with_a_dot_are_left_out(folders):
    touch(folders.ref, "a.png", "._a.png", ".cache/b.png", ".DS_Store", "s/.b.png")
    touch(folders.test, "a.png", ".c.png")
    assert pairs_of(folders) == ({"a.png": "a.png"}, [])
    assert not find_pairs(folders.ref, folders.test).ignored


@pytest.mark.parametrize(
    ("target", "reason"),
    [("gone.png", "a link to nothing"), ("link.png", "Too many levels of symbolic links")],
)
def test_a_link_to_nothing_is_unreadable(folders, target, reason):
    touch(folders.ref, "a.png")
    touch(folders.test, "a.png")
    link = folders.ref / "link.png"
    link.symlink_to(target)
    (problem,) = find_pairs(folders.ref, folders.test).problems
    assert (problem.kind, problem.files) == ("unreadable", (str(link),))
    assert problem.reason == reason


def test_links_are_followed_and_loops_reported(folders, tmp_path):
    touch(tmp_path / "elsewhere", "a.png")
    folders.ref.mkdir()
    (folders.ref / "one").symlink_to(tmp_path / "elsewhere")
    (folders.ref / "two").symlink_to(tmp_path / "elsewhere")
    (folders.ref / "loop").symlink_to(folders.ref)
    touch(folders.test, "one/a.png", "two/a.png")
    pairs, problems = pairs_of(folders)
    assert list(pairs) == ["one/a.png", "two/a.png"]
    assert problems == [("unreadable", 1)]


def test_pairing_wants_two_folders_or_two_files(folders):
    touch(folders.ref, "a.png")
    touch(folders.test, "a.png")
    with pytest.raises(UsageError, match="two folders or two files"):
        find_pairs(folders.ref, folders.test / "a.png")
    with pytest.raises(UsageError, match="no such file"):
        find_pairs(folders.ref, folders.test / "missing")


def test_an_unexpected_error_in_a_thread_is_reported(folders, monkeypatch):
    folders.add_good()
    folders.add("bad.png", picture(0), picture(0))
    load = pipeline.load_pair

    def fail(pair, *rest):
        if pair.name == "bad.png":
            raise ZeroDivisionError("a defect")
        return load(pair, *rest)

    monkeypatch.setattr(pipeline, "load_pair", fail)
    status, report = folders.compare()
    assert status == 1
    (problem,) = report["problems"]
    assert (problem["kind"], problem["reason"]) == ("internal", "ZeroDivisionError: a defect")
    assert [row["name"] for row in report["images"]] == ["good.png"]


def outcome(folders, engine, options):
    pairs = find_pairs(folders.ref, folders.test).pairs
    found = list(pipeline.compare_pairs(pairs, options, engine))
    problems = [(one.kind, one.reason) for each in found for one in each.problems]
    return [each.row.name for each in found if each.row is not None], problems


def test_a_failing_batch_costs_its_pictures_alone(folders, monkeypatch):
    folders.add_good()
    folders.add("other.png", picture(0, 40, 40), picture(1, 40, 40))
    options = CompareOptions(device="cpu")
    engine = pipeline.make_engine(options)
    submit = engine.submit

    def fail(pictures):
        if pictures[0].layout.height == 40:
            raise torch.OutOfMemoryError("too large")
        return submit(pictures)

    monkeypatch.setattr(engine, "submit", fail)
    rows, problems = outcome(folders, engine, options)
    assert rows == ["good.png"]
    assert problems == [("internal", "OutOfMemoryError: too large")]


def test_memory_that_runs_out_costs_no_picture(folders, monkeypatch):
    """Batches of 3 and more do not fit, nor does anything beside a batch under way."""
    for index in range(11):
        folders.add(f"{index:02}.png", picture(index), distorted(picture(index)))
    options = CompareOptions(device="cpu", batch=8)
    engine = pipeline.make_engine(options)
    submit, tried, under_way = engine.submit, [], []

    def fit(pictures):
        tried.append(len(pictures))
        if len(pictures) > 2 or under_way:
            raise torch.OutOfMemoryError("too large")
        under_way.append(pictures)
        return replace(submit(pictures), landed=under_way.clear)

    monkeypatch.setattr(engine, "submit", fit)
    rows, problems = outcome(folders, engine, options)
    assert sorted(rows) == [f"{index:02}.png" for index in range(11)]
    assert problems == []
    assert tried[:3] == [8, 4, 2]
    assert max(tried[3:]) == 2


def test_a_value_that_is_no_number_is_a_problem(folders, monkeypatch):
    folders.add_good()
    options = CompareOptions(device="cpu")
    engine = pipeline.make_engine(options)
    submit = engine.submit

    def spoil(pictures):
        submitted = submit(pictures)
        submitted.values[1] = torch.nan
        return submitted

    monkeypatch.setattr(engine, "submit", spoil)
    rows, ((kind, reason),) = outcome(folders, engine, options)
    assert rows == []
    assert kind == "internal"
    assert "not a number" in reason


def test_stopping_early_leaves_no_threads(folders):
    for seed in range(20):
        folders.add(f"{seed}.png", picture(seed), distorted(picture(seed)))
    before = threading.active_count()
    options = CompareOptions(device="cpu", batch=1, workers=3)
    running = pipeline.compare_pairs(find_pairs(folders.ref, folders.test).pairs, options)
    next(running)
    assert threading.active_count() > before
    running.close()
    assert threading.active_count() == before


@pytest.mark.parametrize(("grouped", "sizes"), [(10, [4, 4, 4, 4]), (2, [2] * 8)])
def test_batches_are_full_unless_too_much_waits(folders, monkeypatch, grouped, sizes):
    """Two layouts in turn; memory for `grouped` waiting pairs."""
    options = CompareOptions(device="cpu", batch=4)
    for index in range(16):
        a = picture(index, *((20, 24), (24, 20))[index % 2])
        folders.add(f"{index:02}.png", a, a)
    pairs = find_pairs(folders.ref, folders.test).pairs
    loaded = [pipeline.load_pair(pair, options, BufferPool(pinned=False)) for pair in pairs]
    monkeypatch.setattr(pipeline, "_GROUPED_BYTES", grouped * loaded[0].bytes)
    batches = list(pipeline._batches(loaded, options))
    assert [len(batch) for batch in batches] == sizes
    for batch in batches:
        assert len({each.layout for each in batch}) == 1


def test_results_come_before_all_pictures_are_loaded(folders):
    """Of many sizes, none of which fills a batch: a process that dies must not lose them all."""
    for index in range(30):
        a = picture(index, 20 + index, 20)
        folders.add(f"{index:02}.png", a, a)
    pairs = find_pairs(folders.ref, folders.test).pairs
    taken = []

    def taking():
        for pair in pairs:
            taken.append(pair)
            yield pair

    options = CompareOptions(device="cpu", batch=2, workers=1)
    outcomes = pipeline.compare_pairs(taking(), options)
    next(outcomes)
    assert len(taken) < 20
    assert len(list(outcomes)) == 29


def test_a_cpu_tells_of_each_batch_at_once(folders, monkeypatch):
    """What a process has measured is in its journal before it measures more."""
    for index in range(12):
        a = picture(index, 20, 20)
        folders.add(f"{index:02}.png", a, a)
    options = CompareOptions(device="cpu", batch=2, workers=1)
    engine = pipeline.make_engine(options)
    submit, measured = engine.submit, []

    def counting(pictures):
        measured.extend(pictures)
        return submit(pictures)

    monkeypatch.setattr(engine, "submit", counting)
    pairs = find_pairs(folders.ref, folders.test).pairs
    outcomes = pipeline.compare_pairs(pairs, options, engine)
    for told in range(1, 13):
        next(outcomes)
        assert len(measured) <= told + 1
