"""The command line: parse, call, print. `longstep --help` tells the rest."""

from .app import app as app
from .app import main as main
