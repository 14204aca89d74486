"""The recurring task AclSync: creates the ACLs that the filters include, and deletes those that the source has deleted."""

from __future__ import annotations

import time
from dataclasses import replace

from django.db.models import Count, Q
from django.utils import timezone

from console.models import ClusterLink, SyncedAcl
from console.reconciling import acls, plans
from console.redis import locks
from linkengine import jobs
from linkengine.domain.acls import Acl, AclFacts, AclPlan, AclStatus, inequalities, plan_acls
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linktasks import TaskError, TaskOutcome
from linkengine.domain.moments import SECOND_LOOK_AFTER_S

BATCH = 500  # changes per run


def follow_acls(link: ClusterLink) -> TaskOutcome:
    """Apply at most ``BATCH`` changes to the destination's ACLs. A lock excludes other links of the same destination."""
    with locks.lock(f"acls:{link.destination_id}") as acquired:
        if not acquired:  # another link is changing the same ACLs
            return TaskOutcome(summary=_summary(link), more=True)
        here, facts = link.destination.address, _facts(link)
        plan, unconfirmed = _plan(link, facts)
        plan, more = _bounded(plan)
        acls.store_plan(link=link, plan=plan, now=timezone.now())
        delete = [acl for acl in plan.delete if acl in facts.destination]
        failures = jobs.change_acls(here, create=plan.create, delete=delete)
        acls.store_changes(link=link, created=plan.create, deleted=plan.delete, failures=failures, now=timezone.now())
        changes = len(plan.create) + len(delete) - len(failures)
        errors = tuple(TaskError(code=error.code, message=error.message) for error in failures.values())
        return TaskOutcome(summary=_summary(link), errors=(*unconfirmed, *errors), changes=changes, more=more)


def acl_inequalities(link: ClusterLink) -> list[str]:
    """Return which of the included ACLs differ between the clusters. Changes nothing."""
    return inequalities(_facts(link))


def _facts(link: ClusterLink) -> AclFacts:
    before = acls.own_rules(link)
    there, present = jobs.read_acls(plans.source_address(link)), jobs.read_acls(link.destination.address)
    return acls.facts_of(link, source=there, destination=present, before=before)


def _plan(link: ClusterLink, facts: AclFacts) -> tuple[AclPlan, tuple[TaskError, ...]]:
    """Return the changes to make, as far as they are confirmed, and what prevents the others.

    * Before ACLs are created, both clusters are read once more: an ACL that a single response shows is not created, and one
      that existed on the destination does not count as the link's own, which would delete it later.
    * Before ACLs are deleted, every broker of the source has to show that they are gone: one that has just started, or was cut
      off from the controllers, returns old metadata, and an application would have no access.
    """
    plan = plan_acls(facts)
    if plan.create:
        facts = _confirmed(facts, jobs.read_acls(plans.source_address(link)), jobs.read_acls(link.destination.address))
        plan = plan_acls(facts)
    if not plan.delete:
        return plan, ()
    time.sleep(SECOND_LOOK_AFTER_S)
    errors: tuple[TaskError, ...] = ()
    try:
        present = jobs.read_acls_of_every_broker(plans.source_address(link))
    except LinkEngineError as error:
        present = set(facts.ledger)
        errors = (TaskError(code=error.code, message=f"No ACL is deleted. {error.message}"),)
    return plan_acls(replace(facts, source={*facts.source, *present})), errors


def _confirmed(facts: AclFacts, source: set[Acl], destination: set[Acl]) -> AclFacts:
    """Return the facts with a second reading: what both show of the source or is in the ledger, and what either shows here."""
    first = set(facts.source)
    return replace(
        facts,
        source=(first & source) | ((first | source) & set(facts.ledger)),
        destination={*facts.destination, *destination},
    )


def _bounded(plan: AclPlan) -> tuple[AclPlan, bool]:
    """Cut the plan to a batch. ACLs that are not created in this batch must not be in the ledger."""
    create, delete = plan.create[:BATCH], plan.delete[:BATCH]
    later = set(plan.create[BATCH:])
    rows = tuple(row for row in plan.rows if row.acl not in later)
    more = len(create) < len(plan.create) or len(delete) < len(plan.delete)
    return replace(plan, create=create, delete=delete, rows=rows), more


def _summary(link: ClusterLink) -> str:
    counts = SyncedAcl.objects.filter(link=link).aggregate(
        made=Count("pk", filter=Q(status=AclStatus.CREATED)),
        others=Count("pk", filter=~Q(status=AclStatus.CREATED)),
        conflicts=Count("pk", filter=Q(is_conflict=True)),
    )
    return f"ACLs synced: {counts['made']}; not changed: {counts['others']}; conflicts: {counts['conflicts']}."
