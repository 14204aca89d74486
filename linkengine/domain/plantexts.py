"""A copy plan on its way to copy workers, which may run another version than the console: by name, with a version.

Pickled, a plan would be a list of values by position: a worker of another version would take one field for another, and say
nothing. Here a field that the reader does not know is dropped, and one that it misses has its default. Where dropping a field
would copy wrongly, ``PLAN_VERSION`` grows with it, and a worker that knows lower ones only refuses.
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

PLAN_VERSION = 2  # 2: for copy workers, who sign with the keys of the plan; grows with each field that must not be ignored
_BEFORE = "A Spark executor has another version than the worker: "
_BEHIND = ". Nothing was copied by it. Bring the Spark nodes to the worker's version, they first; copying goes on by itself."
_TOLD = re.compile(f"{re.escape(_BEFORE)}(.*?){re.escape(_BEHIND)}")
# what Python says where the worker's function is not there: an executor of before there were versions, or without the product
_ABSENT = re.compile(r"Can't get attribute '\w+' on <module 'linkengine[\w.]*'|No module named 'linkengine[\w.]*'")
_BY_THE_WAY = ("source_seen",)  # grows while a partition is copied; whoever begins gets what was known then
_WHO_ASKED = "request_id"  # another one in each round; what is copied stays the same
T = TypeVar("T")


class PlanText(str):
    """A plan as JSON; it holds credentials, so it is never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<a copy plan>"


def write_plan(plan: CopyPlan, *, version: int = PLAN_VERSION) -> PlanText:
    """Write a plan."""
    return PlanText(json.dumps({"version": version, "plan": asdict(plan)}))


def plan_digest(plan: CopyPlan) -> str:
    """Answer the same text for plans that ask for the same."""
    values = asdict(replace(plan, assignments=()))
    del values[_WHO_ASKED]
    names = [field.name for field in fields(PartitionAssignment) if field.name not in _BY_THE_WAY]
    values["assignments"] = [names, list(map(attrgetter(*names), plan.assignments))]  # asdict would copy each deeply, in 0.1 ms
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_plan(text: str) -> CopyPlan:
    """Read what ``write_plan`` of any version wrote; raise LinkEngineError where it asks for more than is known here."""
    found = json.loads(text)
    if found["version"] > PLAN_VERSION:
        raise _other_version(f"it was sent a copy plan of version {found['version']}, and knows those up to {PLAN_VERSION}")
    try:
        return _plan(found["plan"])
    except (KeyError, TypeError) as error:
        raise _other_version(f"it cannot read the copy plan it was sent ({type(error).__name__})") from None


def other_version(failure: str) -> LinkEngineError | None:
    """Read out of the text of a failed Spark job that an executor has another version, or none; None where it failed else."""
    told = _TOLD.search(failure)
    if told:
        return _other_version(told[1])
    absent = _ABSENT.search(failure)
    return _other_version(absent[0]) if absent else None


def _other_version(what: str) -> LinkEngineError:
    return LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, f"{_BEFORE}{what}{_BEHIND}")


def _plan(values: Mapping[str, Any]) -> CopyPlan:
    made = {
        "source": _address(values["source"]),
        "destination": _address(values["destination"]),
        "assignments": tuple(_assignment(one) for one in values["assignments"]),
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
    """Make a value of the fields that are known here; raise TypeError where one without a default is missing."""
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # only dataclasses come here
    return kind(**{name: value for name, value in values.items() if name in names})
