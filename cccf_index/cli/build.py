"""``cccf build``: write one file with the index, the names and the users' queries, from a model or embeddings."""

from __future__ import annotations

import argparse
import os
import re
import time
from typing import Any

import numpy as np

from cccf_index import IndexCCCF, IndexRefineCCCF
from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console
from cccf_index.cli._files import ModelFolder, format_flag, read_names, read_vectors
from cccf_index.cli._outputs import check_file
from cccf_index.models import MF
from cccf_index.storage.vectors import TYPES

NAME, HELP = "build", "build an index from a model or from embeddings"
EXAMPLES = """  cccf build model -o items.cccf
  cccf build --embeddings items.npy --queries users.npy -o items.cccf
  cccf build --embeddings items.npy --queries users.npy --item-ids items.txt --user-ids users.txt -o items.cccf
  cccf build --embeddings items.npy --queries users.npy --bytes 48 -o items.cccf
  cccf build --embeddings items.npy --queries users.npy --refine int8 -o items.cccf
"""


def parse_scale(text: str) -> int | str | None:
    """Return the value of ``--scale``."""
    if text in ("auto", "none"):
        return None if text == "none" else text
    if not re.fullmatch("[0-9]+", text):
        raise argparse.ArgumentTypeError(f"must be auto, none or a number, got {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("model", nargs="?", metavar="FOLDER", help="folder written by `cccf train`")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="index file to write")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--scale",
        type=parse_scale,
        default="auto",
        help="weights are multiplied by this and rounded: a number, auto, or none for float weights (default: auto)",
    )
    group = parser.add_argument_group("embeddings (the last seven also for a model of kind mf)")
    group.add_argument("--embeddings", metavar="FILE", help="item vectors, .npy")
    group.add_argument("--queries", metavar="FILE", help="user vectors, .npy: the queries")
    group.add_argument("--item-ids", metavar="FILE", help="item names, one per line or .npy (default: 0, 1, ...)")
    group.add_argument("--user-ids", metavar="FILE", help="user names, one per line or .npy (default: 0, 1, ...)")
    group.add_argument(
        "--bytes",
        type=float,
        metavar="B",
        help="bytes per item in the mean, more for items that lead many lists (default: 28, unless components, bits or "
        "active components are given: then all items have codes of the same length)",
    )
    group.add_argument("--k", type=int, metavar="K", help="with --bytes: length of the lists (default: 100)")
    group.add_argument("--components", type=int, metavar="G", help="components of a code (default: 8)")
    group.add_argument("--bits", type=int, metavar="R", help="bits of a component (default: 16)")
    group.add_argument("--max-active", type=int, metavar="N", help="active components of an item, at most")
    group.add_argument("--refine", choices=tuple(TYPES), help="keep the vectors too, in this type, to re-rank results")
    group.add_argument("--k-factor", type=float, metavar="F", help="with --refine: re-rank F * k items (default: 4)")


def _learn_index(arguments: argparse.Namespace, items: Any, users: Any, quiet: bool) -> IndexCCCF | IndexRefineCCCF:
    options = {"max_active": arguments.max_active, "seed": arguments.seed, "verbose": not quiet}
    options |= {"bytes_per_item": arguments.bytes} | ({} if arguments.k is None else {"k": arguments.k})
    if arguments.refine is None and arguments.k_factor is not None:
        raise ValueError("--k-factor needs --refine.")
    shape = (arguments.components, arguments.bits)
    index = IndexCCCF.from_embeddings(items, users, *shape, scale=arguments.scale, **options)
    if arguments.refine is None:
        return index
    return IndexRefineCCCF(index, items, k_factor=arguments.k_factor or 4.0, storage=arguments.refine)


def _build_from_model(arguments: argparse.Namespace, quiet: bool) -> Catalogue:
    kept = ModelFolder.read(arguments.model)
    model, names = kept.model, (kept.user_ids, kept.item_ids)
    if isinstance(model, MF):
        index = _learn_index(arguments, model.item_factors_, model.user_factors_, quiet)
        vectors = np.asarray(model.user_factors_, dtype=np.float32)
        return Catalogue.of_vectors(index, vectors, *names, offset=model.offset_)
    for option in ("bytes", "k", "components", "bits", "max_active", "refine", "k_factor"):
        if getattr(arguments, option) is not None:
            raise ValueError(f"{format_flag(option)} has no effect: {arguments.model} already has codes.")
    return Catalogue.of_model(model, *names, scale=arguments.scale)


def _build_from_embeddings(arguments: argparse.Namespace, quiet: bool) -> Catalogue:
    items = read_vectors(arguments.embeddings)
    users = None if arguments.queries is None else read_vectors(arguments.queries)
    if users is not None and users.shape[1] != items.shape[1]:
        raise ValueError(
            f"{arguments.queries} must have the {items.shape[1]} dimensions of {arguments.embeddings}, "
            f"got {users.shape[1]}."
        )
    if users is None and arguments.user_ids is not None:
        raise ValueError("--user-ids needs --queries, the user vectors.")
    n_users = 0 if users is None else len(users)
    names = read_names(arguments.user_ids, n_users, "users"), read_names(arguments.item_ids, len(items), "items")
    index = _learn_index(arguments, items, users, quiet)
    vectors = np.empty((0, items.shape[1]), np.float32) if users is None else np.asarray(users, dtype=np.float32)
    return Catalogue.of_vectors(index, vectors, *names)


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Build the index and write the file."""
    if (arguments.model is None) == (arguments.embeddings is None):
        arguments.usage("give either the FOLDER of a model or --embeddings FILE")
    if arguments.model is not None:
        for option in ("queries", "item_ids", "user_ids"):
            if getattr(arguments, option) is not None:
                arguments.usage(f"{format_flag(option)} needs --embeddings and cannot be used with a model")
    check_file(arguments.output, arguments.force)
    begin = time.perf_counter()
    catalogue = (_build_from_model if arguments.model is not None else _build_from_embeddings)(arguments, console.quiet)
    index = catalogue.index
    size = index.nbytes / max(1, index.ntotal)
    catalogue.save(arguments.output)
    seconds = time.perf_counter() - begin
    result = {
        "index": repr(index),
        "items": index.ntotal,
        "users": len(catalogue.user_ids),
        "bytes per item": round(size, 2),
        "file bytes": os.path.getsize(arguments.output),
        "seconds": round(seconds, 3),
        "output": arguments.output,
    }
    text = f"{index.ntotal:,} items of {size:.1f} bytes each, {len(catalogue.user_ids):,} users"
    console.print_result(f"{text}: written to {arguments.output} in {seconds:.1f} s", result)
