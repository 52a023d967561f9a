"""`python -m podium`"""

import sys

sys.path[:] = sys.path[1:] if not sys.flags.safe_path else sys.path  # Python put the current folder first

from podium.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
