"""``cccf inspect``: show what an index holds."""

from __future__ import annotations

import argparse
from typing import Any

from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, format_table
from cccf_index.cli._files import parse_positive
from cccf_index.cli._outputs import check_file, replace_file
from cccf_index.inspection import inspect_index
from cccf_index.plots import check_plot, plot_inspection

NAME, HELP = "inspect", "show what an index holds: groups, sparsity, bytes, pruning"
EXAMPLES = """  cccf inspect items.cccf
  cccf inspect items.cccf --plot items.png
"""
MAX_GROUPS = 8  # shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("index", metavar="INDEX", help="file written by `cccf build` or `write_index`")
    parser.add_argument(
        "-k", type=parse_positive, default=10, help="items per query when pruning is measured (default: 10)"
    )
    parser.add_argument("--plot", metavar="FILE", help="also draw a plot: .png, .svg or .pdf")
    parser.add_argument("--force", action="store_true", help="replace an existing plot")


def _describe_vectors(about: dict[str, Any]) -> str:
    return f"{about['storage']}, {about['dimensions']} dimensions, to re-rank {about['k_factor']:g} times k items"


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Inspect the index, print the report and draw it."""
    if arguments.plot:
        check_file(arguments.plot, arguments.force)
        check_plot(arguments.plot)
    catalogue = Catalogue.load(arguments.index, mmap=True)
    report = inspect_index(catalogue.index, catalogue.queries, arguments.k, arguments.seed)
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
    if report["share not pruned"]:
        share = sum(report["share not pruned"]) / len(report["share not pruned"])
        shown = f"{share:.1%} of the items, for the top {arguments.k} of {len(report['share not pruned'])} users"
        lines.append(("not pruned by the bounds", shown))
    if arguments.plot:
        with replace_file(arguments.plot) as temporary:
            plot_inspection(report, temporary)
        lines.append(("plot", arguments.plot))
    console.print_result(format_table(lines), {"users": len(catalogue.user_ids), **report})
