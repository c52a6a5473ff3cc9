"""``cccf search``: print the best items for some users, by the names in your data."""

from __future__ import annotations

import argparse

from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, format_table
from cccf_index.cli._serving import add_serving_arguments, make_params, parse_users, read_seen

NAME, HELP = "search", "print the best items for some users"
EXAMPLES = """  cccf search items.cccf --users 12,15 -k 10
  cccf search items.cccf --users ann,bob --exclude-seen ratings.csv --json
  cccf search items.cccf --users @users.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "--users",
        required=True,
        metavar="A,B,...",
        help="user names, or @FILE with one name per line (write --users=-1 for a negative id)",
    )
    add_serving_arguments(parser)


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Search and print a line for each item."""
    catalogue = Catalogue.load(arguments.index, mmap=True)
    users = parse_users(arguments.users, catalogue, arguments.index)
    seen = read_seen(arguments, catalogue, console)
    exclude = None if seen is None else seen[users]
    scores, items = catalogue.recommend(users, arguments.k, exclude=exclude, params=make_params(arguments))
    rows, result = [("user", "rank", "item", "score")], []
    for row, user in enumerate(catalogue.user_ids[users].tolist()):
        found = items[row] >= 0
        names, values = catalogue.names(items[row, found]).tolist(), scores[row, found].tolist()
        result.append({"user": user, "items": names, "scores": values})
        rows += [
            (str(user), str(rank), str(name), f"{value:.4f}")
            for rank, (name, value) in enumerate(zip(names, values, strict=True), start=1)
        ]
    console.print_result(format_table(rows), result)
