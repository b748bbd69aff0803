"""How many threads linear algebra may use."""

import numpy as np
from threadpoolctl import threadpool_info

from longstep._util.threads import one_blas_thread


def count_threads():
    np.linalg.solve(np.eye(2), np.ones(2))
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_the_last_who_wants_one_thread_gives_the_others_back():
    before = count_threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    assert count_threads() == {1}
    # In the order in which threads may end: the first one goes first.
    first.__exit__(None, None, None)
    assert count_threads() == {1}
    second.__exit__(None, None, None)
    assert count_threads() == before
