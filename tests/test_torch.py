"""A solver as a layer of PyTorch: the same solutions and gradients as in JAX, and autograd's own check of them."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longstep as ls
from longstep.families.names import Block, Layout

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'longstep[torch]'")
from longstep.torch import Layer  # noqa: E402

TIGHT = {"eps_abs": 1e-11, "eps_rel": 1e-11, "max_iter": 50_000}


def box(**options):
    """min ½x'Px + q'x with x in a box: which bounds hold depends on q."""
    P = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.5]])
    return ls.QP(P, np.eye(3), q=np.zeros(3), l=-np.ones(3), u=np.ones(3), **options)


def tensor(values, **options):
    return torch.tensor(np.asarray(values, np.float64), **options)


def test_gradients_pass_the_check_of_autograd_and_are_those_of_jax():
    solver = ls.Solver(box(), ladder=False)
    layer = Layer(solver, **TIGHT)
    q = np.array([[0.3, -2.0, 0.4], [-4.0, 0.1, 0.2]])
    inputs = tensor(q, requires_grad=True), tensor(np.full(3, -0.9), requires_grad=True)

    def pick(q, l):
        found = layer(q=q, l=l)
        return found.x, found.y, found.s, found.objective

    # The bounds are shared by both instances.
    assert torch.autograd.gradcheck(pick, inputs, eps=1e-5, atol=1e-6)
    found = layer(q=inputs[0], l=inputs[1])
    assert found.solved.all()
    (found.x[:, 0] * found.objective).sum().backward()
    function = solver.function(**TIGHT)

    def loss(q, l):
        solved = jax.vmap(lambda q: function(q=q, l=l))(q)
        return jnp.sum(solved.x[:, 0] * solved.objective)

    for given, expected in zip(inputs, jax.grad(loss, argnums=(0, 1))(q, np.full(3, -0.9)), strict=True):
        np.testing.assert_allclose(given.grad, expected, atol=1e-12)


def test_a_layer_in_a_network_learns():
    """q is found again from solutions: what a layer is for. The solution is known where no bound holds."""
    layer = Layer(ls.Solver(box(), ladder=False), eps_abs=1e-9, eps_rel=1e-9)
    weights = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    wanted = tensor([0.2, -0.3, 0.1])
    optimizer = torch.optim.LBFGS([weights], max_iter=30)

    def closure():
        optimizer.zero_grad()
        loss = ((layer(q=weights).x - wanted) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    P = box().P.toarray()
    np.testing.assert_allclose(weights.detach(), -P @ wanted.numpy(), atol=1e-3)
    assert "QP" in repr(layer)


def test_names_and_shapes():
    layout = Layout([Block("a", np.array([0, 1])), Block("b", np.array(2))], [Block("X", np.array([[0, -1], [1, 2]]))])
    family = box(parameter=ls.Affine(q=np.eye(3)), layout=layout)
    layer = Layer(ls.Solver(family, ladder=False), **TIGHT)
    a, b = tensor([[0.1, 0.2], [0.3, 0.4]]), tensor(0.5, requires_grad=True)
    found = layer({"a": a, "b": b})
    vectors = layer(torch.cat([a, b.expand(2, 1)], dim=1))
    np.testing.assert_allclose(found.x.detach(), vectors.x.detach(), atol=1e-12)
    X = found.variables["X"]
    assert X.shape == (2, 2, 2)
    assert (X[:, 0, 1] == 0).all()
    X[:, 1, 1].sum().backward()
    # No bound holds: x = −P⁻¹q.
    np.testing.assert_allclose(b.grad, -2 * np.linalg.inv(family.P.toarray())[2, 2], rtol=1e-9)


def test_families_without_constraints_and_single_precision():
    lasso = ls.Composite(ls.Quadratic(np.eye(2), dtype="float32"), ls.L1(0.5))
    layer = Layer(ls.Solver(lasso), eps_abs=1e-6, eps_rel=1e-6)
    q = tensor([[2.0, 0.1]], requires_grad=True)
    found = layer(q=q)
    assert found.y is None
    assert found.x.dtype == torch.float32
    # x = −soft(q, ½).
    found.x.sum().backward()
    np.testing.assert_allclose(found.x.detach(), [[-1.5, 0.0]], atol=1e-5)
    np.testing.assert_allclose(q.grad, [[-1.0, 0.0]], atol=1e-5)
    assert q.grad.dtype == torch.float64


def test_what_was_written_over_is_not_differentiated():
    layer = Layer(ls.Solver(box(), ladder=False))
    q = tensor(np.ones(3), requires_grad=True)
    x = layer(q=q).x
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x.sum().backward()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"q": tensor(np.ones(4))}, ValueError, r"q must have shape \(3,\), or \(N, 3\) for N instances; got \(4,\)"),
        ({"p": tensor(np.ones(3))}, ValueError, "'p' is no parameter of this layer; its parameters are q, l, u"),
        ({"q": np.ones(3)}, TypeError, "q must be a tensor, got ndarray"),
        ({"parameter": tensor(np.ones(3))}, ValueError, "this family has no parameter vector: give q, l, u by name"),
        ({"q": tensor(np.ones((2, 3))), "l": tensor(np.zeros((4, 3)))}, ValueError, "one common number of instances"),
        ({"parameter": tensor(np.ones(3)), "q": tensor(np.ones(3))}, TypeError, "not both"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Layer(ls.Solver(box(), ladder=False))(**arguments)


def test_families_that_do_not_tell_shapes_are_refused():
    solver = ls.Solver(ls.Smooth(lambda z, x: jnp.sum((z - x) ** 2), lipschitz=2.0, n=2))
    with pytest.raises(TypeError, match=r"use solver\.function"):
        Layer(solver)


def test_the_example_of_the_documentation_runs():
    page = (Path(__file__).parents[1] / "docs" / "functions.md").read_text()
    blocks = re.findall(r"``` \{ \.python \.torch \}\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "functions.md", "exec"), {})
