"""`gl.load` of files made to be harmful, or changed by chance: nothing of them runs, nothing hangs, memory is bounded, errors are clear."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from evil_files import archive_of, bombs, changed, drawn, made, records, valid
from hypothesis import HealthCheck, given, settings, strategies as st

import gradlab as gl
from gradlab.utils.serialization import FileFormatError, from_bytes
from gradlab.utils.serialization.torch_reading import STREAM

KINDS = sorted(valid())
settings_here = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def watched(first, last):
    """What a process of its own, with little memory, makes of the files of these seeds."""
    program = [sys.executable, str(Path(__file__).with_name("evil_files.py")), str(first), str(last)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of a process's memory")
def test_nothing_runs_and_memory_is_bounded():
    found = watched(0, 800)
    assert not found["wrong"] and found["read"] > 50 and found["slowest"][0] < 60, found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of a process's memory")
@pytest.mark.parametrize("part", range(4))
def test_the_same_of_many_more(part):
    found = watched(10_000 * part + 800, 10_000 * part + 10_800)
    assert not found["wrong"] and found["read"] > 500 and found["slowest"][0] < 60, found


def clear(content):
    """Reads it, or fails with an error that names the file and is short."""
    try:
        return from_bytes(content, "evil.pt")
    except FileFormatError as error:
        assert "evil.pt" in str(error) and len(str(error)) < 600
    except RuntimeError as error:
        assert "a tensor was saved from" in str(error)
    return None


@settings_here
@given(st.integers(0, 1 << 40))
def test_files_by_chance(seed):
    clear(made(seed)[1])


@settings_here
@given(st.sampled_from(KINDS), st.randoms(use_true_random=False))
def test_valid_files_that_were_changed(kind, choose):
    clear(changed(choose, valid()[kind]))


@settings_here
@given(st.sampled_from(["archive", "protocol4"]), st.randoms(use_true_random=False))
def test_pickles_that_were_changed(name, choose):
    """In an archive whose own checksums hold."""
    parts = dict(records(name))
    clear(archive_of(changed(choose, parts.pop("data.pkl")), **parts))


@settings_here
@given(st.randoms(use_true_random=False))
def test_instructions_by_chance(choose):
    clear(archive_of(drawn(choose), **{"data/0": bytes(24)}))


@settings_here
@given(
    st.sampled_from([b"", b"PK\x03\x04", STREAM, b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00", b"\x80\x02", bytes(8) + b"{"]),
    st.binary(max_size=200),
)
def test_any_bytes(begin, rest):
    clear(begin + rest)


@settings_here
@given(st.binary(max_size=60))
def test_any_bytes_as_a_pickle(content):
    clear(archive_of(content))


@pytest.mark.parametrize("name", bombs())
def test_bombs(name):
    """A few bytes that say years of work, or all memory: refused, but for those that are only long."""
    found = clear(archive_of(bombs()[name], **{"data/0": bytes(24)}))
    assert found is None or name in ("deep", "many dtypes")


def test_archives_whose_records_lie_over_one_another():
    """Each of many entries says that the same megabyte is its own: small files would grow without end."""
    gl.save({"x": gl.zeros(1 << 18)}, path := io.BytesIO(), format="torch")
    whole = path.getvalue()
    end = whole.rindex(b"PK\x05\x06")
    begin = int.from_bytes(whole[end + 16 : end + 20], "little")
    entries = whole[begin:end].split(b"PK\x01\x02")[1:]
    big = next(entry for entry in entries if b"data/0" in entry)
    directory = b"".join(b"PK\x01\x02" + entry for entry in [*entries, *[big.replace(b"data/0", b"data/%d" % i) for i in range(1, 9)]])
    count = (len(entries) + 8).to_bytes(2, "little")
    tail = b"PK\x05\x06" + bytes(4) + count + count + len(directory).to_bytes(4, "little") + begin.to_bytes(4, "little") + bytes(2)
    with pytest.raises(FileFormatError, match=r"evil\.pt"):
        from_bytes(whole[:begin] + directory + tail, "evil.pt")
