"""``cccf inspect``: what is in an index."""

from __future__ import annotations

import argparse

from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, table
from cccf_index.cli._files import positive
from cccf_index.cli._outputs import check_file, new_file
from cccf_index.inspection import inspected
from cccf_index.plots import check_plot, plot_inspection

NAME, HELP = "inspect", "show what is in an index: groups, sparsity, bytes, bounds"
EXAMPLES = """  cccf inspect items.cccf
  cccf inspect items.cccf --plot items.png
"""
SHOWN = 8  # groups


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this command takes."""
    parser.add_argument("index", metavar="INDEX", help="a file of `cccf build` or of `write_index`")
    parser.add_argument("-k", type=positive, default=10, help="items that the bounds are tried for (default: 10)")
    parser.add_argument("--plot", metavar="FILE", help="draw it, too: .png, .svg or .pdf")
    parser.add_argument("--force", action="store_true", help="replace a plot that is there")


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Look, print and draw."""
    if arguments.plot:
        check_file(arguments.plot, arguments.force)
        check_plot(arguments.plot)
    catalogue = Catalogue.load(arguments.index, mmap=True)
    seen = inspected(catalogue.index, catalogue.queries, arguments.k, arguments.seed)
    lines = [
        ("items", f"{seen['items']:,}"),
        ("users", f"{len(catalogue.user_ids):,}"),
        ("components x bits", f"{seen['components']} x {seen['bits']}"),
        ("scale of weights", f"{seen['scale']}"),
        ("active components of an item", f"{seen['active']:.2f} (sparsity {seen['sparsity']:.2f})"),
        *((f"bytes an item: {part}", f"{size:.2f}") for part, size in seen["bytes an item"].items()),
        ("segments, deleted items", f"{seen['segments']}, {seen['deleted']}"),
        ("groups, cells, blocks of 64", f"{len(seen['groups'])}, {seen['cells']}, {seen['blocks']}"),
    ]
    for group in seen["groups"][:SHOWN]:
        lines.append((f"  components {','.join(map(str, group['components'])) or 'none'}", f"{group['items']:,} items"))
    if len(seen["groups"]) > SHOWN:
        lines.append((f"  and {len(seen['groups']) - SHOWN} more groups", ""))
    if seen["left by bounds"]:
        share = sum(seen["left by bounds"]) / len(seen["left by bounds"])
        shown = f"{share:.1%} of the items, for the first {arguments.k} of {len(seen['left by bounds'])} users"
        lines.append(("left by the bounds", shown))
    if arguments.plot:
        with new_file(arguments.plot) as beside:
            plot_inspection(seen, beside)
        lines.append(("drawn to", arguments.plot))
    console.result(table(lines), {"users": len(catalogue.user_ids), **seen})
