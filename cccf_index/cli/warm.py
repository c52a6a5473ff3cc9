"""``cccf warm``: compile kernels ahead of time."""

from __future__ import annotations

import argparse

from tqdm import tqdm

from cccf_index.cli._console import Console
from cccf_index.kernels.cache import describe
from cccf_index.warming import EXTRAS, QUERIES, SHAPES, list_steps, run_steps

NAME, HELP = "warm", "compile kernels ahead of time, for images and servers"
EXAMPLES = """  cccf warm                                        searches of 8x16 codes
  cccf warm 8x16 1x128 --coded                     coded queries only, two shapes
  cccf warm --refine --quantizer                   all that an index of embeddings needs
  CCCF_CACHE_DIR=/cache cccf warm --all            everything, to a folder of your choice
"""
HELPS = {
    "coded": "only coded queries, unless --real is given too",
    "real": "only real-valued queries and indexes of vectors, unless --coded is given too",
    "float": "also float weights (scale=None)",
    "other": "also range_search, prune=False and shortlist",
    "refine": "also re-ranking with the original vectors",
    "quantizer": "also learning codes from embeddings, and encoding",
    "models": "also training the models, and encoding new users",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "shapes",
        nargs="*",
        metavar="SHAPE",
        help="components x bits of your codes (default: 8x16, searched by coded and real-valued queries)",
    )
    for name in (*QUERIES, *EXTRAS):
        parser.add_argument(f"--{name}", action="store_true", help=HELPS[name])
    parser.add_argument("--all", action="store_true", help="everything for these shapes")


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Compile, print the seconds of each step, and say where the kernels are kept."""
    queries, extras = (
        [name for name in names if getattr(arguments, name) or arguments.all] for names in (QUERIES, EXTRAS)
    )
    steps = list_steps(arguments.shapes or SHAPES, queries or QUERIES, extras)
    width, done = max(len(name) for name, _ in steps), []
    with tqdm(total=len(steps), desc="kernels", unit=" steps", disable=True if console.quiet else None) as progress:
        for step in run_steps(steps):
            done.append(step)
            progress.update()
            if not console.as_json and not console.quiet:
                counts = f"{step.compiled:3} compiled {step.loaded:3} from the cache"
                tqdm.write(f"{step.name:{width}} {step.seconds:7.2f} s {counts}")
    compiled, kept = sum(step.compiled for step in done), sum(step.kept for step in done)
    report = describe()
    if compiled > kept or not report.reads:
        problem = f" ({report.problem})" if report.problem else ""
        raise OSError(
            f"compiled, but nowhere to keep {compiled - kept} of {compiled} kernels{problem}. "
            "Set CCCF_CACHE_DIR to a folder that can be written."
        )
    seconds, loaded = sum(step.seconds for step in done), sum(step.loaded for step in done)
    kernels = f"{compiled} kernels compiled and {loaded} from the cache in {seconds:.1f} s"
    value = {"steps": [step._asdict() for step in done], "seconds": seconds, **report._asdict()}
    console.print_result(f"{kernels}: {report.writes or ', '.join(report.reads)}", value)
