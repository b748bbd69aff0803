"""Work that is begun on another core before it is asked for."""

import threading

import jax
import jax.numpy as jnp
import pytest

from longstep.engine import aside


def test_work_is_done_once_and_elsewhere():
    threads = []
    ready = aside.begin_aside(lambda: threads.append(threading.current_thread()) or 5)
    assert ready() == ready() == 5
    assert len(threads) == 1
    # With one core nothing is gained by it, and this one may be all there is.
    assert (threads[0] is threading.current_thread()) == (aside.workers() == 1)


def test_with_one_core_work_waits_until_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(aside, "workers", lambda: 1)
    done = []
    ready = aside.begin_aside(lambda: done.append(1))
    assert not done
    ready()
    ready()
    assert done == [1]


def test_what_work_raises_comes_out_where_it_is_asked_for():
    def fail():
        raise ValueError("no such thing")

    ready = aside.begin_aside(fail)
    with pytest.raises(ValueError, match="no such thing"):
        ready()
    assert aside.begin_aside(lambda: 1)() == 1


@pytest.mark.parametrize("wide", [False, True])
def test_numbers_are_as_wide_as_where_work_begins(wide):
    with jax.enable_x64(wide):
        ready = aside.begin_aside(lambda: jnp.ones(2).dtype)
    assert ready() == (jnp.float64 if wide else jnp.float32)
