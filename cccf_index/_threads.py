"""The one way to use cores: chunks of rows over a thread pool, while the kernels release the GIL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from weakref import WeakSet

import faiss

_pool: ThreadPoolExecutor | None = None
_is_child = False
_locks: WeakSet[Lock] = WeakSet()


class Lock:
    """A reentrant lock that is free in a forked child, where the thread that held it does not exist.

    It guards what changes in one step at the end, the state of an index: the child sees it before or after.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _free(self) -> None:
        self._lock = threading.RLock()


def _reset_after_fork() -> None:
    """Forget, in a forked child, the threads of the parent and the locks that they held."""
    global _pool, _is_child
    _pool, _is_child = None, True
    for lock in list(_locks):
        lock._free()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


@contextmanager
def faiss_threads() -> Iterator[None]:
    """Let faiss compute on one thread in a forked child, where OpenMP would wait for threads of its parent."""
    before = faiss.omp_get_max_threads()
    if _is_child:
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        if _is_child:
            faiss.omp_set_num_threads(before)


def thread_count(requested: int) -> int:
    """Return `requested`, or what ``faiss.omp_set_num_threads`` allows when it is 0."""
    return requested or int(faiss.omp_get_max_threads())


def run_chunks(work: Callable[[int, int], None], n: int, n_threads: int, least: int = 16, most: int = 256) -> None:
    """Call ``work(start, stop)`` on consecutive ranges that cover ``range(n)``, on up to `n_threads` threads.

    Chunks hold `least` to `most` rows, and there are at least four a thread where that allows it, so that a slow core
    does not hold up the others. The caller's thread takes its share. An error in any chunk is raised here.
    """
    global _pool
    if n <= least or (n_threads == 1 and n <= most):
        if n:
            work(0, n)
        return
    n_chunks = max(min(-(-n // least), 4 * n_threads if n_threads > 1 else 1), -(-n // most))
    bounds = [n * i // n_chunks for i in range(n_chunks + 1)]
    waiting = iter(list(pairwise(bounds)))

    def take_chunks() -> None:
        for start, stop in waiting:  # next() of a list iterator is atomic under the GIL
            work(start, stop)

    n_threads = min(n_threads, n_chunks)
    if n_threads > 1 and _pool is None:
        _pool = ThreadPoolExecutor(max_workers=256, thread_name_prefix="cccf")
    futures = []
    with suppress(RuntimeError):  # at the exit of the interpreter no thread can be had any more
        futures = [_pool.submit(take_chunks) for _ in range(n_threads - 1)] if _pool else []
    try:
        take_chunks()
    finally:
        for future in futures:
            future.exception()  # wait for all, so that no thread writes after we return
    for future in futures:
        future.result()
