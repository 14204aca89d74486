"""Serialization of copy plans for copy workers, which may run another version than the console.

A pickled plan would be a list of values by position, so a worker of another version would silently confuse fields. As JSON,
fields are matched by name: unknown fields are dropped, and missing fields have their defaults. ``PLAN_VERSION`` is increased
with each field that must not be dropped, because the copy would be wrong; a worker refuses plans of a higher version.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from operator import attrgetter
from typing import Any, TypeVar

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import CopyPlan, CopyTuning, PartitionAssignment

PLAN_VERSION = 2  # 2: copy workers sign with the plan's keys; increased with each field that must not be ignored
_BEFORE = "A Spark executor has another version than the worker: "
_BEHIND = (
    ". It copied nothing. Bring the Spark nodes to the worker's version (always upgrade them first); copying then resumes."
)
_REASON = re.compile(f"{re.escape(_BEFORE)}(.*?){re.escape(_BEHIND)}")
# Python's error if the worker's function is missing: an executor from before plan versions, or without this package
_ABSENT = re.compile(r"Can't get attribute '\w+' on <module 'linkengine[\w.]*'|No module named 'linkengine[\w.]*'")
_NOT_COMPARED = ("source_seen",)  # changes while a partition is copied; a new hold gets the value of its time
_REQUEST = "request_id"  # differs in each reconcile pass, and does not change what is copied
T = TypeVar("T")


class PlanText(str):
    """A plan as JSON. It contains credentials, so its repr is hidden."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<a copy plan>"


def write_plan(plan: CopyPlan, *, version: int = PLAN_VERSION) -> PlanText:
    """Return a plan as JSON."""
    return PlanText(json.dumps({"version": version, "plan": asdict(plan)}))


def plan_digest(plan: CopyPlan) -> str:
    """Return a digest that is equal for plans that copy the same."""
    values = asdict(replace(plan, assignments=()))
    del values[_REQUEST]
    names = [field.name for field in fields(PartitionAssignment) if field.name not in _NOT_COMPARED]
    values["assignments"] = [names, list(map(attrgetter(*names), plan.assignments))]  # asdict would deep-copy each, in 0.1 ms
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_plan(text: str) -> CopyPlan:
    """Return the plan that ``write_plan`` of any version wrote; raise LinkEngineError if this version cannot read it safely."""
    found = json.loads(text)
    if found["version"] > PLAN_VERSION:
        raise _other_version(f"it received a copy plan of version {found['version']}, and supports up to {PLAN_VERSION}")
    try:
        return _plan(found["plan"])
    except (KeyError, TypeError) as error:
        raise _other_version(f"it cannot read the copy plan it received ({type(error).__name__})") from None


def other_version(failure: str) -> LinkEngineError | None:
    """Return an error if a failed Spark job's text shows an executor of another version or without the package, else None."""
    reason = _REASON.search(failure)
    if reason:
        return _other_version(reason[1])
    absent = _ABSENT.search(failure)
    return _other_version(absent[0]) if absent else None


def _other_version(reason: str) -> LinkEngineError:
    return LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, f"{_BEFORE}{reason}{_BEHIND}")


def _plan(values: Mapping[str, Any]) -> CopyPlan:
    made = {
        "source": _address(values["source"]),
        "destination": _address(values["destination"]),
        "assignments": tuple(_assignment(assignment) for assignment in values["assignments"]),
        "tuning": _known(CopyTuning, values.get("tuning", {})),
        "signing_keys": tuple(values["signing_keys"]),
    }
    return _known(CopyPlan, {**values, **made})


def _address(values: Mapping[str, Any]) -> ClusterAddress:
    extensions = tuple((name, value) for name, value in values.get("oauth_extensions", ()))
    networks = {name: tuple(values[name]) for name in ("allowed_networks", "denied_networks") if name in values}
    return _known(ClusterAddress, {**values, "oauth_extensions": extensions, **networks})


def _assignment(values: Mapping[str, Any]) -> PartitionAssignment:
    seen = values.get("source_seen")
    return _known(PartitionAssignment, {**values, "source_seen": seen and tuple(seen)})


def _known(kind: type[T], values: Mapping[str, Any]) -> T:
    """Create a value from the known fields; raise TypeError if a field without a default is missing."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # always a dataclass
    return kind(**{name: value for name, value in values.items() if name in names})
