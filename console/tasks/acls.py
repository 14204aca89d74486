"""AclSync: ACLs of the source that the filters choose are made here, and go when the source removes them."""

from __future__ import annotations

import time
from dataclasses import replace

from django.db.models import Count, Q
from django.utils import timezone

from console import store
from console.models import ClusterLink, SyncedAcl
from console.reconciling import acls, plans
from linkengine import jobs
from linkengine.domain.acls import AclFacts, AclPlan, AclStatus, inequalities, plan_acls
from linkengine.domain.linktasks import TaskError, TaskOutcome
from linkengine.domain.moments import SECOND_LOOK_AFTER_S

BATCH = 500  # changes of one run


def follow_acls(link: ClusterLink) -> TaskOutcome:
    """Bring the destination's ACLs up to date, at most ``BATCH`` changes; one link per destination at a time."""
    with store.hold(f"acls:{link.destination_id}") as ours:
        if not ours:  # another link is deciding about the same ACLs
            return TaskOutcome(summary=_summary(link), more=True)
        here, facts = link.destination.address, _facts(link)
        plan, more = _bounded(_plan(link, facts))
        acls.store_plan(link=link, plan=plan, now=timezone.now())
        gone = [acl for acl in plan.delete if acl in facts.destination]
        failures = jobs.change_acls(here, create=plan.create, delete=gone)
        acls.store_changes(link=link, created=plan.create, deleted=plan.delete, failures=failures, now=timezone.now())
        changes = len(plan.create) + len(gone) - len(failures)
        errors = tuple(TaskError(code=one.code, message=one.message) for one in failures.values())
        return TaskOutcome(summary=_summary(link), errors=errors, changes=changes, more=more)


def acl_inequalities(link: ClusterLink) -> list[str]:
    """Look at both clusters and say which of the chosen ACLs are not equal; changes nothing."""
    return inequalities(_facts(link))


def _facts(link: ClusterLink) -> AclFacts:
    before = acls.own_rules(link)
    there, present = jobs.read_acls(plans.source_address(link)), jobs.read_acls(link.destination.address)
    return acls.facts_of(link, source=there, destination=present, before=before)


def _plan(link: ClusterLink, facts: AclFacts) -> AclPlan:
    """Decide; what one look does not show is looked for once more before it is taken away.

    A broker that has just started answers from old metadata, and an application would be without its access until the next run.
    """
    plan = plan_acls(facts)
    if not plan.delete:
        return plan
    time.sleep(SECOND_LOOK_AFTER_S)
    return plan_acls(replace(facts, source={*facts.source, *jobs.read_acls(plans.source_address(link))}))


def _bounded(plan: AclPlan) -> tuple[AclPlan, bool]:
    """Cut the plan to one batch; what is not created now must not be in the ledger as if it were."""
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
    return f"ACLs carried over: {counts['made']}; left alone: {counts['others']}; conflicts: {counts['conflicts']}."
