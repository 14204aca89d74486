"""``python -m linkctl``."""

from linkctl.cli import main

if __name__ == "__main__":
    main()
