"""`python -m podium`"""

from podium.cli import main

if __name__ == "__main__":
    main()
