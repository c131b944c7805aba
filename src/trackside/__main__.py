"""`python -m trackside`: the command line, also for jobs that start it as a child."""

import sys

if not sys.flags.safe_path:
    # `python -m` puts the working directory first: a json.py there is the user's program's, not ours.
    del sys.path[0]

from trackside.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
