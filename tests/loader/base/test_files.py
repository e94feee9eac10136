"""Files that are written completely, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from fairlead.loader.base.files import replace_file
from fairlead.loader.trace.trace import save_events


def write_half(path: Path) -> None:
    """Write, and then meet a full disk."""
    with replace_file(path) as stream:
        stream.write(b"half")
        stream.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for there in (b"", b"before"):
        if there:
            path.write_bytes(there)
        with pytest.raises(OSError, match="No space"):
            write_half(path)
        assert [one.read_bytes() for one in tmp_path.iterdir()] == ([there] if there else [])
    with replace_file(path) as stream:
        stream.write(b"after")
    assert path.read_bytes() == b"after" and len(list(tmp_path.iterdir())) == 1


def test_a_trace_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    save_events([{"ph": "M"}], path)
    before = path.read_bytes()

    def refuse(*names: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        save_events([{"ph": "X"}], path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_links_are_followed_and_pipes_stay(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    with replace_file(link) as stream:
        stream.write(b"text")
    assert link.is_symlink() and target.read_bytes() == b"text"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replace_file(pipe) as stream:
            stream.write(b"text")
        assert os.read(reader, 16) == b"text" and pipe.is_fifo()
    finally:
        os.close(reader)
