"""Outputs that appear complete or not at all, and replace existing ones only with ``--force``."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager


def check_file(path: str, force: bool) -> None:
    """Raise an error if a file exists or cannot be written, before any work is done."""
    if not os.path.basename(path) or os.path.isdir(path):
        raise ValueError(f"An output must be the name of a file, got {path!r}.")
    _check_free(path, force)


def check_folder(path: str, force: bool, owned: str) -> None:
    """Raise an error if a folder exists or cannot be written; to be replaced it must hold the file `owned`."""
    if not path:
        raise ValueError("An output must be the name of a folder, got ''.")
    _check_free(path, force)
    if os.path.lexists(path) and not os.path.isfile(os.path.join(path, owned)):
        raise ValueError(f"{path} is not replaced because it has no {owned}. Choose another folder with -o.")


def _check_free(path: str, force: bool) -> None:
    parent = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(parent):
        raise FileNotFoundError(2, "the folder to write to does not exist", parent)
    if os.path.lexists(path) and not force:
        raise ValueError(f"{path} exists. Pass --force to replace it, or choose another name.")
    if not os.access(parent, os.W_OK):
        raise PermissionError(13, "cannot write to this folder", parent)


@contextmanager
def replace_file(path: str) -> Iterator[str]:
    """Yield the name of a temporary file that replaces `path` at the end; after an error nothing is left of it."""
    target = os.path.realpath(path)  # a link stays, the file it points to is replaced
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{secrets.token_hex(4)}.tmp.{name}")  # some writers choose the format by suffix
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


@contextmanager
def replace_folder(path: str) -> Iterator[str]:
    """Yield a temporary folder that replaces `path` at the end; after an error the old folder is unchanged."""
    target = os.path.realpath(path)
    temporary = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{secrets.token_hex(4)}.tmp")
    old = f"{temporary}.old"
    os.mkdir(temporary)
    try:
        yield temporary
        if os.path.lexists(target):
            os.rename(target, old)
        os.rename(temporary, target)
    except BaseException:
        if os.path.lexists(old):
            os.rename(old, target)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)
