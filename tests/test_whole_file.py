"""Files that appear whole or not at all (of models: `model/test_file.py`)."""

import os
import stat
import threading

import pytest

from cstc.whole_file import whole_file, write_whole


def test_others_see_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes(b"old")
    with whole_file(str(path)) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(TypeError), whole_file(str(path)) as stream:
        stream.writelines([b"half", None])
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    """A rename would put a file in the place of /dev/null, if the user may do that."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_whole(str(pipe), b"all of it")
    reader.join(timeout=10)
    assert found == [b"all of it"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
