"""``cccf recommend``: write the best items of all users to a file, in chunks; an interrupted run can be resumed.

Each chunk of users becomes a file in ``<output>.parts``, next to a plan that identifies the run. The same command
resumes after the last complete chunk. When all chunks are complete they are joined into the output.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console
from cccf_index.cli._files import parse_positive
from cccf_index.cli._outputs import check_file, replace_file
from cccf_index.cli._serving import add_serving_arguments, make_params, parse_users, read_seen

NAME, HELP = "recommend", "write the best items of all users to a file"
EXAMPLES = """  cccf recommend items.cccf -o recs.csv
  cccf recommend items.cccf -k 50 --exclude-seen ratings.csv -o recs.parquet
"""
COLUMNS = ("user", "rank", "item", "score")
PLAN = "plan.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help=f".csv or .parquet file with columns {', '.join(COLUMNS)}"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument("--users", metavar="A,B,...", help="user names, or @FILE with one name per line (default: all)")
    parser.add_argument(
        "--chunk", type=parse_positive, default=8192, metavar="N", help="users per chunk (default: 8192)"
    )
    add_serving_arguments(parser)


class CSV:
    """Write chunks as CSV."""

    def write(self, path: str, columns: Sequence[list[Any]]) -> None:
        """Write the rows of a chunk."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(zip(*columns, strict=True))

    def join(self, parts: Sequence[str], path: str) -> None:
        """Write the header and all chunks."""
        with open(path, "wb") as out:
            out.write((",".join(COLUMNS) + "\n").encode())
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, out)
            out.flush()
            os.fsync(out.fileno())


class Parquet:
    """Write chunks as Parquet, a row group each."""

    def __init__(self, catalogue: Catalogue) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise ImportError(
                'Parquet needs pyarrow: `pip install "cccf-index[parquet]"`, or choose a .csv file.'
            ) from None
        self._arrow, self._parquet = pyarrow, pyarrow.parquet
        users, items = (
            pyarrow.string() if ids is not None and ids.dtype.kind == "U" else pyarrow.int64()
            for ids in (catalogue.user_ids, catalogue.item_ids)
        )
        types = (
            users,
            pyarrow.int32(),
            items,
            pyarrow.float32(),
        )  # given, as they cannot be guessed from a chunk without rows
        self._schema = pyarrow.schema(list(zip(COLUMNS, types, strict=True)))

    def write(self, path: str, columns: Sequence[list[Any]]) -> None:
        """Write the rows of a chunk."""
        table = self._arrow.table(dict(zip(COLUMNS, columns, strict=True)), schema=self._schema)
        self._parquet.write_table(table, path)

    def join(self, parts: Sequence[str], path: str) -> None:
        """Write all chunks into one file."""
        with self._parquet.ParquetWriter(path, self._schema) as out:
            for part in parts:
                out.write_table(self._parquet.read_table(part))


def _make_plan(arguments: argparse.Namespace, users: Any) -> dict[str, Any]:
    """Return what identifies a run: size and time of the input files, the users, and the options."""
    files = {}
    for path in (arguments.index, arguments.exclude_seen):
        if path is not None:
            status = os.stat(path)
            files[os.path.abspath(path)] = [status.st_size, status.st_mtime_ns]
    names = ("k", "chunk", "max_items", "most_used", "sep", "columns", "header", "duplicates", "ids")
    options = {name: getattr(arguments, name) for name in names}
    return {"files": files, "users": hashlib.sha256(users.tobytes()).hexdigest(), **options}


def _open_parts(folder: str, plan: dict[str, Any], force: bool) -> None:
    """Create the folder of chunks, or check that an existing one belongs to the same plan."""
    path = os.path.join(folder, PLAN)
    if os.path.isdir(folder):
        try:
            with open(path, encoding="utf-8") as file:
                same = json.load(file) == plan
        except (OSError, ValueError):
            same = False
        if same:
            return
        if not force:
            raise ValueError(f"{folder} holds chunks of another run. Pass --force to start again.")
        if os.listdir(folder) and not os.path.isfile(path):
            raise ValueError(f"{folder} is not removed because it has no {PLAN}. Choose another file with -o.")
        shutil.rmtree(folder)
    os.mkdir(folder)
    with replace_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(plan, file)


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Recommend chunk by chunk, then join the chunks."""
    check_file(arguments.output, arguments.force)
    if not arguments.output.endswith((".csv", ".parquet")):
        raise ValueError(f"-o must end in .csv or .parquet, got {arguments.output}.")
    catalogue = Catalogue.load(arguments.index, mmap=True)
    writer = Parquet(catalogue) if arguments.output.endswith(".parquet") else CSV()
    users = parse_users(arguments.users, catalogue, arguments.index)
    seen = read_seen(arguments, catalogue, console)
    folder = f"{arguments.output}.parts"
    _open_parts(folder, _make_plan(arguments, users), arguments.force)
    starts = range(0, len(users), arguments.chunk)
    parts = [os.path.join(folder, f"{number:08}") for number in range(len(starts))]
    chunks = [users[start : start + arguments.chunk] for start in starts]
    done = sum(len(some) for some, part in zip(chunks, parts, strict=True) if os.path.exists(part))
    begin = time.perf_counter()
    try:
        with console.start_progress(len(users), done, "recommend") as progress:
            for some, part in zip(chunks, parts, strict=True):
                if os.path.exists(part):
                    continue
                exclude = None if seen is None else seen[some]
                found = catalogue.recommend(some, arguments.k, exclude=exclude, params=make_params(arguments))
                with replace_file(part) as temporary:
                    writer.write(temporary, make_columns(catalogue, some, *found))
                progress.update(len(some))
    except KeyboardInterrupt:
        kept = sum(map(os.path.exists, parts))
        console.note(f"\n{kept} of {len(parts)} chunks are kept in {folder}: run the same command again to resume.")
        raise
    with replace_file(arguments.output) as temporary:
        writer.join(parts, temporary)
    shutil.rmtree(folder)
    seconds = time.perf_counter() - begin
    result = {"users": len(users), "resumed from": done, "seconds": round(seconds, 3), "output": arguments.output}
    console.print_result(
        f"top {arguments.k} items of {len(users):,} users written to {arguments.output} in {seconds:.1f} s", result
    )


def make_columns(catalogue: Catalogue, users: Any, scores: Any, items: Any) -> Sequence[list[Any]]:
    """Return the columns of a chunk, with a row for each item found."""
    row, place = np.nonzero(items >= 0)
    return (
        catalogue.user_ids[users[row]].tolist(),
        (place + 1).tolist(),
        catalogue.names(items[row, place]).tolist(),
        [float(f"{score:.6g}") for score in scores[row, place].tolist()],
    )
