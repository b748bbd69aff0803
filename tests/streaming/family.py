"""A small family with names, its instances, and files of them that longstep did not write."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import longstep as ls
from longstep.families.names import Block, Layout

NAMES = ["c[0]", "c[1]", "c[2]", "top"]


def make_family():
    """Minimise a quadratic over 0 ≤ (u, w) ≤ 1 with u₀ + u₁ + w ≤ top."""
    layout = Layout(
        [Block("c", np.arange(3)), Block("top", np.array(3))],
        [Block("u", np.arange(2)), Block("w", np.array(2))],
    )
    P = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.1], [0.0, 0.1, 0.3]])
    A = np.vstack([np.eye(3), np.ones(3)])
    maps = ls.Affine(q=np.hstack([np.eye(3), np.zeros((3, 1))]), u=np.vstack([np.zeros((3, 4)), [0, 0, 0, 1.0]]))
    bounds = {"l": np.array([0, 0, 0, -np.inf]), "u": np.array([1.0, 1, 1, 0])}
    return ls.QP(P, A, **bounds, parameter=maps, layout=layout)


def make_solver():
    return ls.Solver(make_family())


def draw(count, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.normal(size=(count, 3)), 0.5 + rng.random(count)])


def write_parquet(path, x, names=NAMES, group=70, **more):
    columns = dict(zip(names, np.asarray(x).T, strict=True)) | more
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def write_csv(path, x):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([NAMES, *np.asarray(x).tolist()])
    return path
