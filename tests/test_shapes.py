"""The annotations of arrays are enforced while tests run, in overrides that have none of their own too."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

import longstep as ls
from longstep.algorithms.base import Algorithm
from longstep.algorithms.registry import REGISTERED
from longstep.cones.base import Cone
from longstep.cones.registry import KINDS
from longstep.linalg.matrix import Identity, inner


def test_a_function():
    with pytest.raises(TypeCheckError):
        inner(jnp.zeros(3), jnp.zeros(4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cone_is_given_rows(kind):
    cone = kind(kind.empty)
    assert kind.project is not Cone.project
    with pytest.raises(TypeCheckError, match="v"):
        cone.project(jnp.zeros(()))


def test_a_matrix_is_given_rows():
    with pytest.raises(TypeCheckError):
        Identity(3, jnp.dtype(float)).mv(jnp.zeros(()))


@pytest.mark.parametrize("algorithm", [a for a in REGISTERED if a.log_floor is not Algorithm.log_floor])
def test_arguments_fit_each_other(algorithm):
    with pytest.raises(TypeCheckError):
        algorithm().log_floor(jnp.zeros(3), jnp.zeros(4))


def test_what_is_returned():
    one_for_each = ls.CustomProx(jnp.abs, lambda v, t: v)
    with pytest.raises(TypeCheckError, match="return"):
        one_for_each.value(jnp.ones(3))
