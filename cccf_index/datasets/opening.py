"""Open text files as they come: plain, gzipped or zipped, in UTF-8, UTF-16 or Latin-1."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, TextIO, TypeVar, cast

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile)
RATINGS_NAMES = ("rating", "u.data", "review", "interaction", "event")  # in the name of a file, the surest first

Result = TypeVar("Result")


@dataclass(frozen=True)
class TextFile:
    """A text file, perhaps packed.

    Parameters
    ----------
    path : str
    member : str, optional
        Its name in a zip file. None if it is not in one.
    gzipped : bool
    encoding : str
    """

    path: str
    member: str | None = None
    gzipped: bool = False
    encoding: str = "utf-8-sig"

    @property
    def name(self) -> str:
        """The name that messages use."""
        return self.path if self.member is None else f"{self.path} ({self.member})"

    @property
    def suffix(self) -> str:
        """The suffix of the unpacked file, in lower case."""
        return find_suffix(self.member or self.path)

    def open_bytes(self) -> IO[bytes]:
        """Open the unpacked content."""
        if self.member is not None:
            with zipfile.ZipFile(self.path) as archive:  # the file is closed together with its member
                return archive.open(self.member)
        if self.gzipped:
            return cast(IO[bytes], gzip.open(self.path))
        return open(self.path, "rb")

    def open(self) -> TextIO:
        """Open the unpacked content as text."""
        return io.TextIOWrapper(self.open_bytes(), encoding=self.encoding, newline=None)


def find_suffix(path: str) -> str:
    """Return the suffix of a file in lower case, without that of its compression."""
    return os.path.splitext(path.lower().removesuffix(".gz"))[1]


def read_text(path: str, read: Callable[[TextFile], Result]) -> Result:
    """Return what `read` makes of a text file; a file that is not text raises a ValueError.

    A file that is not UTF-8 is read as Latin-1, in which every byte is a letter: old exports are, and ids are still
    told apart if it was yet another encoding.
    """
    try:
        file = _find_text(path)
        try:
            return read(file)
        except UnicodeDecodeError:
            if file.encoding != "utf-8-sig":
                raise
            return read(replace(file, encoding="latin-1"))
    except (*DAMAGED, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not text, plain, gzipped or zipped: {error}. Convert it first.") from error


def _find_text(path: str) -> TextFile:
    """Return how a file is packed and encoded, by its first bytes."""
    with open(path, "rb") as raw:
        start = raw.read(4)
    if path.lower().endswith(".zip") or start == ZIP:
        file = TextFile(path, _choose_member(path))
    else:
        file = TextFile(path, gzipped=path.lower().endswith(".gz") or start[:2] == GZIP)
    with file.open_bytes() as content:
        head = content.read(4096)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return replace(file, encoding="utf-16")
    if b"\0" in head:
        raise ValueError(f"{file.name} is not text, plain, gzipped or zipped: it has zero bytes. Convert it first.")
    return file


def _choose_member(path: str) -> str:
    """Return the name of the file of ratings in a zip file."""
    with zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    names = [info.filename for info in infos]
    for word in RATINGS_NAMES:
        found = [name for name in names if word in name.rsplit("/", 1)[-1].lower()]
        if len(names) == 1 or len(found) == 1:
            name = (found or names)[0]
            if infos[names.index(name)].flag_bits & 1:
                raise ValueError(f"{path} must not be encrypted. Unpack it, and give the file of ratings.")
            return name
        if found:
            break
    shown = ", ".join(sorted(names)) or "no files"
    raise ValueError(f"{path} must hold one file of ratings, got {shown}. Unpack it, and give the file of ratings.")
