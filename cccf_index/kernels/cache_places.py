"""Where compiled kernels are kept: folders that may be read and written, and which files in them are trusted.

Places are tried in this order:

1. the folder that `CCCF_CACHE_DIR` names, else the one that `NUMBA_CACHE_DIR` names; if one is set, no other is used;
2. `__pycache__` beside the kernels;
3. the user's cache folder;
4. a private folder in the temporary directory.

Kernels are read from all of them and written to the first that can be written, so a cache that root filled serves
users who cannot write there. Places are looked for when a kernel is first loaded, never on import.

**Trust.** A cached kernel is machine code, so whoever can write it can run code as the user who loads it. On POSIX, a
folder or file is read only if its owner is the current user, root, or the owner of this source file (who can change
what runs here anyway), and if neither group nor others can write it. The folder in the temporary directory must be a
real one, of the current user, and closed to everybody else. On Windows nothing is checked: the
user's own folders are private there, one that `CCCF_CACHE_DIR` names should be.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import uuid
from typing import NamedTuple

import numba

SUFFIX = ".kernel"
STAMP_FOLDER = re.compile(r"kernels-[0-9a-f]{16}")
UNUSED_SECONDS = 30 * 86400  # after which the kernels of other versions are removed
TOUCH_SECONDS = 86400  # a folder that is read is marked as used once a day
VARIABLES = ("CCCF_CACHE_DIR", "NUMBA_CACHE_DIR")


class Place(NamedTuple):
    """A folder that holds one folder of kernels for each version of the sources."""

    name: str
    path: str
    private: bool = False  # in a directory that everybody can write to


def find_places() -> tuple[Place, ...]:
    """Return the places in their order, whether or not they exist."""
    for variable in VARIABLES:
        folder = os.environ.get(variable) or (variable == "NUMBA_CACHE_DIR" and numba.config.CACHE_DIR)
        if folder:
            path = os.path.abspath(os.path.expanduser(folder))
            return (Place(variable, path if variable == VARIABLES[0] else os.path.join(path, "cccf_index")),)
    places = [Place("package", os.path.join(os.path.dirname(os.path.abspath(__file__)), "__pycache__"))]
    user = _find_user_folder()
    if os.path.isabs(user):
        places.append(Place("user", os.path.join(user, "cccf_index")))
    with contextlib.suppress(OSError):  # there is no temporary directory that can be written
        owner = f"-{os.getuid()}" if os.name == "posix" else ""
        places.append(Place("temporary", os.path.join(tempfile.gettempdir(), f"cccf_index{owner}"), private=True))
    return tuple(places)


def _find_user_folder() -> str:
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA", "")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches")
    given = os.environ.get("XDG_CACHE_HOME", "")  # the specification ignores relative paths
    return given if os.path.isabs(given) else os.path.expanduser("~/.cache")


def read_kernel(place: Place, stamp: str, name: str) -> bytes | None:
    """Return the content of a file, or None if it is not there or not trusted."""
    folder = _stamp_folder(place, stamp)
    try:
        if not _is_trusted_place(place) or not _is_trusted(os.stat(folder)):
            return None
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        with open(os.open(os.path.join(folder, name), flags), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or not _is_trusted(found):
                return None
            content = file.read()
    except OSError:
        return None
    with contextlib.suppress(OSError):  # read-only, or of another owner
        if time.time() - os.stat(folder).st_mtime > TOUCH_SECONDS:
            os.utime(folder)
    return content


def write_kernel(place: Place, stamp: str, name: str, content: bytes) -> None:
    """Write a file whole or not at all; raises OSError if the place refuses."""
    folder = open_folder(place, stamp)
    target, temporary = os.path.join(folder, name), os.path.join(folder, f"{uuid.uuid4().hex}.tmp")
    try:
        # 0644 whatever the umask: others may read what root has filled, and what a group can write is not trusted
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        with open(os.open(temporary, flags, 0o644), "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def open_folder(place: Place, stamp: str) -> str:
    """Return the folder of a stamp at a place, made if need be; raises OSError if it cannot be, or is not trusted."""
    folder = _stamp_folder(place, stamp)
    if not os.path.isdir(folder):
        if place.private:
            with contextlib.suppress(FileExistsError):
                os.mkdir(place.path, 0o700)
        else:
            os.makedirs(place.path, 0o755, exist_ok=True)
    if not _is_trusted_place(place):
        raise PermissionError(f"is not a private folder of this user: {place.path}")
    if not os.path.isdir(folder):
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(folder, 0o755)
            os.chmod(folder, 0o755)
        _remove_unused(place, folder)
    if not _is_trusted(os.stat(folder)):
        raise PermissionError(f"belongs to another user, or others can write to it: {folder}")
    return folder


def remove_kernels(place: Place, stamp: str, prefix: str) -> None:
    """Remove the files whose names start so, as far as they can be removed."""
    folder = _stamp_folder(place, stamp)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))


def _stamp_folder(place: Place, stamp: str) -> str:
    return os.path.join(place.path, f"kernels-{stamp}")


def _remove_unused(place: Place, kept: str) -> None:
    """Remove the kernels of other versions that no process has used for long; one that runs has them in memory."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(place.path):
            with contextlib.suppress(OSError):
                known = STAMP_FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
                if known and entry.path != kept and time.time() - entry.stat().st_mtime > UNUSED_SECONDS:
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_trusted(found: os.stat_result) -> bool:
    """Whether nobody but this user, root and the owner of this source file can have written a file or folder."""
    if os.name != "posix":
        return True
    return found.st_uid in _trusted_owners() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _trusted_owners() -> set[int]:
    owners = {0, os.geteuid()}
    with contextlib.suppress(OSError):  # in a zip file
        owners.add(os.stat(__file__).st_uid)
    return owners


def _is_trusted_place(place: Place) -> bool:
    """Whether a place in a directory that everybody can write to is a folder of this user's own."""
    if not place.private or os.name != "posix":
        return True
    found = os.lstat(place.path)  # a link is refused
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
