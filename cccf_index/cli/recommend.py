"""``cccf recommend``: the best items of all users into a file, some users at a time, to be taken up where it ended.

Each chunk of users becomes a file of its own in ``<output>.parts``, beside a plan that says of what they are chunks.
The same command goes on after the last whole chunk. When all are there they become the output, which appears whole.
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
from cccf_index.cli._files import positive
from cccf_index.cli._outputs import check_file, new_file
from cccf_index.cli._serving import add_serving_arguments, params_of, seen_of, users_of

NAME, HELP = "recommend", "write the best items of all users to a file"
EXAMPLES = """  cccf recommend items.cccf -o recs.csv
  cccf recommend items.cccf -k 50 --exclude-seen ratings.csv -o recs.parquet
"""
COLUMNS = ("user", "rank", "item", "score")
PLAN = "plan.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this command takes."""
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=".csv or .parquet: " + ", ".join(COLUMNS))
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument("--users", metavar="A,B,...", help="only these, or @FILE with one a line (default: all)")
    parser.add_argument("--chunk", type=positive, default=8192, metavar="N", help="users at a time (default: 8192)")
    add_serving_arguments(parser)


class CSV:
    """Chunks as text."""

    def write(self, path: str, columns: Sequence[list[Any]]) -> None:
        """Write the rows of a chunk."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(zip(*columns, strict=True))

    def join(self, parts: Sequence[str], path: str) -> None:
        """Write a head and all chunks."""
        with open(path, "wb") as out:
            out.write((",".join(COLUMNS) + "\n").encode())
            for part in parts:
                with open(part, "rb") as file:
                    shutil.copyfileobj(file, out)
            out.flush()
            os.fsync(out.fileno())


class Parquet:
    """Chunks as Parquet, a row group each."""

    def __init__(self, catalogue: Catalogue) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise ImportError(
                'Parquet needs pyarrow: `pip install "cccf-index[parquet]"`, or name a .csv file.'
            ) from None
        self._arrow, self._parquet = pyarrow, pyarrow.parquet
        users, items = (
            pyarrow.string() if ids is not None and ids.dtype.kind == "U" else pyarrow.int64()
            for ids in (catalogue.user_ids, catalogue.item_ids)
        )
        types = (users, pyarrow.int32(), items, pyarrow.float32())  # said, as a chunk may have no rows
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


def _plan(arguments: argparse.Namespace, users: Any) -> dict[str, Any]:
    """Return what chunks depend on: the files as they are now, and the options."""
    files = {}
    for path in (arguments.index, arguments.exclude_seen):
        if path is not None:
            status = os.stat(path)
            files[os.path.abspath(path)] = [status.st_size, status.st_mtime_ns]
    names = ("k", "chunk", "max_items", "sep", "columns", "header", "duplicates", "ids")
    options = {name: getattr(arguments, name) for name in names}
    return {"files": files, "users": hashlib.sha256(users.tobytes()).hexdigest(), **options}


def _begun(folder: str, plan: dict[str, Any], force: bool) -> None:
    """Make the folder of chunks, or make sure that what it holds is of the same plan."""
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
            raise ValueError(f"{folder} holds the beginning of another run. Pass --force to begin anew.")
        if os.listdir(folder) and not os.path.isfile(path):
            raise ValueError(f"{folder} is not removed, as it holds no {PLAN}. Name another file by -o.")
        shutil.rmtree(folder)
    os.mkdir(folder)
    with new_file(path) as beside, open(beside, "w", encoding="utf-8") as file:
        json.dump(plan, file)


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Recommend chunk after chunk, and join them."""
    check_file(arguments.output, arguments.force)
    if not arguments.output.endswith((".csv", ".parquet")):
        raise ValueError(f"-o must end in .csv or .parquet, got {arguments.output}.")
    catalogue = Catalogue.load(arguments.index, mmap=True)
    writer = Parquet(catalogue) if arguments.output.endswith(".parquet") else CSV()
    users = users_of(arguments.users, catalogue, arguments.index)
    seen = seen_of(arguments, catalogue, console)
    folder = f"{arguments.output}.parts"
    _begun(folder, _plan(arguments, users), arguments.force)
    starts = range(0, len(users), arguments.chunk)
    parts = [os.path.join(folder, f"{number:08}") for number in range(len(starts))]
    chunks = [users[start : start + arguments.chunk] for start in starts]
    done = sum(len(some) for some, part in zip(chunks, parts, strict=True) if os.path.exists(part))
    begin = time.perf_counter()
    try:
        with console.progress(len(users), done, "recommend") as progress:
            for some, part in zip(chunks, parts, strict=True):
                if os.path.exists(part):
                    continue
                exclude = None if seen is None else seen[some]
                found = catalogue.recommend(some, arguments.k, exclude=exclude, params=params_of(arguments))
                with new_file(part) as beside:
                    writer.write(beside, columns_of(catalogue, some, *found))
                progress.update(len(some))
    except KeyboardInterrupt:
        kept = sum(map(os.path.exists, parts))
        console.note(f"\n{kept} of {len(parts)} chunks are kept in {folder}: the same command goes on from there.")
        raise
    with new_file(arguments.output) as beside:
        writer.join(parts, beside)
    shutil.rmtree(folder)
    seconds = time.perf_counter() - begin
    result = {"users": len(users), "resumed from": done, "seconds": round(seconds, 3), "output": arguments.output}
    console.result(
        f"the first {arguments.k} items of {len(users):,} users: {arguments.output}, {seconds:.1f} s", result
    )


def columns_of(catalogue: Catalogue, users: Any, scores: Any, items: Any) -> Sequence[list[Any]]:
    """Return the columns of a chunk, a row for each item that was found."""
    row, place = np.nonzero(items >= 0)
    return (
        catalogue.user_ids[users[row]].tolist(),
        (place + 1).tolist(),
        catalogue.names(items[row, place]).tolist(),
        [float(f"{score:.6g}") for score in scores[row, place].tolist()],
    )
