"""The hosted Space as one declarative file: `python -m recap.space check`, `diff`, `apply`.

`spacefile` reads the Spacefile, `check` compares it with the repository without a network, `deploy` reads
what is hosted, plans the calls that lead to what the Spacefile says, and makes them.
"""
