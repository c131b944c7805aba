"""`python -m trackside`: the command line, also for jobs that start it as a child."""

import sys

from trackside.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
