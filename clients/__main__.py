"""``python -m clients [sdk] [terraform] [consumers]``: run the product on two clusters and test it with these clients."""

from __future__ import annotations

import argparse
import sys

from clients import consumers, sdk, terraform
from clients.environment import VAR, ClientEnvironment, StepFailedError

SCENARIOS = {"sdk": sdk.run, "terraform": terraform.run, "consumers": consumers.run}


def main() -> int:
    """Run the chosen scenarios, all by default; return the exit code."""
    parser = argparse.ArgumentParser(prog="make clients", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="sdk, terraform, consumers; default: all")
    chosen = parser.parse_args().scenarios or list(SCENARIOS)
    if unknown := set(chosen) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    try:
        with ClientEnvironment(VAR / "clients") as environment:
            for name in chosen:
                print(f"\n{name}")
                SCENARIOS[name](environment)
    except StepFailedError as error:
        print(f"\nFAIL {error}")
        return 1
    print("\nAll steps passed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
