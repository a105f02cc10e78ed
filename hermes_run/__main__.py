"""`python -m hermes_run` is `hermes-run`."""

import sys

from hermes_run.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
