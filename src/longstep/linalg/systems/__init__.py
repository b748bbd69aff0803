"""Back ends for the linear systems of a step, one file each, and what chooses among them."""

from .augmented import Augmented as Augmented
from .augmented import Factors as Factors
from .augmented import Quasidefinite as Quasidefinite
from .base import Factored as Factored
from .base import LinearSystem as LinearSystem
from .base import Picked as Picked
from .base import SystemCost as SystemCost
from .base import refinements_for as refinements_for
from .base import respond as respond
from .base import solve as solve
from .operator import Gram as Gram
from .operator import Pattern as Pattern
from .operator import Spectrum as Spectrum
from .registry import ALWAYS as ALWAYS
from .registry import BACK_ENDS as BACK_ENDS
from .registry import ONCE as ONCE
from .registry import choose as choose
from .registry import factorize as factorize
from .registry import factorize_by as factorize_by
from .structure import Structure as Structure
from .structure import find_structure as find_structure
from .structure import require_room as require_room
