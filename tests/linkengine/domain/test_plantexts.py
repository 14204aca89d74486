"""Copy plans that another version wrote: fields match by name, missing fields have defaults, or the plan is refused."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields, make_dataclass, replace
from typing import Any, TypeVar

import pytest

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import (
    PLAN_VERSION,
    CopyPlan,
    CopyTuning,
    PartitionAssignment,
    other_version,
    plan_digest,
    producer_id_for,
    read_plan,
    write_plan,
)

T = TypeVar("T")


def value_for(name: str, kind: str) -> Any:
    """Return a value that is not the field's default."""
    of_kind = {
        "int": 7,
        "str": f"a {name}",
        "bool": False,
        "float": 0.5,
        "tuple[int, int] | None": (3, 99),
        "tuple[str, ...]": ("0a0b",),
    }
    return (("team", "one"),) if name == "oauth_extensions" else of_kind[kind]


def filled(kind: type[T], **values: Any) -> T:
    """Return a value with every field set, so that a test fails if a field that is added later does not arrive."""
    return kind(**{item.name: values.get(item.name) or value_for(item.name, str(item.type)) for item in fields(kind)})  # type: ignore[arg-type]  # a dataclass


def plan() -> CopyPlan:
    address = filled(ClusterAddress, sasl_password="secret")
    many = tuple(
        filled(PartitionAssignment, partition=number, producer_id=producer_id_for(1, 7, number)) for number in (1, 2, 3)
    )
    return filled(CopyPlan, source=address, destination=address, assignments=many, workers=2, tuning=filled(CopyTuning))


def changed(change: Any) -> str:
    """Return the plan's text as another version would have written it."""
    found = json.loads(write_plan(plan()))
    change(found)
    return json.dumps(found)


def test_every_field_arrives() -> None:
    text = pickle.loads(pickle.dumps(write_plan(plan())))

    assert read_plan(text) == plan()
    assert "secret" in text
    assert "secret" not in repr(text) + repr({"text": text})


def test_plans_that_copy_the_same_have_the_same_digest() -> None:
    whole, (first, *others) = plan(), plan().assignments

    assert plan_digest(replace(whole, assignments=(replace(first, source_seen=(4, 100)), *others))) == plan_digest(whole)
    assert plan_digest(replace(whole, request_id="another request")) == plan_digest(whole)
    for other in (
        replace(whole, revision=8),
        replace(whole, assignments=tuple(others)),
        replace(whole, assignments=(replace(first, since_ms=8), *others)),
        replace(whole, source=replace(whole.source, sasl_password="another secret")),
        replace(whole, tuning=replace(whole.tuning, bytes_per_s=8)),
        replace(whole, signing_keys=("0c0d", *whole.signing_keys)),
    ):
        assert plan_digest(other) != plan_digest(whole)


def test_unknown_fields_of_a_newer_version_are_ignored() -> None:
    def add(found: Any) -> None:
        for values in (found["plan"], found["plan"]["source"], found["plan"]["tuning"], found["plan"]["assignments"][0]):
            values |= {"a_field_of_tomorrow": 1}

    assert read_plan(changed(add)) == plan()


def test_missing_fields_of_an_older_version_have_their_defaults() -> None:
    def drop(found: Any) -> None:
        del found["plan"]["tuning"]["bytes_per_s"], found["plan"]["source"]["ssl_check_hostname"], found["plan"]["workers"]
        for assignment in found["plan"]["assignments"]:
            del assignment["source_seen"], assignment["follows_start"]

    read = read_plan(changed(drop))

    assert (read.tuning, read.workers) == (replace(plan().tuning, bytes_per_s=0), 1)
    assert read.source == replace(plan().source, ssl_check_hostname=True)
    assert [assignment.source_seen for assignment in read.assignments] == [None] * 3
    assert [assignment.follows_start for assignment in read.assignments] == [True] * 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda found: found.update(version=PLAN_VERSION + 1),
            f"version {PLAN_VERSION + 1}, and supports up to {PLAN_VERSION}",
        ),
        (lambda found: found["plan"].pop("revision"), "it cannot read the copy plan"),
        (lambda found: found["plan"].pop("signing_keys"), "it cannot read the copy plan"),
    ],
)
def test_a_plan_that_would_be_copied_wrongly_is_refused_with_a_reason(change: Any, words: str) -> None:
    with pytest.raises(LinkEngineError, match=words) as refused:
        read_plan(changed(change))

    assert refused.value.code == ErrorCode.MISCONFIGURATION_ERROR
    assert "Bring the Spark nodes to the worker's version (always upgrade them first)" in refused.value.message
    assert "secret" not in refused.value.message


def test_the_refusal_is_found_in_the_error_of_the_failed_spark_job() -> None:
    with pytest.raises(LinkEngineError) as refused:
        read_plan(changed(lambda found: found.update(version=9)))
    failure = (
        f"Job aborted: Traceback ...\n  linkengine.domain.errors.LinkEngineError: {refused.value.message}\n at org.apache.spark"
    )

    found = other_version(failure)

    assert found is not None
    assert found.message == refused.value.message


@pytest.mark.parametrize(
    "failure",
    [
        "AttributeError: Can't get attribute 'run_shares' on <module 'linkengine.copyjob.spark_job' from '/srv/x.py'>",
        "ModuleNotFoundError: No module named 'linkengine.domain.plans'",
    ],
)
def test_executors_without_the_workers_function_or_package_are_recognized(failure: str) -> None:
    found = other_version(f"... {failure} ...")

    assert found is not None
    assert "has another version than the worker" in found.message


def test_other_failures_are_not_version_errors() -> None:
    assert other_version("ModuleNotFoundError: No module named 'pandas'") is None


def test_the_order_of_fields_does_not_matter() -> None:
    """Check the same fields in another order, which a pickled plan would confuse."""
    turned = make_dataclass("Turned", [(item.name, Any) for item in reversed(fields(PartitionAssignment))])
    assignment = plan().assignments[0]
    values = {field.name: getattr(assignment, field.name) for field in fields(PartitionAssignment)}

    def takeover(found: Any) -> None:
        found["plan"]["assignments"][0] = turned(**values).__dict__

    assert read_plan(changed(takeover)).assignments[0] == assignment
