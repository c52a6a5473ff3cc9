"""The command ``cccf``: a demo, and training, building, searching, recommending, evaluating from files to files.

A command is a module with `NAME`, `HELP`, `EXAMPLES`, ``add_arguments(parser)`` and ``run(arguments, console)``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NoReturn

import faiss

from cccf_index.cli import bench, build, demo, evaluate, inspect, recommend, search, train
from cccf_index.cli._console import Console
from cccf_index.cli._files import positive

COMMANDS: tuple[Any, ...] = (demo, train, build, search, recommend, evaluate, inspect, bench)
FAILED, INTERRUPTED, TERMINATED = 1, 130, 143  # argparse ends a wrong command line by 2
EPILOG = """examples:
  cccf demo                                        the whole way on made-up ratings, in a minute
  cccf train ratings.csv -o model                  learn codes from your own
  cccf build model -o items.cccf                   put them into an index
  cccf search items.cccf --users 12,15 -k 10       and ask it
"""


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("of every command")
    group.add_argument("--threads", type=positive, metavar="N", help="cores to use (default: all)")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of everything random (default: 0)")
    group.add_argument("--quiet", action="store_true", help="only results and errors, no progress")
    group.add_argument("--json", action="store_true", help="print the result as JSON")
    group.add_argument("--debug", action="store_true", help="show where in the code an error comes from")
    return common


def _parser() -> argparse.ArgumentParser:
    layout: Any = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="cccf", description="Compositional codes for recommenders.", epilog=EPILOG, formatter_class=layout
    )
    parser.add_argument("--version", action="version", version=f"cccf-index {version('cccf-index')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    common = _common()
    for command in COMMANDS:
        own = commands.add_parser(
            command.NAME,
            help=command.HELP,
            description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
            epilog=f"examples:\n{command.EXAMPLES}",
            parents=[common],
            formatter_class=layout,
        )
        command.add_arguments(own)
        own.set_defaults(run=command.run, usage=own.error)
    return parser


def _told(error: BaseException) -> str:
    """Return an error in one line."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.strerror}: {os.fspath(error.filename)}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}"
    return " ".join(str(error).split()) or type(error).__name__


def _terminated(*_: Any) -> NoReturn:
    raise SystemExit(TERMINATED)  # so that what is being written is removed, as by Ctrl-C


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code: 0, or 1 for an error, 2 for a wrong command line, 130 for Ctrl-C."""
    arguments = _parser().parse_args(argv)
    console = Console(arguments.quiet, arguments.json)
    warnings.showwarning = lambda message, *_, **__: console.note(f"warning: {message}")
    if hasattr(signal, "SIGTERM"):
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, _terminated)
    if arguments.threads:
        faiss.omp_set_num_threads(arguments.threads)
    try:
        if arguments.seed < 0:
            raise ValueError(f"--seed must be at least 0, got {arguments.seed}.")
        arguments.run(arguments, console)
        sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        if arguments.debug:
            raise
        print(f"\ncccf {arguments.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # of `cccf ... | head`
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if arguments.debug:
            raise
        print(f"cccf {arguments.command}: error: {_told(error)}", file=sys.stderr)
        if not isinstance(error, (ValueError, TypeError, OSError, ImportError, MemoryError)):
            print("This looks like a mistake of ours: --debug shows where it comes from.", file=sys.stderr)
        return FAILED
