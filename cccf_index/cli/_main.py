"""The commands of ``cccf``, their parser, and what happens when one ends or fails."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import faiss

from cccf_index import __version__
from cccf_index.cli import bench, build, demo, evaluate, inspect, recommend, search, train, warm
from cccf_index.cli._console import Console
from cccf_index.cli._files import parse_positive
from cccf_index.cli._flags import make_translator

COMMANDS: tuple[Any, ...] = (demo, train, build, search, recommend, evaluate, inspect, bench, warm)
FAILED = 1  # argparse exits with 2 on a usage error
EPILOG = """examples:
  cccf demo                                        see the whole workflow on synthetic ratings, in a minute
  cccf train ratings.csv -o model                  learn codes from your ratings
  cccf build model -o items.cccf                   build an index from the codes
  cccf search items.cccf --users 12,15 -k 10       search it
"""


def _make_common_parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("options of every command")
    group.add_argument("--threads", type=parse_positive, metavar="N", help="number of threads (default: all cores)")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (default: 0)")
    group.add_argument("--quiet", action="store_true", help="print only results and errors, no progress")
    group.add_argument("--json", action="store_true", help="print the result as JSON")
    group.add_argument("--debug", action="store_true", help="show the full traceback of an error")
    return common


def _make_parser() -> argparse.ArgumentParser:
    layout: Any = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="cccf",
        description="Train, search and evaluate compositional codes for recommenders.",
        epilog=EPILOG,
        formatter_class=layout,
    )
    parser.add_argument("--version", action="version", version=f"cccf-index {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    common = _make_common_parser()
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
        own.set_defaults(run=command.run, usage=own.error, translate=make_translator(own))
    return parser


def _describe_error(error: BaseException) -> str:
    """Return an error as one line."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.strerror}: {os.fspath(error.filename)}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}"
    return " ".join(str(error).split()) or type(error).__name__


def _terminate(*_: Any) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)  # an exception, so that unfinished outputs are removed as after Ctrl-C


def run(argv: Sequence[str]) -> int:
    """Run a command and return its exit code, see `cccf_index.cli.main`."""
    arguments = _make_parser().parse_args(argv)
    console = Console(arguments.quiet, arguments.json)
    warnings.showwarning = lambda message, *_, **__: console.note(f"warning: {arguments.translate(str(message))}")
    if hasattr(signal, "SIGTERM"):
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, _terminate)
    if arguments.threads:
        faiss.omp_set_num_threads(arguments.threads)
    try:
        if arguments.seed < 0:
            raise ValueError(f"--seed must be at least 0, got {arguments.seed}.")
        arguments.run(arguments, console)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:  # the reader has closed, as in `cccf ... | head`
        return FAILED
    except Exception as error:
        if arguments.debug:
            raise
        print(f"cccf {arguments.command}: error: {arguments.translate(_describe_error(error))}", file=sys.stderr)
        if not isinstance(error, (ValueError, TypeError, OSError, ImportError, MemoryError)):
            print("This looks like a bug; run again with --debug and report it.", file=sys.stderr)
        return FAILED
