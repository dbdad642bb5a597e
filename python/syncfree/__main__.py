"""`python -m syncfree` is the command `syncfree`."""

import sys

from syncfree.cli import main

sys.exit(main())
