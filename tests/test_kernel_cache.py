"""The cache of compiled kernels: what it is keyed by, where it is kept, whom it trusts, and that it never fails."""

import errno
import os
import shutil
import sys
import time
import warnings

import numpy as np
import pytest
from numba import njit

from cccf_index.kernels import cache, cache_places
from cccf_index.kernels.cache import cached, describe
from cccf_index.kernels.cache_places import Place, find_places, open_folder, read_kernel, write_kernel

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
NOBODY = 65534
STAMP = "0123456789abcdef"


def add_one(x):
    return x + 1


def make_kernel(function=add_one):
    """A new dispatcher, which has nothing in memory."""
    return cached(njit(nogil=True)(function))


def is_hit(kernel):
    return sum(kernel.stats.cache_hits.values()) > 0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only place of the cache, and empty."""
    monkeypatch.setenv("CCCF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_warned", False)
    return tmp_path / "cache"


def list_files(folder):
    return sorted(folder.glob("kernels-*/*"))


def test_a_compiled_kernel_is_loaded_by_the_next_dispatcher(folder):
    first, second = make_kernel(), make_kernel()
    assert first(1) == 2
    assert not is_hit(first)
    assert second(1) == 2
    assert is_hit(second)
    assert len(list_files(folder)) == 1


def test_types_functions_and_settings_have_files_of_their_own(folder, monkeypatch):
    def other(x):
        return x + 2

    kernel = make_kernel()
    assert kernel(1) == 2
    assert kernel(1.5) == 2.5
    assert make_kernel(other)(1) == 3
    assert len(list_files(folder)) == 3
    monkeypatch.setattr(cache.config, "BOUNDSCHECK", 1)
    assert make_kernel()(1) == 2
    assert len(list_files(folder)) == 4


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "other kernel", "no pickle", "cannot be rebuilt"])
def test_a_damaged_file_is_compiled_anew_and_replaced(folder, damage):
    assert make_kernel()(1) == 2
    (path,) = list_files(folder)
    content = path.read_bytes()
    head = content[: len(cache.MAGIC) + 32]

    def seal(payload):
        return head + cache.hashlib.sha256(payload).digest() + payload

    if damage == "other kernel":
        kernel = make_kernel()
        assert kernel(1.5) == 2.5
        content = next(other for other in list_files(folder) if other != path).read_bytes()
    path.write_bytes(
        {
            "truncated": content[:-100],
            "empty": b"",
            "garbage": b"\0" * 5000,
            "other kernel": content,
            "no pickle": seal(b"no pickle"),
            "cannot be rebuilt": seal(cache.pickle.dumps(([], (1, 2, 3)))),
        }[damage]
    )
    again, healed = make_kernel(), make_kernel()
    assert again(1) == 2
    assert not is_hit(again)
    assert healed(1) == 2
    assert is_hit(healed)


def test_a_full_disk_costs_a_warning_and_leaves_nothing_behind(folder, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cache_places.os, "replace", refuse)
        with pytest.warns(RuntimeWarning, match=r"No space left on device. Set CCCF_CACHE_DIR to"):
            assert make_kernel()(1) == 2
        assert make_kernel()(1.5) == 2.5  # without another warning, which would be an error
    assert list_files(folder) == []
    assert make_kernel()(1) == 2
    assert len(list_files(folder)) == 1


def test_a_folder_that_is_removed_meanwhile_is_made_again(folder):
    kernel = make_kernel()
    assert kernel(1) == 2
    shutil.rmtree(folder)
    assert kernel(1) == 2
    assert kernel(1.5) == 2.5
    assert len(list_files(folder)) == 1


def test_kernels_that_allocate_and_those_that_do_not_are_loaded(folder):
    def allocate(n):
        return np.arange(n).sum()

    for _ in range(2):
        kernel = make_kernel(allocate)
        assert kernel(4) == 6
    assert is_hit(kernel)


def test_numba_is_initialised_wholly_only_for_symbols_without_an_address():
    class Context:
        refreshed = 0

        def refresh(self):
            self.refreshed += 1

    for symbols, refreshed in [
        ([], 0),
        (["Py_IncRef", "numba_adapt_ndarray", "sqrt"], 0),
        (["no_such_symbol_of_any_library"], 1),
        (["numba_get_np_random_state"], 1),
        (None, 1),
    ]:
        context = Context()
        cache._prepare_symbols(symbols, context)
        assert context.refreshed == refreshed, symbols


def test_a_disabled_cache_neither_reads_nor_writes_and_a_flushed_one_is_empty(folder):
    kernel = make_kernel()
    kernel._cache.disable()
    assert kernel(1) == 2
    assert list_files(folder) == []
    kernel._cache.enable()
    assert kernel(1.5) == 2.5
    assert len(list_files(folder)) == 1
    kernel._cache.flush()
    assert list_files(folder) == []
    assert kernel.stats.cache_path == str(folder)


def test_functions_that_numba_does_not_compile_are_left_alone():
    assert cached(add_one) is add_one


def test_without_sources_or_numbas_private_parts_nothing_is_kept(folder, monkeypatch):
    for name in ("STAMP", "_Cache"):
        with monkeypatch.context() as patch:
            patch.setattr(cache, name, None)
            assert make_kernel()(1) == 2
            assert describe().writes is None
    assert not folder.exists()


def test_the_folder_given_is_the_only_one(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert [(place.name, place.path) for place in find_places()] == [("CCCF_CACHE_DIR", str(folder))]
    assert describe() == ((str(folder),), str(folder), None)
    monkeypatch.delenv("CCCF_CACHE_DIR")
    assert [place.path for place in find_places()] == [str(tmp_path / "numba" / "cccf_index")]


def test_a_given_folder_that_cannot_be_written_is_named_in_one_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CCCF_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(cache, "_warned", False)
    with pytest.warns(RuntimeWarning, match=r"file.*cache: Not a directory"):
        assert make_kernel()(1) == 2
    assert make_kernel()(1.5) == 2.5  # without another warning, which would be an error
    assert describe().writes is None
    assert "Not a directory" in describe().problem


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The three places of a machine where no variable is set, all of them in `tmp_path`."""
    for variable in cache_places.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cache_places.numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(cache_places, "__file__", str(tmp_path / "package" / "cache_places.py"))
    monkeypatch.setattr(cache_places, "_find_user_folder", lambda: str(tmp_path / "user"))
    monkeypatch.setattr(cache_places.tempfile, "tempdir", str(tmp_path / "temporary"))
    for name in ("package", "user", "temporary"):
        (tmp_path / name).mkdir()
    return find_places()


def test_the_package_comes_before_the_user_and_the_temporary_folder(places):
    assert [place.name for place in places] == ["package", "user", "temporary"]
    assert [place.private for place in places] == [False, False, True]


@pytest.mark.parametrize("refusing", [0, 1, 2])
def test_the_first_place_that_can_be_written_is_written(places, tmp_path, refusing):
    for name in ("package", "user")[:refusing]:
        (tmp_path / name).rmdir()
        (tmp_path / name).write_text("in the way")
    assert describe().writes == places[refusing].path
    assert make_kernel()(1) == 2
    again = make_kernel()
    assert again(1) == 2
    assert is_hit(again)
    assert os.path.isdir(places[refusing].path)


def test_kernels_are_read_from_every_place(places, tmp_path):
    """An image that was warmed as root serves a user who writes elsewhere."""
    (tmp_path / "package").rmdir()
    (tmp_path / "package").write_text("in the way")
    assert make_kernel()(1) == 2
    (tmp_path / "package").unlink()
    again = make_kernel()
    assert again(1) == 2
    assert is_hit(again)


def test_the_user_folder_follows_the_platform(monkeypatch, tmp_path):
    monkeypatch.setattr(cache_places.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_places._find_user_folder() == str(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_places._find_user_folder() == os.path.expanduser("~/.cache")
    monkeypatch.setattr(cache_places.sys, "platform", "darwin")
    assert cache_places._find_user_folder() == os.path.expanduser("~/Library/Caches")
    monkeypatch.setattr(cache_places.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert cache_places._find_user_folder() == str(tmp_path)


@posix
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_kernels_can_be_read_by_all_and_written_by_one_whatever_the_umask(tmp_path, umask):
    place, before = Place("user", str(tmp_path / "cache")), os.umask(umask)
    try:
        write_kernel(place, STAMP, "a.kernel", b"code")
    finally:
        os.umask(before)
    assert read_kernel(place, STAMP, "a.kernel") == b"code"
    folder = tmp_path / "cache" / f"kernels-{STAMP}"
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / "a.kernel").stat().st_mode & 0o777 == 0o644


@posix
@pytest.mark.parametrize("target", ["file", "folder"])
def test_what_others_can_write_is_not_read(tmp_path, target):
    place = Place("user", str(tmp_path / "cache"))
    write_kernel(place, STAMP, "a.kernel", b"code")
    folder = tmp_path / "cache" / f"kernels-{STAMP}"
    (folder if target == "folder" else folder / "a.kernel").chmod(0o777)
    assert read_kernel(place, STAMP, "a.kernel") is None


@as_root
@pytest.mark.parametrize("target", ["file", "folder"])
def test_what_another_user_owns_is_not_read(tmp_path, target):
    place = Place("user", str(tmp_path / "cache"))
    write_kernel(place, STAMP, "a.kernel", b"code")
    folder = tmp_path / "cache" / f"kernels-{STAMP}"
    os.chown(folder if target == "folder" else folder / "a.kernel", NOBODY, NOBODY)
    assert read_kernel(place, STAMP, "a.kernel") is None


@posix
def test_a_link_is_not_followed_to_a_file(tmp_path):
    place = Place("user", str(tmp_path / "cache"))
    write_kernel(place, STAMP, "a.kernel", b"code")
    folder = tmp_path / "cache" / f"kernels-{STAMP}"
    (folder / "b.kernel").symlink_to(folder / "a.kernel")
    assert read_kernel(place, STAMP, "b.kernel") is None


@posix
def test_the_temporary_folder_is_private_to_the_user(tmp_path):
    place = Place("temporary", str(tmp_path / "cccf_index"), private=True)
    open_folder(place, STAMP)
    assert (tmp_path / "cccf_index").stat().st_mode & 0o777 == 0o700


@posix
@pytest.mark.parametrize("trap", ["link", "open to all", "file", pytest.param("of another user", marks=as_root)])
def test_a_temporary_folder_that_somebody_else_may_have_made_is_refused(tmp_path, trap):
    path = tmp_path / "cccf_index"
    if trap == "link":
        (tmp_path / "elsewhere").mkdir(0o700)
        path.symlink_to(tmp_path / "elsewhere")
    elif trap == "file":
        path.write_text("")
    else:
        path.mkdir(0o700)
        path.chmod(0o777 if trap == "open to all" else 0o700)
        if trap == "of another user":
            os.chown(path, NOBODY, NOBODY)
    place = Place("temporary", str(path), private=True)
    with pytest.raises(OSError, match=r"private folder|directory"):
        write_kernel(place, STAMP, "a.kernel", b"code")
    assert read_kernel(place, STAMP, "a.kernel") is None


def test_kernels_of_other_versions_are_removed_when_they_are_long_unused(tmp_path):
    place, old = Place("user", str(tmp_path)), time.time() - 40 * 86400
    for name in ("kernels-1111111111111111", "kernels-2222222222222222", "kernels-of-somebody", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.kernel").write_text("")
        os.utime(tmp_path / name, (old, old))
    assert read_kernel(place, "2222222222222222", "a.kernel") == b""  # marks the folder as used
    write_kernel(place, STAMP, "a.kernel", b"code")
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {f"kernels-{STAMP}", "kernels-2222222222222222", "kernels-of-somebody", "data"}


def test_the_stamp_covers_every_source_file_and_the_versions(monkeypatch):
    assert cache._hash_sources() == cache.STAMP
    for module in (cache.numba, cache.llvmlite, np):
        with monkeypatch.context() as patch:
            patch.setattr(module, "__version__", "0.0")
            assert cache._hash_sources() != cache.STAMP
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version", "another")
        assert cache._hash_sources() != cache.STAMP


def test_a_kernel_that_cannot_be_kept_is_no_error(folder, monkeypatch):
    """Whatever numba's private parts do: a compiled kernel runs."""

    def fail(*_):
        raise RuntimeError("changed in another version of numba")

    monkeypatch.setattr(cache, "dumps", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_kernel()(1) == 2
    assert list_files(folder) == []
