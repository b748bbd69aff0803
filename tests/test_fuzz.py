"""A short run of the fuzzer, which `make fuzz` runs for longer."""

import json
import subprocess
import sys
from pathlib import Path

from .fuzz.trials import TRIALS

ROOT = Path(__file__).parent.parent


def test_a_short_run_finds_nothing(tmp_path):
    """Each trial is made once at least, with every kind of input, file and problem."""
    call = [sys.executable, "-m", "tests.fuzz", "--seconds", "18", "--seed", "3", "--out", str(tmp_path / "table.json")]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [row["trials"] for row in rows] == list(TRIALS)
    assert all(row["number"] > 0 and row["violations"] == 0 for row in rows)
