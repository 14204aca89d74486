from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from linkengine.domain.connectionchecks import (
    CheckStatus,
    ClusterFacts,
    ConnectionAttempt,
    ConnectionCheck,
    ConnectionCheckCode,
    ConnectionRole,
    ConnectStep,
    checks_from_json,
    cluster_checks,
    connection_checks,
    is_failed,
    rights_checks,
)
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import BrokerDistance

Code, Status = ConnectionCheckCode, CheckStatus
FINE = ConnectionAttempt(server="a:1", passed=tuple(ConnectStep))
RIGHTS = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS"})
FACTS = ClusterFacts(
    cluster_id="west",
    release="4.3",
    is_supported=True,
    authorizer=True,
    rights=frozenset({"DESCRIBE", "CREATE", "ALTER"}),
    topics={"flights": RIGHTS, "planes": RIGHTS},
    groups=2,
)


def failed_at(*passed: ConnectStep, code: ErrorCode, server: str = "b:2", message: str = "It failed.") -> ConnectionAttempt:
    return ConnectionAttempt(server=server, passed=passed, error_code=code, message=message)


def connection(*attempts: ConnectionAttempt, protocol: str = "SASL_SSL") -> list[ConnectionCheck]:
    return connection_checks(
        attempts, uses_tls=protocol.endswith("SSL"), uses_sasl=protocol.startswith("SASL"), security_protocol=protocol
    )


def by_code(checks: list[ConnectionCheck]) -> dict[ConnectionCheckCode, ConnectionCheck]:
    return {check.code: check for check in checks}


def statuses(checks: list[ConnectionCheck]) -> list[str]:
    return [check.status for check in checks]


def test_connection_that_works_passes_every_check() -> None:
    assert statuses(connection(FINE)) == ["PASSED"] * 5


@pytest.mark.parametrize(
    ("passed", "code", "failed"),
    [
        ((), ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, Code.DNS),
        ((), ErrorCode.MISCONFIGURATION_ERROR, Code.DNS),  # an address that is not permitted
        ((), ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, Code.TCP),
        ((ConnectStep.TCP,), ErrorCode.AUTHENTICATION_ERROR, Code.TLS),
        ((ConnectStep.TCP,), ErrorCode.MISCONFIGURATION_ERROR, Code.TLS),  # a PEM that cannot be read
        ((ConnectStep.TCP, ConnectStep.TLS), ErrorCode.TIMEOUT_ERROR, Code.PROTOCOL),
        ((ConnectStep.TCP, ConnectStep.TLS, ConnectStep.PROTOCOL), ErrorCode.AUTHENTICATION_ERROR, Code.AUTHENTICATION),
        ((ConnectStep.TCP, ConnectStep.TLS, ConnectStep.PROTOCOL), ErrorCode.MISCONFIGURATION_ERROR, Code.AUTHENTICATION),
    ],
)
def test_error_is_shown_at_its_check_with_a_fix_and_later_checks_are_not_tested(
    passed: tuple[ConnectStep, ...], code: ErrorCode, failed: ConnectionCheckCode
) -> None:
    checks = connection(failed_at(*passed, code=code))

    place = [check.code for check in checks].index(failed)
    assert statuses(checks) == ["PASSED"] * place + ["FAILED"] + ["NOT_TESTED"] * (4 - place)
    assert (checks[place].finding, checks[place].error_code) == ("It failed.", code)
    assert checks[place].fix
    assert is_failed(checks)


def test_failing_server_beside_a_working_server_is_a_warning() -> None:
    checks = by_code(connection(FINE, failed_at(code=ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR)))

    assert checks[Code.TCP].status is Status.WARNING
    assert checks[Code.TCP].finding == "1 of 2 bootstrap servers: It failed. The others are used."
    assert checks[Code.AUTHENTICATION].status is Status.PASSED


def test_servers_that_fail_at_different_steps_are_shown_at_their_steps() -> None:
    steps = (ConnectStep.TCP, ConnectStep.TLS, ConnectStep.PROTOCOL)
    checks = by_code(
        connection(
            failed_at(code=ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, message="No such name."),
            failed_at(*steps, code=ErrorCode.AUTHENTICATION_ERROR, message="Wrong password."),
        )
    )

    assert (checks[Code.DNS].status, checks[Code.AUTHENTICATION].status) == (Status.WARNING, Status.FAILED)
    assert "No such name." in checks[Code.DNS].finding
    assert checks[Code.AUTHENTICATION].finding == "Wrong password."


@pytest.mark.parametrize(
    ("protocol", "unused"),
    [("PLAINTEXT", {Code.TLS, Code.AUTHENTICATION}), ("SSL", {Code.AUTHENTICATION}), ("SASL_PLAINTEXT", {Code.TLS})],
)
def test_steps_that_the_protocol_does_not_use_are_not_tested(protocol: str, unused: set[ConnectionCheckCode]) -> None:
    checks = connection(FINE, protocol=protocol)

    assert {check.code for check in checks if check.status is Status.NOT_TESTED} == unused
    assert not is_failed(checks)
    if Code.TLS in unused:
        assert "nothing is encrypted" in by_code(checks)[Code.TLS].finding


@pytest.mark.parametrize(
    ("ids", "status", "words"),
    [
        ({}, Status.PASSED, "Cluster ID west."),
        ({"expected_id": "west", "other_id": "east"}, Status.PASSED, "west"),
        ({"expected_id": "north"}, Status.FAILED, "but north was expected"),
        ({"other_id": "west"}, Status.FAILED, "the other cluster of the link as well"),
    ],
)
def test_cluster_id_is_compared_with_the_expected_and_with_the_other_cluster(
    ids: dict[str, str], status: CheckStatus, words: str
) -> None:
    check = cluster_checks(FACTS, (), **ids)[0]

    assert check.status is status
    assert words in check.finding
    assert bool(check.fix) == (status is Status.FAILED)


def test_brokers_older_than_3_1_fail_the_version_check() -> None:
    old = by_code(cluster_checks(replace(FACTS, is_supported=False, release=""), ()))[Code.VERSION]
    unknown = by_code(cluster_checks(replace(FACTS, release=""), ()))[Code.VERSION]

    assert (old.status, old.error_code) == (Status.FAILED, ErrorCode.UNSUPPORTED_VERSION_ERROR)
    assert unknown.status is Status.PASSED
    assert "do not report the exact release" in unknown.finding


def test_advertised_address_that_cannot_be_reached_fails_the_brokers_check() -> None:
    near = BrokerDistance(broker=1, address="a:1", round_trip_ms=0.4)
    far = BrokerDistance(broker=2, address="b:1", round_trip_ms=80.5)
    gone = BrokerDistance(broker=3, address="c:1", error="Broker c:1 accepts no connection.")

    fine, single, failed, unknown = (cluster_checks(FACTS, rows)[2] for rows in ((near, far), (near,), (near, gone), None))

    assert single.finding == "1 broker reachable, round trip 0.4 ms."
    assert (fine.status, fine.finding) == (Status.PASSED, "2 brokers reachable, round trip 0.4 to 80.5 ms.")
    assert failed.status is Status.FAILED
    assert "1 of 2 brokers" in failed.finding
    assert "advertised.listeners" in failed.fix
    assert unknown.status is Status.WARNING


def test_nothing_is_tested_of_a_cluster_that_cannot_be_reached() -> None:
    checks = [*cluster_checks(None, None), *rights_checks(None, role=ConnectionRole.ANY, principal="link")]

    assert set(statuses(checks)) == {"NOT_TESTED"}
    assert len(checks) == len(Code) - 5


@pytest.mark.parametrize("role", ConnectionRole)
def test_principal_with_all_rights_passes(role: ConnectionRole) -> None:
    assert set(statuses(rights_checks(FACTS, role=role, principal="link"))) == {"PASSED"}


def right(code: ConnectionCheckCode, **changes: Any) -> ConnectionCheck:
    return by_code(rights_checks(replace(FACTS, **changes), role=ConnectionRole.ANY, principal="link"))[code]


def test_topics_that_may_not_be_read_are_named_with_the_command_that_grants_it() -> None:
    check = right(Code.READ_TOPICS, topics={"flights": RIGHTS, "planes": RIGHTS - {"READ"}})

    assert (check.status, check.error_code) == (Status.WARNING, ErrorCode.AUTHORIZATION_ERROR)
    assert "No READ on 1 of 2 topics, which cannot be mirrored: planes." in check.finding
    assert "--allow-principal User:link --operation Read --topic planes" in check.fix


def test_right_that_is_missing_on_every_topic_fails() -> None:
    check = right(Code.DESCRIBE_CONFIGS, topics={f"t{n}": frozenset({"DESCRIBE"}) for n in range(9)})

    assert check.status is Status.FAILED
    assert "t0, t1, t2, t3, t4 and 4 more" in check.finding
    assert "--topic '*'" in check.fix


def test_unknown_rights_are_a_warning_and_never_passed() -> None:
    topics = right(Code.READ_TOPICS, topics={"flights": None, "planes": RIGHTS})
    cluster = right(Code.DESCRIBE_CLUSTER, rights=None)

    assert (topics.status, cluster.status) == (Status.WARNING, Status.WARNING)
    assert "Unknown" in topics.finding
    assert "Unknown" in cluster.finding


def test_cluster_without_visible_topics_is_a_warning() -> None:
    assert right(Code.DESCRIBE_TOPICS, topics={}).status is Status.WARNING
    assert right(Code.READ_TOPICS, topics={}).status is Status.NOT_TESTED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"groups": None, "groups_error": "No right."}, "The consumer groups are unknown: No right."),
        ({"groups": 3, "groups_error": "Broker 2 is silent."}, "At least 3 consumer groups: Broker 2 is silent."),
        ({"groups": 2, "unreadable_groups": ("billing",)}, "1 consumer group may not be read: billing"),
        ({"groups": 0}, "No consumer group is visible."),
    ],
)
def test_groups_that_cannot_be_read_are_a_warning_with_the_reason(changes: dict[str, Any], words: str) -> None:
    check = right(Code.READ_GROUPS, **changes)

    assert check.status is Status.WARNING
    assert words in check.finding
    assert "--operation Describe --group '*'" in check.fix


@pytest.mark.parametrize(
    ("code", "missing", "operation"),
    [
        (Code.DESCRIBE_CLUSTER, "DESCRIBE", "Describe"),
        (Code.CREATE_TOPICS, "CREATE", "Create"),
        (Code.ALTER_CLUSTER, "ALTER", "Alter"),
    ],
)
def test_missing_right_on_the_cluster_is_a_warning_with_its_consequence(
    code: ConnectionCheckCode, missing: str, operation: str
) -> None:
    assert FACTS.rights is not None

    check = right(code, rights=FACTS.rights - {missing})

    assert check.status is Status.WARNING
    assert check.finding.startswith(f"No {missing} on the cluster. Without it")
    assert f"--operation {operation} --cluster" in check.fix


def test_cluster_without_an_authorizer_allows_everything_but_cannot_deny_writes() -> None:
    checks = by_code(rights_checks(replace(FACTS, authorizer=False), role=ConnectionRole.ANY, principal="link"))

    assert checks.pop(Code.AUTHORIZER).status is Status.WARNING
    assert {check.status for check in checks.values()} == {Status.PASSED}


def test_fix_quotes_a_principal_for_the_shell() -> None:
    check = by_code(
        rights_checks(replace(FACTS, rights=frozenset()), role=ConnectionRole.SOURCE, principal="it's $HOME"),
    )[Code.DESCRIBE_CLUSTER]

    assert """'User:it'"'"'s $HOME'""" in check.fix


def test_checks_are_restored_from_json() -> None:
    checks = connection(failed_at(code=ErrorCode.TIMEOUT_ERROR))

    assert checks_from_json([asdict(check) for check in checks]) == tuple(checks)
