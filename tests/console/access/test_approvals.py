"""Operations that need a second approver: each way to the operation is refused without an approval."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from console.access import approvals
from console.access.approvals import approve, reject, request_approval, set_approval_operations, withdraw
from console.actors import ENGINE, Actor
from console.errors import ConflictError, DeniedError, InvalidInputError
from console.links.actions import delete_link
from console.mirrors import bulk_actions
from console.mirrors.actions import request_deletion
from console.mirrors.operation_actions import operate, operate_many
from console.models import ApiKey, ApprovalRequest, AuditEvent, ClusterLink, Environment, MirrorTopic, Organization
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, MakeActor, MakeMirror

E = MirrorEvent
HOUR = timedelta(hours=1)
pytestmark = pytest.mark.usefixtures("sent")


@pytest.fixture
def governed(environment: Environment) -> Environment:
    """The environment, in which failovers and deletions need an approval."""
    environment.approval_operations = ["delete", "failover"]
    environment.save()
    return environment


@pytest.fixture
def operator(make_actor: MakeActor, environment: Environment) -> Actor:
    return make_actor("operator", "Operator", environment=environment)


@pytest.fixture
def approver(make_actor: MakeActor, environment: Environment) -> Actor:
    return make_actor("approver", "Operator", environment=environment)


def submit_request(link: ClusterLink, by: Actor, *topics: str, operation: MirrorEvent = E.FAILOVER) -> ApprovalRequest:
    return request_approval(
        link=link, operation=operation, topics=topics, reason="The source is down.", by=by, now=timezone.now()
    )


def allow(request: ApprovalRequest, by: Actor, *, lasts: timedelta = HOUR) -> None:
    approve(request=request, reason="", lasts=lasts, by=by, now=timezone.now())


@pytest.mark.usefixtures("governed")
class TestRefusals:
    """Every way to an operation is refused without an approval."""

    def test_a_single_operation_is_refused_and_audited(self, mirror: MirrorTopic, operator: Actor) -> None:
        with pytest.raises(DeniedError) as caught:
            operate(mirror=mirror, operation=E.FAILOVER, by=operator, now=NOW)

        assert caught.value.code == "APPROVAL_NEEDED"
        mirror.refresh_from_db()
        assert mirror.state == MirrorState.ACTIVE
        assert AuditEvent.objects.filter(result="DENIED", action="failover without approval").exists()

    def test_a_validation_is_refused_too(self, mirror: MirrorTopic, operator: Actor) -> None:
        with pytest.raises(DeniedError):
            operate(mirror=mirror, operation=E.FAILOVER, validate_only=True, by=operator, now=NOW)

    @pytest.mark.parametrize("count", [2, 25])
    def test_many_are_refused(self, count: int, make_mirror: MakeMirror, link: ClusterLink, operator: Actor) -> None:
        """25 are changed together by a few SQL statements, 2 one by one."""
        names = [make_mirror(f"topic-{number}", partitions=1).name for number in range(count)]

        results = operate_many(link=link, names=names, operation=E.FAILOVER, by=operator, now=NOW)

        assert {result.error_code for result in results} == {403}
        assert not MirrorTopic.objects.exclude(state=MirrorState.ACTIVE).exists()

    def test_a_bulk_operation_is_refused(self, make_mirror: MakeMirror, link: ClusterLink, operator: Actor) -> None:
        topics: dict[str, MirrorTopic | None] = {name: make_mirror(name) for name in ("a", "b")}
        stored = bulk_actions.start(link=link, operation="failover", topics=topics, by=operator, now=NOW)

        bulk_actions.carry_out(stored, check_clusters=lambda _mirrors: [], now=NOW)

        assert set(stored.topics.values_list("status", "error_code")) == {("FAILED", "APPROVAL_NEEDED")}

    def test_a_deletion_is_refused(self, mirror: MirrorTopic, owner: Actor) -> None:
        """Also by the deletion of the topic over REST, which calls ``request_deletion``."""
        with pytest.raises(DeniedError):
            operate(mirror=mirror, operation=E.DELETE, by=owner, now=NOW)
        with pytest.raises(DeniedError):
            request_deletion(mirror=mirror, by=owner, now=NOW)
        mirror.refresh_from_db()
        assert mirror.deletion_requested_at is None

    def test_the_failover_of_a_deleted_link_is_refused(self, mirror: MirrorTopic, link: ClusterLink, owner: Actor) -> None:
        with pytest.raises(DeniedError):
            delete_link(link=link, force=True, by=owner, now=NOW)
        link.refresh_from_db()
        assert link.deletion_requested_at is None
        assert AuditEvent.objects.filter(result="DENIED", action="failover without approval").exists()

    def test_superusers_need_an_approval_too(self, mirror: MirrorTopic, make_actor: MakeActor) -> None:
        root = make_actor("root")
        assert root.user is not None
        root.user.is_superuser = True

        with pytest.raises(DeniedError):
            operate(mirror=mirror, operation=E.FAILOVER, by=root, now=NOW)

    def test_the_engine_and_other_operations_need_none(self, make_mirror: MakeMirror, operator: Actor) -> None:
        assert operate(mirror=make_mirror("a"), operation=E.FAILOVER, by=ENGINE, now=NOW)
        assert operate(mirror=make_mirror("b"), operation=E.PAUSE, by=operator, now=NOW)


@pytest.mark.usefixtures("governed")
class TestApprovals:
    """An approval by another user lets the requester operate."""

    def test_an_approved_operation_is_carried_out(
        self, make_mirror: MakeMirror, link: ClusterLink, operator: Actor, approver: Actor
    ) -> None:
        orders, others = make_mirror("orders"), make_mirror("others")
        request = submit_request(link, operator, "orders")
        allow(request, approver)

        assert operate(mirror=orders, operation=E.FAILOVER, by=operator, now=NOW).state == MirrorState.PENDING_STOPPED
        with pytest.raises(DeniedError):
            operate(mirror=others, operation=E.FAILOVER, by=operator, now=NOW)
        with pytest.raises(DeniedError):
            operate(mirror=others, operation=E.FAILOVER, by=approver, now=NOW)
        actions = set(AuditEvent.objects.values_list("action", flat=True))
        assert {"RequestApproval", "ApproveOperation", "FailoverMirrorTopic"} <= actions

    def test_an_approval_of_all_topics_covers_many(
        self, make_mirror: MakeMirror, link: ClusterLink, operator: Actor, approver: Actor
    ) -> None:
        names = [make_mirror(f"topic-{number}", partitions=1).name for number in range(25)]
        allow(submit_request(link, operator), approver)

        results = operate_many(link=link, names=names, operation=E.FAILOVER, by=operator, now=NOW)

        assert {result.error_code for result in results} == {None}

    def test_an_approval_of_another_operation_does_not_count(
        self, mirror: MirrorTopic, link: ClusterLink, owner: Actor, make_actor: MakeActor, environment: Environment
    ) -> None:
        other_owner = make_actor("other-owner", "EnvironmentAdmin", environment=environment)
        allow(submit_request(link, owner, operation=E.DELETE), other_owner)

        with pytest.raises(DeniedError):
            operate(mirror=mirror, operation=E.FAILOVER, by=owner, now=NOW)

    def test_an_approval_expires(
        self, mirror: MirrorTopic, link: ClusterLink, operator: Actor, approver: Actor, time_machine: Any
    ) -> None:
        allow(submit_request(link, operator), approver)

        time_machine.move_to(timezone.now() + HOUR)

        with pytest.raises(DeniedError):
            operate(mirror=mirror, operation=E.FAILOVER, by=operator, now=NOW)

    def test_an_approval_ends_with_its_approver(
        self, mirror: MirrorTopic, link: ClusterLink, operator: Actor, approver: Actor
    ) -> None:
        allow(submit_request(link, operator), approver)
        User.objects.filter(username="approver").update(is_active=False)

        with pytest.raises(DeniedError):
            operate(mirror=mirror, operation=E.FAILOVER, by=operator, now=NOW)

    def test_requesters_do_not_approve_their_own_requests(self, link: ClusterLink, operator: Actor) -> None:
        request = submit_request(link, operator)

        with pytest.raises(DeniedError):
            allow(request, operator)
        with pytest.raises(IntegrityError), transaction.atomic():
            ApprovalRequest.objects.filter(pk=request.pk).update(status="APPROVED", decided_by=operator.user)

    def test_neither_readers_nor_api_keys_approve(
        self, link: ClusterLink, operator: Actor, approver: Actor, colleague: Actor
    ) -> None:
        request = submit_request(link, operator)
        with_key = Actor(name="approver", user=approver.user, key=ApiKey(user=approver.user))

        for actor in (colleague, with_key, ENGINE):
            with pytest.raises(DeniedError):
                allow(request, actor)

    def test_one_topic_is_no_permission_for_the_link(
        self, mirror: MirrorTopic, link: ClusterLink, operator: Actor, make_actor: MakeActor
    ) -> None:
        topic = {"cluster": link.destination, "resource_type": "Topic", "resource_name": "orders"}
        topic_operator = make_actor("topic-operator", "Operator", **topic)

        with pytest.raises(DeniedError):
            allow(submit_request(link, operator), topic_operator)
        with pytest.raises(DeniedError):
            submit_request(link, topic_operator)
        assert submit_request(link, topic_operator, mirror.name)

    @pytest.mark.parametrize("topics", [(), ("orders",)])
    def test_a_mirror_that_is_created_after_the_request_is_not_covered(
        self, topics: tuple[str, ...], make_mirror: MakeMirror, link: ClusterLink, operator: Actor, approver: Actor
    ) -> None:
        """Also not under the name of an approved mirror that was deleted."""
        make_mirror("orders")
        allow(submit_request(link, operator, *topics), approver)
        MirrorTopic.objects.all().delete()
        later = make_mirror("orders")
        MirrorTopic.objects.update(created_at=timezone.now())
        later.refresh_from_db()

        with pytest.raises(DeniedError):
            operate(mirror=later, operation=E.FAILOVER, by=operator, now=NOW)

    def test_an_approval_is_used_up_when_the_operation_begins(
        self, make_mirror: MakeMirror, link: ClusterLink, operator: Actor, approver: Actor
    ) -> None:
        orders, others = make_mirror("orders"), make_mirror("others")
        allow(submit_request(link, operator), approver)
        operate(mirror=orders, operation=E.FAILOVER, by=operator, now=timezone.now())
        MirrorTopic.objects.update(state=MirrorState.ACTIVE)  # it was mirrored again
        orders.refresh_from_db()

        with pytest.raises(DeniedError):
            operate(mirror=orders, operation=E.FAILOVER, by=operator, now=timezone.now())
        assert operate(mirror=others, operation=E.FAILOVER, by=operator, now=timezone.now())
        allow(submit_request(link, operator), approver)
        assert operate(mirror=orders, operation=E.FAILOVER, by=operator, now=timezone.now())

    def test_a_name_that_is_no_mirror_is_refused(self, mirror: MirrorTopic, link: ClusterLink, operator: Actor) -> None:
        with pytest.raises(InvalidInputError, match="'ordesr' is not a mirror topic"):
            submit_request(link, operator, mirror.name, "ordesr")

    def test_a_request_with_an_api_key_counts_for_its_owner(
        self, mirror: MirrorTopic, link: ClusterLink, operator: Actor, approver: Actor
    ) -> None:
        with_key = Actor(name="operator", user=operator.user, key=ApiKey(user=operator.user))
        allow(submit_request(link, with_key, mirror.name), approver)

        assert operate(mirror=mirror, operation=E.FAILOVER, by=operator, now=NOW).state == MirrorState.PENDING_STOPPED

    def test_a_rejected_request_allows_nothing(
        self, mirror: MirrorTopic, link: ClusterLink, operator: Actor, approver: Actor
    ) -> None:
        request = submit_request(link, operator)
        with pytest.raises(InvalidInputError):
            reject(request=request, reason=" ", by=approver, now=timezone.now())
        reject(request=request, reason="Not during the sale.", by=approver, now=timezone.now())

        with pytest.raises(ConflictError):
            allow(request, approver)
        with pytest.raises(DeniedError):
            operate(mirror=mirror, operation=E.FAILOVER, by=operator, now=NOW)

    def test_a_withdrawn_approval_allows_nothing(
        self, mirror: MirrorTopic, link: ClusterLink, operator: Actor, approver: Actor
    ) -> None:
        request = submit_request(link, operator)
        allow(request, approver)
        withdraw(request=request, by=operator, now=timezone.now())

        with pytest.raises(DeniedError):
            operate(mirror=mirror, operation=E.FAILOVER, by=operator, now=NOW)
        with pytest.raises(ConflictError):
            withdraw(request=request, by=approver, now=timezone.now())

    def test_an_expired_request_is_not_approved(
        self, link: ClusterLink, operator: Actor, approver: Actor, time_machine: Any
    ) -> None:
        request = submit_request(link, operator)
        time_machine.move_to(timezone.now() + approvals.WAITS)

        with pytest.raises(ConflictError):
            allow(request, approver)

    @pytest.mark.parametrize("lasts", [timedelta(0), timedelta(hours=25)])
    def test_a_duration_out_of_range_is_refused(
        self, lasts: timedelta, link: ClusterLink, operator: Actor, approver: Actor
    ) -> None:
        with pytest.raises(InvalidInputError):
            allow(submit_request(link, operator), approver, lasts=lasts)

    def test_only_operations_that_need_an_approval_are_requested(self, link: ClusterLink, operator: Actor) -> None:
        with pytest.raises(InvalidInputError):
            submit_request(link, operator, operation=E.PROMOTE)


class TestRule:
    """The operations of an environment that need an approval."""

    def test_an_organization_admin_chooses_them(
        self, environment: Environment, organization: Organization, make_actor: MakeActor
    ) -> None:
        admin = make_actor("admin", "OrganizationAdmin", organization=organization)

        set_approval_operations(environment=environment, operations=["promote", "failover"], by=admin, now=NOW)

        environment.refresh_from_db()
        assert environment.approval_operations == ["failover", "promote"]
        event = AuditEvent.objects.get(action="SetApprovalOperations")
        assert event.detail == {"from": [], "to": ["failover", "promote"]}
        with pytest.raises(InvalidInputError):
            set_approval_operations(environment=environment, operations=["pause"], by=admin, now=NOW)

    @pytest.mark.parametrize("actor", ["owner", "operator"])
    def test_restricted_users_do_not_change_them(
        self, actor: str, governed: Environment, request: pytest.FixtureRequest
    ) -> None:
        with pytest.raises(DeniedError):
            set_approval_operations(environment=governed, operations=[], by=request.getfixturevalue(actor), now=NOW)
