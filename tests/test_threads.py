"""Many threads and processes on one index.

Mirrors faiss's tests/test_omp_threads_py.py (the number of threads does not change results), and goes further: faiss
does not allow changes during a search.
"""

import multiprocessing
import subprocess
import sys
import threading
import time

import faiss
import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - has a BLAS of its own
import threadpoolctl
from helpers import Model, assert_same, filled_index, random_codes

from cccf_index import IndexCCCF, SearchParametersCCCF, _threads

SECONDS = 3


def needs_fork(test):
    """Python warns of forks in a process with threads, which is what these tests are about."""
    has_fork = "fork" in multiprocessing.get_all_start_methods()
    test = pytest.mark.skipif(not has_fork, reason="this system does not fork")(test)
    return pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")(test)


@pytest.mark.slow
def test_every_answer_during_changes_equals_the_reference_on_some_snapshot():
    """Two searchers and one writer.

    The writer notes each state before it takes effect, so what a search saw lies between the last change that was
    complete when it began and the last that had begun when it ended.
    """
    rng = np.random.default_rng(0)
    queries = random_codes(rng, 6, density=0.8)
    first = random_codes(rng, 200)
    index, model = IndexCCCF(4, 8), Model()
    index.add(first)
    model.add(first, range(200))
    history, completed = [model.copy()], [0]
    answers, errors, stop = [], [], threading.Event()

    def write():
        next_id = 200
        while not stop.is_set():
            change = rng.integers(0, 4)
            known = np.array(sorted(model.items))
            some = rng.choice(known, min(len(known), int(rng.integers(1, 60))), replace=False)
            if change <= 1:
                codes = random_codes(rng, int(rng.integers(1, 60)))
                ids = np.arange(next_id, next_id + len(codes))
                next_id += len(codes)
                model.add(codes, ids)
                apply = (index.add, codes)
            elif change == 2 and len(known) > 150:
                model.remove(some)
                apply = (index.remove_ids, some)
            else:
                codes = random_codes(rng, len(some))
                model.add(codes, some)
                apply = (index.update_vectors, some, codes)
            history.append(model.copy())
            apply[0](*apply[1:])
            completed[0] = len(history) - 1

    def search(threads):
        params = SearchParametersCCCF(num_threads=threads)
        while not stop.is_set():
            earliest = completed[0]
            found = index.search(queries, 9, params=params)
            answers.append((earliest, len(history), found))

    def guarded(work, *arguments):
        try:
            work(*arguments)
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=job) for job in ((write,), (search, 1), (search, 2))]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    stop.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    assert len(history) > 20
    expected = {}
    for earliest, latest, (D, I) in answers[:: max(1, len(answers) // 500)]:
        for version in range(earliest, latest):
            if version not in expected:
                expected[version] = history[version].search(queries, 9)
            if np.array_equal(expected[version][1], I) and np.array_equal(expected[version][0], D):
                break
        else:
            pytest.fail(f"an answer equals none of the states {earliest} to {latest - 1}")


def test_two_indexes_can_merge_into_each_other_without_a_deadlock():
    codes = random_codes(np.random.default_rng(0), 10)
    left, right = filled_index(codes), IndexCCCF(4, 8)
    right.add_with_ids(codes, np.arange(10, 20))

    def move(target, source):
        for _ in range(200):
            target.merge_from(source)

    jobs = [threading.Thread(target=move, args=pair, daemon=True) for pair in ((left, right), (right, left))]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(timeout=30)
        assert not job.is_alive()
    assert sorted([*left.ids, *right.ids]) == list(range(20))


def search_in_child(index, codes, queue):
    queue.put(index.search(codes, 5, params=SearchParametersCCCF(num_threads=2)))


@needs_fork
def test_a_forked_child_can_search_with_threads():
    codes = random_codes(np.random.default_rng(0), 300)
    index = filled_index(codes)
    expected = index.search(codes, 5, params=SearchParametersCCCF(num_threads=2))  # the parent's pool has threads
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=search_in_child, args=(index, codes, queue), daemon=True)
    child.start()
    found = queue.get(timeout=60)
    child.join(timeout=60)
    assert_same(found, expected)


@needs_fork
def test_a_child_forked_during_a_change_can_change_its_own_index():
    codes = random_codes(np.random.default_rng(0), 10)
    index = filled_index(codes)
    locked, done = threading.Event(), threading.Event()

    def hold():
        with index._lock:
            locked.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(60)
    child = multiprocessing.get_context("fork").Process(target=index.add, args=(codes,), daemon=True)
    child.start()
    child.join(timeout=30)
    done.set()
    holder.join()
    assert child.exitcode == 0


def test_reconstruct_n_sees_one_state():
    codes = random_codes(np.random.default_rng(0), 400)
    index = filled_index(codes)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            index.remove_ids(np.arange(200))
            index.add_with_ids(codes[:200], np.arange(200))

    writer = threading.Thread(target=change)
    writer.start()
    try:
        sizes = {len(index.reconstruct_n()) for _ in range(100)}
    finally:
        stop.set()
        writer.join()
    assert sizes <= {200, 400}


def test_search_works_while_the_interpreter_exits():
    script = (
        "import atexit, numpy as np, cccf_index as ci; "
        "codes = ci.CompositionalCodes.from_signs(np.ones((100, 2, 8))); "
        "index = ci.IndexCCCF(2, 8); index.add(codes); params = ci.SearchParametersCCCF(num_threads=2); "
        "index.search(codes, 3, params=params); "
        "atexit.register(lambda: print(index.search(codes, 3, params=params)[1].sum()))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert out.stdout == "300\n"


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 1000])
@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_chunks_cover_all_rows_once(n, n_threads):
    seen = np.zeros(n, dtype=int)

    def work(start, stop):
        assert start < stop
        seen[start:stop] += 1

    _threads.run_chunks(work, n, n_threads)
    assert (seen == 1).all()


def test_an_error_in_any_chunk_reaches_the_caller():
    def work(start, stop):
        if stop == 1000:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _threads.run_chunks(work, 1000, 4)


@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_slow_rows_come_in_smaller_chunks_than_fast_ones(n_threads, monkeypatch):
    monkeypatch.setattr(_threads, "CHUNK_SECONDS", 0.005)
    sizes = {}
    for pause in (0.0, 0.001):
        chunks = []

        def work(start, stop, pause=pause, chunks=chunks):
            time.sleep(pause * (stop - start))
            chunks.append(stop - start)

        _threads.run_chunks(work, 500, n_threads, least=2, most=100)
        sizes[pause] = max(chunks)
    assert sizes[0.001] <= 6
    assert sizes[0.0] >= 500 // (4 * n_threads) // 2


def test_an_error_stops_the_other_threads_after_their_chunk():
    begun = []

    def work(start, stop):
        begun.append(start)
        if len(begun) == 2:
            raise ZeroDivisionError
        time.sleep(0.01)

    with pytest.raises(ZeroDivisionError):
        _threads.run_chunks(work, 10_000, 2, least=1, most=1)
    assert len(begun) < 10


def test_an_interrupt_stops_all_threads_and_leaves_the_pool_usable():
    begun, ended = [], []

    def work(start, stop):
        begun.append(start)
        if threading.current_thread() is threading.main_thread() and len(begun) > 4:
            raise KeyboardInterrupt
        time.sleep(0.01)
        ended.append(start)

    with pytest.raises(KeyboardInterrupt):
        _threads.run_chunks(work, 10_000, 3, least=1, most=1)
    assert len(begun) < 20
    assert len(ended) == len(begun) - 1  # no thread is left behind
    seen = np.zeros(1000, dtype=int)

    def count(start, stop):
        seen[start:stop] += 1

    _threads.run_chunks(count, 1000, 3)
    assert (seen == 1).all()


def blas_threads():
    """The number of threads of each BLAS library, and that of OpenMP, which is faiss's."""
    return {library["filepath"]: library["num_threads"] for library in threadpoolctl.threadpool_info()}


@pytest.fixture
def two_blas_threads():
    """BLAS on two threads, as on a machine with two cores; in this process it may be on one."""
    before = [(library, library.get_num_threads()) for library in _threads._find_blas(len(sys.modules))]
    openmp = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    for library, _ in before:
        _threads._set_blas_threads(library, 2)
    yield blas_threads()
    faiss.omp_set_num_threads(openmp)
    for library, n in before:
        _threads._set_blas_threads(library, n)


def is_limited():
    return all(library.get_num_threads() == 1 for library in _threads._find_blas(len(sys.modules)))


def test_blas_has_one_thread_in_the_block_and_the_callers_number_afterwards(two_blas_threads):
    assert not is_limited()
    with _threads.limit_blas():
        assert is_limited()
        assert faiss.omp_get_max_threads() == 2
        with _threads.limit_blas():
            assert is_limited()
        assert is_limited()
    assert blas_threads() == two_blas_threads


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_restores_the_threads_of_blas(error, two_blas_threads):
    with pytest.raises(error), _threads.limit_blas():
        raise error
    assert blas_threads() == two_blas_threads


def test_an_interrupt_while_blas_is_restored_does_not_leave_it_limited(two_blas_threads, monkeypatch):
    library = _threads._find_blas(len(sys.modules))[0]
    restore, interrupts = library.set_num_threads, [KeyboardInterrupt]

    def interrupted(n):
        if n > 1 and interrupts:
            raise interrupts.pop()
        restore(n)

    monkeypatch.setattr(library, "set_num_threads", interrupted)
    with pytest.raises(KeyboardInterrupt), _threads.limit_blas():
        pass
    assert blas_threads() == two_blas_threads


def test_the_last_of_two_threads_restores_the_threads_of_blas(two_blas_threads):
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with _threads.limit_blas():
            inside.set()
            leave.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert inside.wait(60)
        with _threads.limit_blas():
            pass
        assert is_limited()
        with _threads.limit_blas():
            leave.set()
            other.join()  # the first to come leaves first
            assert is_limited()
        assert blas_threads() == two_blas_threads
    finally:
        leave.set()
        other.join()
    assert blas_threads() == two_blas_threads


def test_a_number_of_blas_threads_that_was_set_meanwhile_stays(two_blas_threads):
    library = _threads._find_blas(len(sys.modules))[0]
    with _threads.limit_blas():
        _threads._set_blas_threads(library, 3)
    assert library.get_num_threads() == 3


@needs_fork
def test_a_child_forked_while_another_thread_trains_has_the_callers_blas_threads(two_blas_threads):
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with _threads.limit_blas():
            inside.set()
            leave.wait(60)

    def report(queue):
        queue.put(blas_threads())

    other = threading.Thread(target=hold)
    other.start()
    try:
        assert inside.wait(60)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=report, args=(queue,), daemon=True)
        child.start()
        found = queue.get(timeout=60)
        child.join(timeout=60)
    finally:
        leave.set()
        other.join()
    assert found == two_blas_threads


def test_training_limits_blas_and_a_search_does_not(two_blas_threads, monkeypatch):
    limited = []
    settle = _threads._settle_blas

    def watch():
        settle()
        limited.append(is_limited())

    monkeypatch.setattr(_threads, "_settle_blas", watch)
    vectors = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    index = IndexCCCF.from_embeddings(vectors, vectors, 2, 4, verbose=False)
    assert any(limited)
    assert not limited[-1]
    limited.clear()
    index.search(vectors, 5)
    index.search(vectors, 5, params=SearchParametersCCCF(coded=True))
    assert not limited
    assert blas_threads() == two_blas_threads
