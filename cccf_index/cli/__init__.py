"""The command line tool ``cccf``: demo, train, build, search, recommend, evaluate, inspect, bench, warm.

A command is a module with `NAME`, `HELP`, `EXAMPLES`, ``add_arguments(parser)`` and ``run(arguments, console)``;
`_main.py` lists them. This file imports next to nothing, so that Ctrl-C is answered while numpy, numba and faiss load.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

TYPE_CHECKING = False  # type checkers read it as True; `typing` itself takes longer than all other imports here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # as shells say it


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C.

    Without `argv` this is the program itself: it takes the words of the command line, and handles signals until it
    exits.
    """
    is_program = (
        argv is None
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    words = sys.argv[1:] if argv is None else argv
    try:
        if is_program:
            signal.signal(signal.SIGINT, _exit_at_once)
        from cccf_index.cli._main import run

        if is_program:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = _repeat_interrupt
        return run(words)
    except KeyboardInterrupt:
        if "--debug" in words:
            raise
        code = _report_interrupt(words, "\n")  # below a progress bar
        if is_program:
            _flush_output()
            os._exit(code)  # without waiting for threads, which may be compiling a kernel
        return code
    except SystemExit as error:
        if is_program and error.code == TERMINATED:
            _flush_output()
            os._exit(TERMINATED)  # in the same way
        raise
    finally:
        if is_program:
            signal.signal(signal.SIGINT, _exit_at_once)
        _flush_output()


def _exit_at_once(*_: Any) -> None:
    """End the process while modules are imported, or while it exits.

    Nothing needs to be cleaned up then, and an exception could be raised in a callback, which would print and lose it.
    """
    os._exit(_report_interrupt(sys.argv[1:]))


def _report_interrupt(words: Sequence[str], before: str = "") -> int:
    try:  # noqa: SIM105 - contextlib would be one more import before Ctrl-C is handled
        print(f"{before}{' '.join(['cccf', *words[:1]])}: interrupted", file=sys.stderr, flush=True)
    except OSError:  # nobody reads any more
        pass
    return INTERRUPTED


def _repeat_interrupt(unraisable: Any) -> None:
    """Repeat a signal that came in a destructor or a callback, where Python prints and forgets exceptions."""
    numbers = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}
    if unraisable.exc_type not in numbers:
        sys.__unraisablehook__(unraisable)
        return
    import _thread

    _thread.start_new_thread(_signal_soon, (numbers[unraisable.exc_type],))  # here it would be lost again


def _signal_soon(number: int) -> None:
    import time

    time.sleep(0.02)
    if hasattr(signal, "pthread_kill"):  # a real signal, which also ends a sleep; Windows has none
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        signal.raise_signal(number)


def _flush_output() -> None:
    if sys.stdout is None:  # closed by the caller
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed, as in `cccf ... | head`; Python flushes once more when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
