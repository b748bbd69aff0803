"""How results are shown: tables and figures."""
