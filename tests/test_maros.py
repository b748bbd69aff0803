"""Real QPs (Maros–Meszaros): honest statuses, and objectives that agree with Clarabel's where it says solved."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import maros

QUICK = ["CVXQP3_S", "DUAL1", "DUALC5", "GENHS28", "HS21", "HS51", "LOTSCHD", "QRECIPE", "VALUES"]


@pytest.mark.parametrize("name", QUICK)
def test_quick_problems_take_the_packages_iterations(name, data_folder):
    row = maros.compare(data_folder / "maros_meszaros" / f"{name}.mat")
    assert row["status"] == row["fixed"]["status"] == row["osqp"]["status"] == "solved"
    assert row["agrees"]
    assert row["fixed"]["iterations"] == row["osqp"]["iterations"]


@pytest.mark.slow
def test_every_problem(data_folder):
    files = sorted((data_folder / "maros_meszaros").glob("*.mat"))
    assert len(files) == 29
    rows = [maros.compare(path) for path in files]
    for row in rows:
        assert row["status"] in ("solved", "iteration limit"), row["name"]  # all 29 have optima
        assert row["status"] != "solved" or row["agrees"], row["name"]
    solved = sum(row["status"] == "solved" for row in rows)
    assert solved >= sum(row["osqp"]["status"] == "solved" for row in rows)
    assert solved >= sum(row["osqp_adaptive"]["status"] == "solved" for row in rows)
    assert solved >= 21
