from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.acls import (
    Acl,
    AclFacts,
    AclFilter,
    AclPlan,
    AclStatus,
    is_guard,
    namespace_guard,
    plan_acls,
    topic_guard,
)
from tests.linkengine.domain.test_aclfilters import acl

EVERYTHING = (AclFilter(),)
S = AclStatus
GUARD = replace(acl(operation="WRITE", permission="DENY"), principal="User:*")


def facts(source: set[Acl], destination: set[Acl] | None = None, **more: object) -> AclFacts:
    return AclFacts(source=source, destination=destination or set(), filters=EVERYTHING, **more)  # type: ignore[arg-type]


def statuses(plan: AclPlan) -> dict[Acl, AclStatus]:
    return {row.acl: row.status for row in plan.rows}


def test_an_acl_missing_on_the_destination_is_created_and_recorded_for_the_link() -> None:
    plan = plan_acls(facts({acl()}))

    assert plan.create == (acl(),)
    assert statuses(plan) == {acl(): S.CREATED}


def test_an_acl_created_by_the_link_is_deleted_when_the_source_removes_it() -> None:
    plan = plan_acls(facts(set(), {acl()}, ledger={acl(): S.CREATED}))

    assert plan.delete == (acl(),)
    assert plan.rows == ()


def test_an_acl_that_existed_before_is_listed_and_never_deleted() -> None:
    found = plan_acls(facts({acl()}, {acl()}))
    later = plan_acls(facts(set(), {acl()}, ledger={acl(): S.ALREADY_THERE}))

    assert (found.create, statuses(found)) == ((), {acl(): S.ALREADY_THERE})
    assert found.rows[0].is_conflict
    assert (later.delete, later.forget) == ((), (acl(),))


def test_a_synced_acl_that_was_deleted_on_the_destination_is_created_again() -> None:
    assert plan_acls(facts({acl()}, set(), ledger={acl(): S.CREATED})).create == (acl(),)


def test_an_acl_of_two_links_stays_until_neither_source_has_it() -> None:
    shared = plan_acls(facts({acl()}, {acl()}, others={"west": {acl(): S.CREATED}}))
    makers = plan_acls(facts(set(), {acl()}, ledger={acl(): S.CREATED}, others={"east": {acl(): S.SHARED}}))
    taken_over = plan_acls(facts({acl()}, {acl()}, ledger={acl(): S.SHARED}, others={"west": {}}))

    assert statuses(shared) == {acl(): S.SHARED}
    assert "west" in shared.rows[0].message
    assert (makers.delete, makers.forget) == ((), (acl(),))
    assert statuses(taken_over) == {acl(): S.CREATED}
    assert plan_acls(facts(set(), {acl()}, ledger={acl(): S.SHARED}, others={"west": {}})).delete == (acl(),)
    assert plan_acls(facts(set(), {acl()}, ledger={acl(): S.SHARED}, others={"west": {acl(): S.CREATED}})).delete == ()


def test_narrower_filters_delete_no_acl() -> None:
    narrowed = replace(facts({acl()}, {acl()}, ledger={acl(): S.CREATED}), filters=(AclFilter(name="payments"),))
    gone = replace(facts(set(), {acl()}, ledger={acl(): S.OUT_OF_FILTER}), filters=narrowed.filters)

    assert plan_acls(narrowed).delete == ()
    assert statuses(plan_acls(narrowed)) == {acl(): S.OUT_OF_FILTER}
    assert (plan_acls(gone).delete, plan_acls(gone).forget) == ((), (acl(),))


def test_narrower_filters_delete_no_acl_that_another_link_created() -> None:
    """The link that created the ACL no longer needs it, so only this link keeps it."""
    ledger = {acl(): S.SHARED}
    alone = replace(facts({acl()}, {acl()}, ledger=ledger, others={"west": {}}), filters=(AclFilter(name="payments"),))
    shared = replace(alone, others={"west": {acl(): S.CREATED}})

    assert plan_acls(alone).delete == ()
    assert statuses(plan_acls(alone)) == {acl(): S.OUT_OF_FILTER}
    assert (plan_acls(shared).delete, plan_acls(shared).forget) == ((), (acl(),))


def test_the_acl_that_makes_mirrors_read_only_is_neither_synced_nor_deleted() -> None:
    plan = plan_acls(facts({GUARD}, {GUARD}))
    hidden = replace(GUARD, operation="READ")

    assert is_guard(GUARD)
    assert (plan.create, plan.delete, statuses(plan)) == ((), (), {GUARD: S.GUARD})
    assert plan_acls(facts(set(), {GUARD})).delete == ()
    assert statuses(plan_acls(facts({hidden}))) == {hidden: S.CREATED}
    assert statuses(plan_acls(facts({hidden}, seeding={"orders"}))) == {hidden: S.GUARD}


def test_acls_set_by_the_console_on_the_source_are_not_synced() -> None:
    guards = {topic_guard("orders", operation="READ"), namespace_guard("orders.")}

    plan = plan_acls(facts(guards, guards=guards))

    assert (plan.create, statuses(plan)) == ((), dict.fromkeys(guards, S.GUARD))


def test_a_guard_that_was_synced_before_is_deleted_when_the_source_removes_it() -> None:
    guard = topic_guard("orders", operation="READ")
    ledger = {guard: S.CREATED}

    assert statuses(plan_acls(facts({guard}, {guard}, guards={guard}, ledger=ledger))) == ledger
    assert plan_acls(facts(set(), {guard}, guards={guard}, ledger=ledger)).delete == (guard,)


def test_an_acl_created_by_a_link_in_the_other_direction_is_not_synced_back() -> None:
    assert statuses(plan_acls(facts({acl()}, echoes={acl()}))) == {acl(): S.CAME_FROM_HERE}


def test_an_acl_with_an_unknown_operation_is_listed_only() -> None:
    strange = replace(acl(), operation="UNKNOWN")

    assert statuses(plan_acls(facts({strange}))) == {strange: S.UNSUPPORTED}


def test_contradictions_with_local_acls_or_other_links_are_reported() -> None:
    deny = acl(permission="DENY")

    local = plan_acls(facts({acl()}, {deny})).rows[0]
    other = plan_acls(facts({acl()}, {deny}, others={"west": {deny: S.CREATED}})).rows[0]
    agreed = plan_acls(facts({acl(), deny}, {deny})).rows[0]

    assert local.is_conflict
    assert "The destination itself has the opposite" in local.message
    assert other.is_conflict
    assert "west" in other.message
    assert not agreed.is_conflict or "opposite" not in agreed.message


def test_deny_acls_are_created_first_and_deleted_last() -> None:
    rules = {acl("a"), acl("b", permission="DENY"), acl("c")}

    created = plan_acls(facts(rules)).create
    deleted = plan_acls(facts(set(), rules, ledger=dict.fromkeys(rules, S.CREATED))).delete

    assert [rule.resource_name for rule in created] == ["b", "a", "c"]
    assert [rule.resource_name for rule in deleted] == ["a", "c", "b"]


_ACLS = st.sets(st.builds(acl, st.sampled_from("abc"), permission=st.sampled_from(["ALLOW", "DENY"])))
_FILTERS = st.sampled_from([EVERYTHING, (AclFilter(name="a"),), ()])
_LEDGERS = st.dictionaries(st.builds(acl, st.sampled_from("abc")), st.sampled_from(AclStatus))


@given(source=_ACLS, destination=_ACLS, filters=_FILTERS, ledger=_LEDGERS, other=_LEDGERS)
def test_only_acls_of_this_link_that_no_other_link_has_are_deleted(
    source: set[Acl],
    destination: set[Acl],
    filters: tuple[AclFilter, ...],
    ledger: dict[Acl, AclStatus],
    other: dict[Acl, AclStatus],
) -> None:
    plan = plan_acls(replace(facts(source, destination, ledger=ledger, others={"other": other}), filters=filters))

    for deleted in plan.delete:
        assert ledger[deleted] in {S.CREATED, S.SHARED}
        assert other.get(deleted) not in {S.CREATED, S.SHARED, S.OUT_OF_FILTER}
        assert deleted not in source
    assert not set(plan.create) & destination
