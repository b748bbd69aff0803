from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="package")
def kept_libraries():
    """What was compiled stays between runs, as JAX's programs do; a changed source has another hash."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LONGSTEP_CACHE", str(Path(__file__).parents[2] / ".cache" / "longstep"))
        yield
