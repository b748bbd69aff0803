"""What library code says: on stderr by default, to the user's handlers where there are some, nothing if not asked."""

import logging

import pytest

from longstep._util import progress


@pytest.fixture
def bare(monkeypatch):
    """A logger as a script finds it: pytest has handlers above the real one."""
    assert progress.LOGGER is logging.getLogger("longstep")
    monkeypatch.setattr(progress, "LOGGER", logging.Logger("longstep"))
    return progress.LOGGER


def test_lines_go_to_stderr_unless_there_is_a_handler(bare, capsys):
    progress.say("one")
    assert capsys.readouterr().err == "one\n"
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.name, record.getMessage()))
    bare.addHandler(handler)
    bare.setLevel("INFO")
    progress.say("two % three")
    assert lines == [("INFO", "longstep", "two % three")]
    assert capsys.readouterr().err == ""


def test_phases_tell_their_begin_and_their_time(bare, capsys):
    phases = progress.Phases(True)
    with phases.time("test", "what they cost"):
        assert capsys.readouterr().err == "test: what they cost …\n"
    assert capsys.readouterr().err.startswith("test: done in ")
    assert list(phases.seconds) == ["test"]
    with progress.Phases(False).time("test", "what they cost"):
        pass
    assert capsys.readouterr().err == ""
