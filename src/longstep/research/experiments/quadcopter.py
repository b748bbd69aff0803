"""Quadcopter MPC: linear dynamics around hover, horizon 10, the working example of this library.

States are position, angles (roll, pitch, yaw), velocity and angular rates, each of three; four rotors. The QP has 172
unknowns (11 states, 10 inputs), 132 equalities (the initial state and the dynamics) and 172 bounds, most of them
infinite. The parameter is the initial state.
"""

import numpy as np
import scipy.sparse as sp

from longstep import QP, Affine

STATES = 12
INPUTS = 4
HORIZON = 10
DT = 0.1
STATE_COST = np.diag([10.0] * 6 + [1.0] * 3 + [5.0] * 3)
INPUT_COST = 0.1 * np.eye(INPUTS)
TARGET = np.eye(STATES)[2]  # hover at height one
ANGLE_LIMIT = np.pi / 6
INPUT_LIMIT = 1.5
SPREAD = np.array([1.0] * 3 + [0.1] * 3 + [0.5] * 3 + [0.1] * 3)


def dynamics() -> tuple[np.ndarray, np.ndarray]:
    """Return A and B of s⁺ = As + Bu."""
    A = np.eye(STATES)
    B = np.zeros((STATES, INPUTS))
    A[np.arange(6), np.arange(6, 12)] = DT
    A[6, 4] = 9.8 * DT
    A[7, 3] = -9.8 * DT
    A[0, 4] = 0.5 * 9.8 * DT**2
    A[1, 3] = -0.5 * 9.8 * DT**2
    B[8] = 0.7 * DT
    B[2] = 0.5 * 0.7 * DT**2
    B[9] = 2 * DT * np.array([0, 1, 0, -1])
    B[10] = 2 * DT * np.array([-1, 0, 1, 0])
    B[11] = 0.5 * DT * np.array([1, -1, 1, -1])
    return A, B


def family(dtype: str = "float64", equilibrate: bool = True) -> QP:
    """Return the QP over (s_0 … s_T, u_0 … u_{T−1}) with the initial state as its parameter."""
    A, B = dynamics()
    T = HORIZON
    stages = HORIZON + 1
    P = sp.block_diag([sp.kron(sp.eye_array(stages), STATE_COST), sp.kron(sp.eye_array(T), INPUT_COST)])
    q = np.concatenate([np.tile(-STATE_COST @ TARGET, stages), np.zeros(T * INPUTS)])
    n = P.shape[0]
    # −s_0 = −x and A s_t − s_{t+1} + B u_t = 0, then bounds on every unknown.
    states = sp.kron(sp.eye_array(stages), -np.eye(STATES)) + sp.kron(sp.eye_array(stages, k=-1), A)
    inputs = sp.kron(sp.vstack([sp.csr_array((1, T)), sp.eye_array(T)]), B)
    rows = sp.vstack([sp.hstack([states, inputs]), sp.eye_array(n)])
    limit = np.full(STATES, np.inf)
    limit[3:5] = ANGLE_LIMIT
    u = np.concatenate([np.zeros(stages * STATES), np.tile(limit, stages), np.full(T * INPUTS, INPUT_LIMIT)])
    initial = sp.vstack([-sp.eye_array(STATES), sp.csr_array((rows.shape[0] - STATES, STATES))])
    return QP(
        P, rows, q=q, l=-u, u=u, parameter=Affine(l=initial, u=initial), equilibrate=equilibrate, dtype=dtype
    )  # fmt: skip


def first_input(x: np.ndarray) -> np.ndarray:
    """Return the inputs of the first stage out of a point of the QP."""
    first = STATES * (HORIZON + 1)
    return x[first : first + INPUTS]


def sample(rng: np.random.Generator) -> np.ndarray:
    """Return an initial state, uniform around the origin."""
    return rng.uniform(-SPREAD, SPREAD)


def sample_many(count: int, seed: int) -> np.ndarray:
    """Return `count` initial states (count, 12)."""
    rng = np.random.default_rng(seed)
    return np.stack([sample(rng) for _ in range(count)])
