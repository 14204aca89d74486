"""``python -m clients [sdk] [terraform] [consumers]``: run the product on two clusters and let clients use it."""

from __future__ import annotations

import argparse
import sys

from clients import consumers, sdk, terraform
from clients.stage import VAR, Stage, StepFailedError

STORIES = {"sdk": sdk.run, "terraform": terraform.run, "consumers": consumers.run}


def main() -> int:
    """Run the chosen stories, all by default; answer the exit code."""
    parser = argparse.ArgumentParser(prog="make clients", description=__doc__)
    parser.add_argument("stories", nargs="*", help="sdk, terraform, consumers; default: all")
    chosen = parser.parse_args().stories or list(STORIES)
    if unknown := set(chosen) - set(STORIES):
        parser.error(f"no such story: {', '.join(sorted(unknown))}")
    try:
        with Stage(VAR / "clients") as stage:
            for name in chosen:
                print(f"\n{name}")
                STORIES[name](stage)
    except StepFailedError as error:
        print(f"\nFAIL {error}")
        return 1
    print("\nAll steps passed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
