import os
from importlib.metadata import version
from pathlib import Path

# Nearly all of a first run is compilation, and the tests' programs are too small to gain from its costly passes.
_QUICK = "--xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=0"
# XLA stops at a flag that it does not know; this one halves the time, in the versions that were tried.
if (0, 8) <= tuple(int(part) for part in version("jaxlib").split(".")[:2]) < (0, 11):
    _QUICK += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK}".strip()
# Compiled programs are kept between runs, so that a second `make test` spends its time on tests, and are shared with
# the processes that tests start.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parent.parent / ".cache" / "jax")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests import typecheck  # noqa: E402

typecheck.install()
jax.config.update("jax_enable_x64", True)

settings.register_profile(
    "longstep", deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("longstep")


# The files that take longest, longest first.
_LONG = ("test_reproduce", "test_solver", "test_laws", "test_cli", "test_structure", "test_model", "test_batching")


# Tests of some seconds, a line each: pytest's own --durations=0 tells which they are.
_SLOW = frozenset((Path(__file__).parent / "slow.txt").read_text().splitlines())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests on the list are slow. Long files come first: with two workers neither is left alone with one at the end."""
    for item in items:
        if item.nodeid in _SLOW:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _LONG.index(item.path.stem) if item.path.stem in _LONG else len(_LONG))


@pytest.fixture(autouse=True, scope="module")
def room_for_programs():
    """A process has too few memory maps for all tests' programs."""
    from longstep._util.programs import make_room

    yield
    make_room()


@pytest.fixture
def sparse_factors(monkeypatch):
    """All families that are made are taken for large and sparse ones."""
    from longstep.linalg.systems import augmented, sparse

    monkeypatch.setattr(augmented, "_LEAST", 1)
    monkeypatch.setattr(augmented, "_SPARSE", 1e9)
    monkeypatch.setattr(sparse, "_SOLVE", 0.0)


@pytest.fixture(scope="session")
def data_folder():
    """Real images and QPs, beside the checkout or where LONGSTEP_DATA says; tests that need them skip without."""
    folder = Path(os.environ.get("LONGSTEP_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data in {folder}; set LONGSTEP_DATA")
    return folder
