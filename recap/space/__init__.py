"""The hosted Space as one declarative file: `python -m recap.space check`, `diff`, `apply`.

`spacefile` reads the Spacefile, `check` compares it with the repository without a network, `live` reads
what is hosted, `plan` says which calls lead from the one to the other, and makes them.
"""
