"""``cccf inspect``: show what an index holds, or how many bytes per item embeddings need."""

from __future__ import annotations

import argparse
from typing import Any

from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, format_table
from cccf_index.cli._files import parse_positive, read_vectors
from cccf_index.cli._outputs import check_file, replace_file
from cccf_index.curves import BUDGETS, recall_curve
from cccf_index.inspection import inspect_index
from cccf_index.plots import check_plot, plot_inspection, plot_recall_curve

NAME, HELP = "inspect", "show what an index holds, or how many bytes per item embeddings need"
EXAMPLES = """  cccf inspect items.cccf
  cccf inspect items.cccf --plot items.png
  cccf inspect --embeddings items.npy --queries users.npy --plot curve.png
"""
MAX_GROUPS = 8  # shown
LENGTHS = (10, 100, 1000)  # of lists whose recall is measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("index", nargs="?", metavar="INDEX", help="file written by `cccf build` or `write_index`")
    parser.add_argument(
        "--embeddings", metavar="FILE", help="item vectors, .npy: measure recall against bytes per item"
    )
    parser.add_argument("--queries", metavar="FILE", help="with --embeddings: user vectors, .npy")
    parser.add_argument(
        "--bytes",
        type=float,
        nargs="+",
        metavar="B",
        help="with --embeddings: bytes per item to try (default: 16 to 96)",
    )
    parser.add_argument(
        "-k", type=parse_positive, help="items per query (default: 10, and with --embeddings 10, 100 and 1,000)"
    )
    parser.add_argument("--plot", metavar="FILE", help="also draw a plot: .png, .svg or .pdf")
    parser.add_argument("--force", action="store_true", help="replace an existing plot")


def _describe_vectors(about: dict[str, Any]) -> str:
    return f"{about['storage']}, {about['dimensions']} dimensions, to re-rank {about['k_factor']:g} times k items"


def _measure_curve(arguments: argparse.Namespace, console: Console) -> None:
    """Print and draw recall against bytes per item."""
    items, users = read_vectors(arguments.embeddings), read_vectors(arguments.queries)
    lengths = [k for k in LENGTHS if k <= len(items)] if arguments.k is None else [arguments.k]
    options = {"seed": arguments.seed, "verbose": not console.quiet}
    curve = recall_curve(items, users, arguments.bytes or BUDGETS, lengths, **options)
    rows = [("bytes asked", "bytes of the index", *(f"recall at {k:,}" for k in lengths), "and with coded queries")]
    for point in curve:
        coded = ", ".join(f"{point['recall, coded queries'][k]:.3f}" for k in lengths)
        shares = (f"{point['recall'][k]:.3f}" for k in lengths)
        rows.append((f"{point['bytes_per_item']:g}", f"{point['bytes']:.1f}", *shares, coded))
    if arguments.plot:
        with replace_file(arguments.plot) as temporary:
            plot_recall_curve(curve, temporary)
    console.print_result(format_table(rows), {"curve": curve})


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Inspect the index, print the report and draw it."""
    if (arguments.index is None) == (arguments.embeddings is None):
        arguments.usage("give either an INDEX or --embeddings FILE with --queries FILE")
    if (arguments.embeddings is None) != (arguments.queries is None):
        arguments.usage("--embeddings and --queries need each other")
    if arguments.plot:
        check_file(arguments.plot, arguments.force)
        check_plot(arguments.plot)
    if arguments.embeddings is not None:
        _measure_curve(arguments, console)
        return
    k = arguments.k or 10
    catalogue = Catalogue.load(arguments.index, mmap=True)
    report = inspect_index(catalogue.index, catalogue.queries, k, arguments.seed)
    lines = [
        ("items", f"{report['items']:,}"),
        ("users", f"{len(catalogue.user_ids):,}"),
        ("components x bits", f"{report['components']} x {report['bits']}"),
        ("weight scale", f"{report['scale']}"),
        *(("vectors", _describe_vectors(report["vectors"])) for _ in range(int("vectors" in report))),
        ("active components per item", f"{report['active']:.2f} (sparsity {report['sparsity']:.2f})"),
        *((f"bytes per item: {part}", f"{size:.2f}") for part, size in report["bytes per item"].items()),
        ("segments, deleted items", f"{report['segments']}, {report['deleted']}"),
        ("groups, cells, blocks of 64", f"{len(report['groups'])}, {report['cells']}, {report['blocks']}"),
    ]
    for group in report["groups"][:MAX_GROUPS]:
        lines.append((f"  components {','.join(map(str, group['components'])) or 'none'}", f"{group['items']:,} items"))
    if len(report["groups"]) > MAX_GROUPS:
        lines.append((f"  and {len(report['groups']) - MAX_GROUPS} more groups", ""))
    for kind in report["dense"]:
        parts = [f"{n} x {bits}" for bits, n in kind["dimensions by bits"].items()]
        name = f"  dense, {' + '.join(parts)} bits"
        lines.append((name, f"{kind['items']:,} items"))
    if report["share not pruned"]:
        share = sum(report["share not pruned"]) / len(report["share not pruned"])
        shown = f"{share:.1%} of the items, for the top {k} of {len(report['share not pruned'])} users"
        lines.append(("not pruned by the bounds", shown))
    if arguments.plot:
        with replace_file(arguments.plot) as temporary:
            plot_inspection(report, temporary)
        lines.append(("plot", arguments.plot))
    console.print_result(format_table(lines), {"users": len(catalogue.user_ids), **report})
