"""Compiled programs are forgotten before a process has no room for more."""

import jax
import jax.numpy as jnp
import pytest

from longstep._util import programs


@pytest.mark.parametrize(("share", "forgotten"), [(1e-9, True), (1.0, False)])
def test_programs_are_forgotten_where_there_are_too_many(monkeypatch, share, forgotten):
    if not programs._MAPS.exists():
        pytest.skip("only Linux counts memory maps")
    program = jax.jit(lambda x: x + 1)
    program(jnp.ones(3))
    monkeypatch.setattr(programs, "_SHARE", share)
    programs.make_room()
    assert (program._cache_size() == 0) == forgotten
    assert program(jnp.ones(3))[0] == 2
