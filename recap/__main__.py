"""`python -m recap`: see `cli`."""

import sys

from .cli import main

sys.exit(main())
