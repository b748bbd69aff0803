import os
from pathlib import Path

# Nearly all of a first run is compilation, and the tests' programs are too small to gain from its costly passes.
_QUICK = "--xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=0"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK}".strip()

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

jax.config.update("jax_enable_x64", True)
# Compiled programs are kept between runs, so that a second `make test` spends its time on tests.
_cache = Path(__file__).parent.parent / ".cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(_cache))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)

settings.register_profile(
    "longstep", deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("longstep")


_maps = Path("/proc/self/maps")


@pytest.fixture(autouse=True, scope="module")
def room_for_programs():
    """Every compiled program takes memory maps. A process may have some 65,000, too few for all tests' programs."""
    yield
    if _maps.exists() and _maps.read_bytes().count(b"\n") > 25_000:
        jax.clear_caches()


@pytest.fixture(scope="session")
def data_folder():
    """Real images and QPs, beside the checkout or where LONGSTEP_DATA says; tests that need them skip without."""
    folder = Path(os.environ.get("LONGSTEP_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data in {folder}; set LONGSTEP_DATA")
    return folder
