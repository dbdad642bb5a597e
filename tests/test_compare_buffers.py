"""Memory of `syncfree compare`: used again, never shared, always given back."""

import threading

import pytest
import torch

from comparing import Folders, distorted, picture
from syncfree.cli.compare import buffers
from syncfree.cli.compare.buffers import BufferPool, Reuse, Scratch
from syncfree.cli.compare.engine import make_engine
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.pairs import find_pairs
from syncfree.cli.compare.pipeline import compare_pairs


@pytest.fixture
def folders(tmp_path):
    """Nine pairs, of 8 bits in color."""
    found = Folders(tmp_path)
    for seed in range(9):
        found.add(f"{seed}.png", picture(seed), distorted(picture(seed)))
    return found


def test_a_pool_gives_memory_again():
    pool = BufferPool(pinned=False)
    first = pool.take(1000)
    where = first.view((1000,), torch.uint8).data_ptr()
    second = pool.take(1000)
    assert second.view((1,), torch.uint8).data_ptr() != where
    first.release()
    first.release()  # once is enough
    third = pool.take(900)
    assert third.view((9, 25), torch.float32).data_ptr() == where
    assert (pool.reuse.made, pool.reuse.reused) == (2, 1)
    with pytest.raises(AssertionError):
        first.view((1,), torch.uint8)


def test_a_pool_keeps_no_more_than_it_may(monkeypatch):
    monkeypatch.setattr(buffers, "_IDLE_BYTES", 10_000)
    pool = BufferPool(pinned=False)
    for lease in [pool.take(4096) for _ in range(4)]:
        lease.release()
    made = pool.reuse.made
    leases = [pool.take(4096) for _ in range(4)]
    assert pool.reuse.made == made + 2
    assert pool.reuse.bytes == 4 * 4096
    del leases


def test_threads_never_share_memory():
    pool = BufferPool(pinned=False)
    wrong = []

    def work(number):
        for size in (600, 5000, 600) * 100:
            lease = pool.take(size)
            memory = lease.view((size,), torch.uint8).fill_(number)
            if not (memory == number).all():
                wrong.append(number)
            lease.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.reuse.made <= 8


def test_scratch_grows_and_is_used_again():
    reuse = Reuse("memory")
    scratch = Scratch(torch.device("cpu"), reuse)
    where = scratch.view((100, 100), torch.float32).data_ptr()
    assert scratch.view((2, 3), torch.uint8).data_ptr() == where
    scratch.view((200, 100), torch.float32)
    assert (reuse.made, reuse.reused) == (2, 1)
    assert reuse.bytes == 81920
    scratch.drop()
    assert reuse.bytes == 0


def test_every_lease_is_given_back(folders):
    """Also those of pictures that cannot be compared."""
    folders.add("wide.png", picture(0, 24, 40), picture(0))
    (folders.ref / "broken.png").write_bytes(b"\x89PNG\r\n")
    (folders.test / "broken.png").write_bytes(b"\x89PNG\r\n")
    options = CompareOptions(device="cpu", workers=1, batch=2, maps=folders.ref.with_name("maps"))
    engine = make_engine(options)
    outcomes = list(compare_pairs(find_pairs(folders.ref, folders.test).pairs, options, engine))
    assert sum(outcome.row is not None for outcome in outcomes) == 9
    assert engine.buffers.reuse.made + engine.buffers.reuse.reused == 9
    idle = sum(len(each) for each in engine.buffers._idle.values())
    assert idle == engine.buffers.reuse.made
