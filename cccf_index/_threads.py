"""The one way to use cores: chunks of rows over a thread pool, while the kernels release the GIL."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

import faiss

CHUNK_SECONDS = 0.05  # an interrupt waits for the chunks that are being worked on
_pool: ThreadPoolExecutor | None = None
_is_child = False
_locks: WeakSet[Lock] = WeakSet()
_blas_users: dict[object, int] = {}  # each block of `limit_blas`, and its thread
_limited: list[tuple[Any, int]] = []  # libraries that are limited, and the caller's number of threads


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
    own = threading.get_ident()
    for user in [user for user, thread in _blas_users.items() if thread != own]:
        del _blas_users[user]
    _settle_blas()


_blas_lock = Lock()


@functools.lru_cache(maxsize=1)
def _find_blas(n_modules: int) -> list[Any]:
    """Return the BLAS libraries of numpy and scipy, as threadpoolctl controls them.

    One on OpenMP, as faiss's, is left alone: its number of threads is that of ``faiss.omp_set_num_threads``. Looking
    for them takes a millisecond, so it is repeated only when modules were imported, which may have loaded more.
    """
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in found if getattr(library, "threading_layer", None) != "openmp"]


def _settle_blas() -> None:
    """Limit BLAS to one thread if there is a user, else restore it; can be repeated if it was interrupted."""
    with _blas_lock:
        if not _blas_users:
            while _limited:
                library, before = _limited[-1]
                if library.get_num_threads() == 1:  # else someone has set it meanwhile
                    _set_blas_threads(library, before)
                _limited.pop()
        elif not _limited:
            for library in _find_blas(len(sys.modules)):
                _limited.append((library, library.get_num_threads()))
                _set_blas_threads(library, 1)


def _set_blas_threads(library: Any, n: int) -> None:
    library.set_num_threads(n)
    if hasattr(library, "clear_controlling_thread"):  # else threadpoolctl 3.8 lets no other thread restore it
        library.clear_controlling_thread()


@contextmanager
def limit_blas() -> Iterator[None]:
    """Let BLAS compute on one thread in this block, or decorated function: its idle threads spin and take our cores.

    The setting belongs to the process. The first of several blocks, nested or in other threads, changes it, and the
    last one restores it.
    """
    user = object()
    try:
        _blas_users[user] = threading.get_ident()
        _settle_blas()
        yield
    finally:
        _blas_users.pop(user, None)
        try:
            _settle_blas()
        except KeyboardInterrupt:
            _settle_blas()
            raise


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
    does not hold up the others. Slow rows come in smaller chunks, so `work` must treat each row alike in any chunk. The
    caller's thread takes its share. After an error or an interrupt no chunk is begun; it is raised here when all
    threads have finished theirs.
    """
    global _pool
    if n <= least or (n_threads == 1 and n <= 2 * least):
        if n:
            work(0, n)
        return
    n_chunks = max(min(-(-n // least), 4 * n_threads if n_threads > 1 else 1), -(-n // most))
    chunks = _Chunks(work, n, -(-n // n_chunks), least)
    n_threads = min(n_threads, n_chunks)
    if n_threads == 1:
        chunks.take()
        return
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=256, thread_name_prefix="cccf")
    futures: list[Future[None]] = []
    try:
        with suppress(RuntimeError):  # at the exit of the interpreter no thread can be had any more
            for _ in range(n_threads - 1):
                futures.append(_pool.submit(chunks.take))
        chunks.take()
    finally:
        chunks.is_stopped = True  # nothing is left, or nothing may be begun
        _wait(futures)  # for all, so that no thread writes after we return
    for future in futures:
        if not future.cancelled():
            future.result()


class _Chunks:
    """Ranges of rows that threads take and work on, until none is left or one of them fails."""

    def __init__(self, work: Callable[[int, int], None], n: int, size: int, least: int) -> None:
        self.work, self.n, self.size = work, n, size
        self.first = size if size <= 2 * least else least  # rows of a chunk whose cost is not known yet
        self.is_stopped = False
        self._next = 0
        self._lock = threading.Lock()

    def take(self) -> None:
        rows = self.first
        try:
            while not self.is_stopped:
                with self._lock:
                    start, stop = self._next, min(self._next + rows, self.n)
                    self._next = stop
                if start == stop:
                    return
                begin = time.perf_counter()
                self.work(start, stop)
                seconds = max(time.perf_counter() - begin, 1e-9)
                rows = max(self.first, min(self.size, int((stop - start) * CHUNK_SECONDS / seconds)))
        except BaseException:
            self.is_stopped = True
            raise


def _wait(futures: list[Future[None]]) -> None:
    """Wait until all have finished, although a Ctrl-C may come meanwhile; a second one gives up."""
    interrupts: list[BaseException] = []
    for future in futures:
        while True:
            try:
                if future.cancel() or future.done():  # the former if no thread of the pool has begun with it
                    break
                future.exception()
            except KeyboardInterrupt as error:
                interrupts.append(error)
                if len(interrupts) > 1:
                    raise
    if interrupts:
        raise interrupts[0]
