from linkengine.domain.errors import ErrorCode
from linkengine.domain.groups import GroupOutcome, GroupReport, GroupStatus, OffsetOutcome, PartitionOutcome
from linkengine.jobs.syncing import group_blockers


def outcome(
    name: str, status: GroupStatus, *, destination: int | None = None, target: int = 9, message: str = ""
) -> GroupOutcome:
    partition = PartitionOutcome(
        mirror_topic="orders",
        partition=0,
        source=target,
        destination=destination,
        target=target,
        outcome=OffsetOutcome.EQUAL if destination == target else OffsetOutcome.AHEAD,
    )
    return GroupOutcome(name=name, destination_name=f"us_{name}", status=status, message=message, partitions=(partition,))


def codes(*groups: GroupOutcome, incomplete: str = "") -> list[ErrorCode]:
    return [code for code, _ in group_blockers(GroupReport(groups=groups, incomplete=incomplete))]


def test_equal_and_skipped_groups_do_not_block_a_promotion() -> None:
    skipped = GroupOutcome(name="a", destination_name="a", status=GroupStatus.EXCLUDED)

    assert codes(outcome("b", GroupStatus.SYNCED, destination=9), skipped) == []
    assert codes(outcome("b", GroupStatus.IN_USE, destination=9)) == []  # in use, but equal


def test_a_group_in_use_or_with_other_offsets_blocks_a_promotion_by_name() -> None:
    used = outcome("app", GroupStatus.IN_USE, destination=3)
    ahead = outcome("batch", GroupStatus.PARTLY_SYNCED, destination=12, message="It is ahead.")

    [(first, in_use), (second, elsewhere)] = group_blockers(GroupReport(groups=(used, ahead)))

    assert (first, second) == (ErrorCode.CONSUMER_GROUP_IN_USE_ERROR, ErrorCode.WAITING_FOR_GROUPS)
    assert "'us_app' has active members" in in_use
    assert "'us_batch' has other offsets" in elsewhere
    assert "It is ahead." in elsewhere


def test_a_failed_group_and_an_incomplete_list_block_a_promotion() -> None:
    failed = GroupOutcome(name="a", destination_name="a", status=GroupStatus.FAILED, message="No coordinator.")

    assert codes(failed) == [ErrorCode.WAITING_FOR_GROUPS]
    assert codes(incomplete="Broker 2 does not respond.") == [ErrorCode.WAITING_FOR_GROUPS]


def test_messages_of_one_code_are_joined_and_an_unread_group_is_not_called_unequal() -> None:
    unread = GroupOutcome(name="a", destination_name="a", status=GroupStatus.FAILED, message="A transaction has not ended.")
    ahead = outcome("batch", GroupStatus.PARTLY_SYNCED, destination=12, message="It is ahead.")

    [(_, message)] = group_blockers(GroupReport(groups=(unread, ahead), incomplete="Broker 2 does not respond."))

    assert "'us_batch' has other offsets" in message
    assert "Consumer group 'a' cannot be compared with the source. A transaction has not ended." in message
    assert "Broker 2 does not respond." in message


def test_a_message_names_some_groups_and_counts_the_others() -> None:
    many = [outcome(f"g{number}", GroupStatus.IN_USE, destination=1) for number in range(8)]

    [(_, message)] = group_blockers(GroupReport(groups=many))

    assert "'us_g4' and 3 more have active members" in message
