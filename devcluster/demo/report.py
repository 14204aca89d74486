"""The demo's report, and the file with which scripts use the running demo. Text and JSON from figures, without requests."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from devcluster.demo.flights import TOPICS
from devcluster.demo.linking import LINK, Linking, MirrorFigures
from devcluster.demo.services import Console
from devcluster.kafka import KafkaCluster

MB = 1_000_000


def report(linking: Linking, *, elapsed_s: float) -> str:
    """Return the report as text."""
    rows = list(linking.figures.values())
    total = sum(row.bytes_copied for row in rows)
    rate = total / MB / linking.copy_seconds if linking.copy_seconds else 0.0
    compared = sum(row.verify.get("records_compared") or 0 for row in rows)
    differences = sum(row.verify.get("differences") or 0 for row in rows)
    lines = [
        "",
        f"{'mirror':<10}{'state':<8}{'compared':>12}{'differences':>13}{'lag':>6}{'MB':>8}{'seconds':>9}  offsets filled",
        *(_line(row) for row in rows),
        "",
        f"{compared:,} records compared on both sides, {differences:,} differences.",
        f"{total / MB:,.1f} MB copied at {rate:,.1f} MB/s, all partitions together. Report after {elapsed_s:.0f} s.",
    ]
    return "\n".join([*lines, *_problems(rows)])


def _line(row: MirrorFigures) -> str:
    compared, differences = (_count(row.verify.get(name)) for name in ("records_compared", "differences"))
    filled = ", ".join(f"{count:,} {reason.lower().replace('_', ' ')}" for reason, count in sorted(row.gaps.items()))
    state = row.verify.get("status", "?")
    size = f"{row.bytes_copied / MB:,.1f}"
    return (
        f"{row.topic:<10}{state:<8}{compared:>12}{differences:>13}{_count(row.lag):>6}{size:>8}{row.seconds:>9.1f}"
        f"  {filled or 'none'}"
    )


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _problems(rows: list[MirrorFigures]) -> list[str]:
    return [
        f"{row.topic}: {row.verify.get('error_message') or json.dumps(row.verify.get('first_differences'))[:1000]}"
        for row in rows
        if row.verify.get("status") != "EQUAL"
    ]


def invitation(console: Console, linking: Linking, *, user: str, password: str, key: Mapping[str, str]) -> str:
    """Return how to open the running demo's pages and how to use its API."""
    base, basic = console.base_url, f"curl -s -u {key['api_key']}:{key['api_secret']}"
    return "\n".join(
        [
            "",
            f"Console   {base}/   sign in as {user}, password {password}",
            "",
            f"{basic} {base}{linking.kafka_path}/mirrors",
            f"{basic} {base}{linking.own_path}/rates",
            f"{basic} -X POST {base}{linking.own_path}/mirrors/flights/verify-runs",
        ]
    )


def write_handover(
    path: Path, *, console: Console, key: Mapping[str, str], source: KafkaCluster, destination: KafkaCluster
) -> None:
    """Write the data with which a script can use the demo; readable by this user only, since it contains credentials."""
    facts = {
        "base_url": console.base_url,
        **key,
        "link": LINK,
        "mirrors": list(TOPICS),
        "clusters": {"source": _cluster(source), "destination": _cluster(destination)},
    }
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(facts, file, indent=2)


def _cluster(cluster: KafkaCluster) -> dict[str, object]:
    return {
        "id": cluster.cluster_id,
        "bootstrap": cluster.bootstrap,
        "admin": cluster.client("admin"),
        "user": cluster.client("app"),
    }
