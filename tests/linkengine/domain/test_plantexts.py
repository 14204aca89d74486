"""A copy plan read by another version than wrote it: by name, with defaults, or refused; never one field for another."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields, make_dataclass, replace
from typing import Any

import pytest

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import CopyPlan, CopyTuning, PartitionAssignment, producer_id_for
from linkengine.domain.plantexts import PLAN_VERSION, other_version, plan_digest, read_plan, write_plan


def value_for(name: str, kind: str) -> Any:
    """Something that is no default."""
    of_kind = {
        "int": 7,
        "str": f"a {name}",
        "bool": False,
        "float": 0.5,
        "tuple[int, int] | None": (3, 99),
        "tuple[str, ...]": ("0a0b",),
    }
    return (("team", "one"),) if name == "oauth_extensions" else of_kind[kind]


def filled(kind: type[Any], **values: Any) -> Any:
    """A value of which every field is set, so that one that is added later travels, too, or a test fails."""
    return kind(**{one.name: values.get(one.name) or value_for(one.name, str(one.type)) for one in fields(kind)})


def plan() -> CopyPlan:
    address = filled(ClusterAddress, sasl_password="secret")
    many = tuple(
        filled(PartitionAssignment, partition=number, producer_id=producer_id_for(1, 7, number)) for number in (1, 2, 3)
    )
    return filled(CopyPlan, source=address, destination=address, assignments=many, workers=2, tuning=filled(CopyTuning))


def changed(change: Any) -> str:
    """The plan's text as another version would have written it."""
    found = json.loads(write_plan(plan()))
    change(found)
    return json.dumps(found)


def test_every_field_arrives() -> None:
    text = pickle.loads(pickle.dumps(write_plan(plan())))

    assert read_plan(text) == plan()
    assert "secret" in text
    assert "secret" not in repr(text) + repr({"text": text})


def test_plans_that_ask_for_the_same_have_the_same_digest() -> None:
    one, (first, *others) = plan(), plan().assignments

    assert plan_digest(replace(one, assignments=(replace(first, source_seen=(4, 100)), *others))) == plan_digest(one)
    assert plan_digest(replace(one, request_id="another request")) == plan_digest(one)
    for other in (
        replace(one, revision=8),
        replace(one, assignments=tuple(others)),
        replace(one, assignments=(replace(first, since_ms=8), *others)),
        replace(one, source=replace(one.source, sasl_password="another secret")),
        replace(one, tuning=replace(one.tuning, bytes_per_s=8)),
        replace(one, signing_keys=("0c0d", *one.signing_keys)),
    ):
        assert plan_digest(other) != plan_digest(one)


def test_fields_of_a_newer_worker_are_left_out() -> None:
    def add(found: Any) -> None:
        for values in (found["plan"], found["plan"]["source"], found["plan"]["tuning"], found["plan"]["assignments"][0]):
            values |= {"a_field_of_tomorrow": 1}

    assert read_plan(changed(add)) == plan()


def test_fields_that_an_older_worker_did_not_know_have_their_defaults() -> None:
    def drop(found: Any) -> None:
        del found["plan"]["tuning"]["bytes_per_s"], found["plan"]["source"]["ssl_check_hostname"], found["plan"]["workers"]
        for one in found["plan"]["assignments"]:
            del one["source_seen"], one["follows_start"]

    read = read_plan(changed(drop))

    assert (read.tuning, read.workers) == (replace(plan().tuning, bytes_per_s=0), 1)
    assert read.source == replace(plan().source, ssl_check_hostname=True)
    assert [one.source_seen for one in read.assignments] == [None] * 3
    assert [one.follows_start for one in read.assignments] == [True] * 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda found: found.update(version=PLAN_VERSION + 1),
            f"version {PLAN_VERSION + 1}, and knows those up to {PLAN_VERSION}",
        ),
        (lambda found: found["plan"].pop("revision"), "it cannot read the copy plan"),
        (lambda found: found["plan"].pop("signing_keys"), "it cannot read the copy plan"),
    ],
)
def test_what_would_be_copied_wrongly_is_refused_in_words(change: Any, words: str) -> None:
    with pytest.raises(LinkEngineError, match=words) as refused:
        read_plan(changed(change))

    assert refused.value.code == ErrorCode.MISCONFIGURATION_ERROR
    assert "Bring the Spark nodes to the worker's version, they first" in refused.value.message
    assert "secret" not in refused.value.message


def test_the_refusal_is_found_in_what_spark_tells_of_the_failed_job() -> None:
    with pytest.raises(LinkEngineError) as refused:
        read_plan(changed(lambda found: found.update(version=9)))
    told = (
        f"Job aborted: Traceback ...\n  linkengine.domain.errors.LinkEngineError: {refused.value.message}\n at org.apache.spark"
    )

    found = other_version(told)

    assert found is not None
    assert found.message == refused.value.message


@pytest.mark.parametrize(
    "failure",
    [
        "AttributeError: Can't get attribute 'run_shares' on <module 'linkengine.copyjob.spark_job' from '/srv/x.py'>",
        "ModuleNotFoundError: No module named 'linkengine.domain.plantexts'",
    ],
)
def test_executors_of_before_there_were_versions_are_known_by_what_they_lack(failure: str) -> None:
    found = other_version(f"... {failure} ...")

    assert found is not None
    assert "has another version than the worker" in found.message


def test_other_failures_are_none_of_versions() -> None:
    assert other_version("ModuleNotFoundError: No module named 'pandas'") is None


def test_positions_mean_nothing() -> None:
    """What pickled plans went wrong with: the same fields in another order."""
    turned = make_dataclass("Turned", [(one.name, Any) for one in reversed(fields(PartitionAssignment))])
    one = plan().assignments[0]
    values = {field.name: getattr(one, field.name) for field in fields(PartitionAssignment)}

    def turn(found: Any) -> None:
        found["plan"]["assignments"][0] = turned(**values).__dict__

    assert read_plan(changed(turn)).assignments[0] == one
