"""Outputs that appear whole, or not at all, and replace nothing unasked."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager


def check_file(path: str, force: bool) -> None:
    """Refuse a file that exists, or that cannot be written, before any work is done."""
    if not os.path.basename(path) or os.path.isdir(path):
        raise ValueError(f"An output must be the name of a file, got {path!r}.")
    _check_free(path, force)


def check_folder(path: str, force: bool, owned: str) -> None:
    """Refuse a folder that exists, or that cannot be written; one to be replaced must hold a file `owned`."""
    if not path:
        raise ValueError("An output must be the name of a folder, got ''.")
    _check_free(path, force)
    if os.path.lexists(path) and not os.path.isfile(os.path.join(path, owned)):
        raise ValueError(f"{path} is not replaced, as it holds no {owned}. Name another by -o.")


def _check_free(path: str, force: bool) -> None:
    parent = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(parent):
        raise FileNotFoundError(2, "there is no such folder to write to", parent)
    if os.path.lexists(path) and not force:
        raise ValueError(f"{path} exists. Pass --force to replace it, or name another.")
    if not os.access(parent, os.W_OK):
        raise PermissionError(13, "cannot write to this folder", parent)


@contextmanager
def new_file(path: str) -> Iterator[str]:
    """Yield the name of a file beside `path` that takes its place at the end; an error leaves nothing of it."""
    target = os.path.realpath(path)  # of a link what it points to is replaced
    folder, name = os.path.split(target)
    beside = os.path.join(folder, f".{secrets.token_hex(4)}.tmp.{name}")  # the end tells some writers the format
    try:
        yield beside
        os.replace(beside, target)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


@contextmanager
def new_folder(path: str) -> Iterator[str]:
    """Yield a folder beside `path` that takes its place at the end; an error leaves the older one as it was."""
    target = os.path.realpath(path)
    beside = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{secrets.token_hex(4)}.tmp")
    older = f"{beside}.old"
    os.mkdir(beside)
    try:
        yield beside
        if os.path.lexists(target):
            os.rename(target, older)
        os.rename(beside, target)
    except BaseException:
        if os.path.lexists(older):
            os.rename(older, target)
        shutil.rmtree(beside, ignore_errors=True)
        raise
    shutil.rmtree(older, ignore_errors=True)
