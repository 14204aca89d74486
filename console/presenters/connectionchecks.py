"""View model of the checklist of a connection test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from console.presenters import numbers
from console.presenters.badges import Family
from console.presenters.numbers import Moment, moment
from linkengine.domain.connectionchecks import CheckStatus, ConnectionCheck, ConnectionCheckCode

_C = ConnectionCheckCode
CHECK_LABELS: Mapping[ConnectionCheckCode, str] = MappingProxyType(
    {
        _C.DNS: "Name resolution (DNS)",
        _C.TCP: "TCP connection",
        _C.TLS: "TLS",
        _C.PROTOCOL: "Kafka protocol",
        _C.AUTHENTICATION: "Authentication",
        _C.CLUSTER_ID: "Cluster ID",
        _C.VERSION: "Kafka version",
        _C.BROKERS: "Advertised brokers",
        _C.DESCRIBE_TOPICS: "DESCRIBE on topics",
        _C.READ_TOPICS: "READ on topics",
        _C.DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS on topics",
        _C.READ_GROUPS: "DESCRIBE on consumer groups",
        _C.DESCRIBE_CLUSTER: "DESCRIBE on the cluster",
        _C.AUTHORIZER: "Authorizer",
        _C.CREATE_TOPICS: "CREATE on the cluster",
        _C.ALTER_CLUSTER: "ALTER on the cluster",
    }
)
_LOOKS: Mapping[CheckStatus, tuple[str, str, Family]] = MappingProxyType(
    {
        CheckStatus.PASSED: ("check-circle-fill", "passed", Family.OK),
        CheckStatus.WARNING: ("exclamation-triangle-fill", "warning", Family.WARN),
        CheckStatus.FAILED: ("x-octagon-fill", "failed", Family.BAD),
        CheckStatus.NOT_TESTED: ("dash-circle", "not tested", Family.IDLE),
    }
)
if set(CHECK_LABELS) != set(ConnectionCheckCode) or set(_LOOKS) != set(CheckStatus):
    raise AssertionError("each check and each status needs a label")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """A row of the checklist."""

    name: str
    icon: str
    word: str
    family: Family
    finding: str
    fix: str
    error_code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist:
    """The checklist with its summary."""

    title: str
    family: Family
    icon: str
    summary: str
    rows: Sequence[CheckRow]
    at: Moment | None = None  # None: just now


def checklist(checks: Sequence[ConnectionCheck], *, tested_at: datetime | None = None, now: datetime) -> Checklist:
    """Return the view of a connection test."""
    failed = sum(check.status is CheckStatus.FAILED for check in checks)
    warnings = sum(check.status is CheckStatus.WARNING for check in checks)
    if failed:
        title, status, summary = "Connection test failed", CheckStatus.FAILED, f"{numbers.plural(failed, 'check')} failed."
    elif warnings:
        title, status = "Connection works, with warnings", CheckStatus.WARNING
        summary = f"{numbers.plural(warnings, 'check')} with a warning: not every feature works."
    else:
        title, status, summary = "Connection successful", CheckStatus.PASSED, "Every check passed."
    icon, _, family = _LOOKS[status]
    rows = [_row(check) for check in checks]
    at = moment(tested_at, now=now)
    return Checklist(title=title, family=family, icon=icon, summary=summary, rows=rows, at=at)


def _row(check: ConnectionCheck) -> CheckRow:
    icon, word, family = _LOOKS[check.status]
    return CheckRow(
        name=CHECK_LABELS[check.code],
        icon=icon,
        word=word,
        family=family,
        finding=check.finding,
        fix=check.fix,
        error_code=check.error_code,
    )
