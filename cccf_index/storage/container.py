"""One file of named arrays: a manifest, a checksum for every byte, replaced atomically, never pickled.

    "CCCFfile" | version | array, array, ... each on a 64-byte boundary | manifest (JSON) | trailer

The manifest comes last so that arrays are written as they are made, and the trailer points to it. The checksum
of an array covers the padding before it too: no byte of a file can change unnoticed.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import secrets
import struct
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

VERSION = 1
ALIGN = 64
_HEAD = struct.Struct("<8sII")  # magic, version, 0
_TAIL = struct.Struct("<QQI8s")  # manifest's offset and length, its checksum, magic
READERS = {
    "codes": "CompositionalCodes.load",
    "implicit model": "cccf_index.adapters.implicit.CCCFModel.load",
    "index": "read_index",
    "model": "cccf_index.models.load",
    "quantizer": "CompositionalQuantizer.load",
    "refined index": "read_index",
}
_MAGIC, _END = b"CCCFfile", b"CCCFdone"

Meta = dict[str, Any]
Arrays = Iterable[tuple[str, NDArray[Any], int]]  # name, array, and which of its bytes lies on a 64-byte boundary


# what reading a manifest that does not fit its arrays may raise
BROKEN = (
    ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, MemoryError, RuntimeError, struct.error,
)  # fmt: skip


def damage_error(source: str, error: Exception) -> ValueError:
    """Return the error to raise for a file that cannot be what it says it is."""
    return ValueError(f"{source} is damaged: {error}. Write it again from its source.")


def require(fits: Any, name: str) -> None:
    """Raise a ValueError unless a part of a file fits the others."""
    if not fits:
        raise ValueError(f"its {name} does not fit the rest")


def write(out: BinaryIO, kind: str, meta: Meta, arrays: Arrays) -> None:
    """Write `arrays` one by one, as they are made."""
    out.write(_HEAD.pack(_MAGIC, VERSION, 0))
    end = _HEAD.size
    entries = []
    for name, array, lead in arrays:
        data = np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")
        padding = bytes(-(end + lead) % ALIGN)
        out.write(padding)
        out.write(data)
        entries.append(
            {
                "name": name,
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "begin": end,
                "offset": end + len(padding),
                "crc32": zlib.crc32(data, zlib.crc32(padding)),
            }
        )
        end += len(padding) + len(data)
    manifest = json.dumps({"kind": kind, "version": VERSION, "meta": meta, "arrays": entries}).encode()
    out.write(manifest)
    out.write(_TAIL.pack(end, len(manifest), zlib.crc32(manifest), _END))


def write_file(path: str | os.PathLike[str], kind: str, meta: Meta, arrays: Arrays) -> None:
    """Write beside `path`, flush to disk and rename into place; a failure leaves an older file unchanged."""
    target = os.path.realpath(os.fspath(path))
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
    beside = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(beside, "xb") as out:
            write(out, kind, meta, arrays)
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, target)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def write_bytes(kind: str, meta: Meta, arrays: Arrays) -> NDArray[np.uint8]:
    """Return as a uint8 array what `write_file` would put into a file."""
    out = io.BytesIO()
    write(out, kind, meta, arrays)
    return np.frombuffer(out.getbuffer(), dtype=np.uint8)


def read(
    buffer: NDArray[np.uint8], kind: str | tuple[str, ...], source: str, verify: bool = True
) -> tuple[Meta, dict[str, NDArray[Any]]]:
    """Return the manifest's meta and the arrays, as views of `buffer`; `source` names it in errors.

    Anything that is not a whole, unaltered container of this kind, or of one of these, is a ValueError. With `verify`
    off the arrays' checksums are not computed, so that opening a mapped file reads only its manifest.
    """
    if buffer.size < _HEAD.size or bytes(buffer[:8]) != _MAGIC:
        raise ValueError(f"{source} is not a cccf-index file. (Indexes of faiss are read by faiss.)")
    _, version, reserved = _HEAD.unpack(bytes(buffer[: _HEAD.size]))
    if version > VERSION:
        raise ValueError(
            f"{source} has format version {version}, this cccf-index reads up to {VERSION}. Upgrade cccf-index."
        )
    try:
        offset, length, crc, end = _TAIL.unpack(bytes(buffer[-_TAIL.size :]))
        if end != _END or offset + length + _TAIL.size != buffer.size:
            raise ValueError("its end is missing: the file is truncated")
        text = bytes(buffer[offset : offset + length])
        if zlib.crc32(text) != crc:
            raise ValueError("the manifest's checksum is wrong")
        manifest = json.loads(text)
        if manifest["version"] != version or reserved != 0:
            raise ValueError("its head does not fit its manifest")
        if not isinstance(manifest["kind"], str) or not isinstance(manifest["meta"], dict):
            raise ValueError("its manifest does not say what it holds")
        arrays, begin = {}, _HEAD.size
        for entry in manifest["arrays"]:
            arrays[entry["name"]] = _view(buffer, entry, begin, offset, verify)
            begin = entry["offset"] + arrays[entry["name"]].nbytes
        if begin != offset:
            raise ValueError("there are bytes that belong to no array")
    except BROKEN as error:
        raise damage_error(source, error) from error
    kinds = (kind,) if isinstance(kind, str) else kind
    if manifest["kind"] not in kinds:
        reader = READERS.get(manifest["kind"], "a newer cccf-index")
        raise ValueError(f"{source} holds {manifest['kind']}, not {kinds[0]}. Read it by {reader}.")
    return manifest["meta"], arrays


def read_file(
    path: str | os.PathLike[str], kind: str | tuple[str, ...], mmap: bool = False, verify: bool = True
) -> tuple[Meta, dict[str, NDArray[Any]]]:
    """Read a file whole, or map it into memory; see `read`."""
    name = os.fspath(path)
    if os.path.isfile(name) and os.path.getsize(name) == 0:
        raise ValueError(f"{name} is not a cccf-index file: it is empty.")
    buffer = np.memmap(name, dtype=np.uint8, mode="r") if mmap else np.fromfile(name, dtype=np.uint8)
    return read(np.asarray(buffer), kind, name, verify)


def _view(buffer: NDArray[np.uint8], entry: Meta, begin: int, end: int, verify: bool) -> NDArray[Any]:
    if not re.fullmatch(r"[<|][uif][1248]", entry["dtype"]):
        raise ValueError(f"array {entry['name']} has dtype {entry['dtype']}")
    dtype = np.dtype(entry["dtype"])
    count = 1
    for size in entry["shape"]:
        count *= size if size >= 0 else end
    start, stop = entry["offset"], entry["offset"] + count * dtype.itemsize
    if entry["begin"] != begin or not begin <= start <= stop <= end:
        raise ValueError(f"array {entry['name']} lies outside the file")
    if verify and zlib.crc32(buffer[begin:stop].data) != entry["crc32"]:
        raise ValueError(f"the checksum of array {entry['name']} is wrong")
    view = buffer[start:stop].view(dtype).reshape(entry["shape"])
    view.flags.writeable = False
    return view
