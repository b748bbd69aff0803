"""Values as JSON has them, for files and for `--json`."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

# What a JSON document is made of, for those who write one and for those who read one.
Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | bool | None"


def make_plain(value: object) -> Json:
    """Return a value as JSON has it: arrays become lists, paths and the like text, and what is not finite null."""
    if isinstance(value, Mapping):
        return {str(key): make_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [make_plain(each) for each in value]
    if (convert := getattr(value, "tolist", None)) is not None:
        return make_plain(convert())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
