"""Two concurrent operations on a mirror have the same result as the two operations in one of the possible orders."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import pytest

from console.actors import SYSTEM
from console.errors import ConsoleError
from console.mirrors.operation_actions import operate
from console.models import AuditEvent, ClusterLink, MirrorTopic, StateTransition
from linkengine.domain.states import TRANSITIONS, MirrorEvent, MirrorState
from tests.console.concurrently import run_concurrently
from tests.console.conftest import NOW, MakeMirror

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("sent")]
E = MirrorEvent
S = MirrorState
OPERATIONS = (E.PAUSE, E.PROMOTE, E.FAILOVER, E.REVERSE_AND_START, E.REVERSE_AND_PAUSE)


def in_order(*operations: E) -> tuple[str, int]:
    """Return the state after the operations in this order, by the transition table, and the number of legal operations."""
    state, done = S.ACTIVE, 0
    for operation in operations:
        if operation in TRANSITIONS[state]:
            state, done = TRANSITIONS[state][operation], done + 1
    return state, done


def operated(mirror: MirrorTopic, *operations: E) -> list[E]:
    """Run each operation in its own thread, on the row as it was before; return the accepted operations."""
    mirrors, accepted = MirrorTopic.objects.select_related("link__destination__environment"), []

    def run(own: MirrorTopic, operation: E) -> None:
        with suppress(ConsoleError):
            operate(mirror=own, operation=operation, by=SYSTEM, now=NOW)
            accepted.append(operation)

    run_concurrently(*(partial(run, mirrors.get(pk=mirror.pk), operation) for operation in operations))
    return accepted


@pytest.mark.parametrize(("first", "second"), list(product(OPERATIONS, OPERATIONS)), ids=str)
def test_concurrent_operations_end_as_in_one_of_the_two_orders(
    first: E, second: E, back: ClusterLink, make_mirror: MakeMirror
) -> None:
    mirror = make_mirror("orders")

    accepted = operated(mirror, first, second)

    row = MirrorTopic.objects.get(link=mirror.link)
    orders = {(*in_order(first, second),), (*in_order(second, first),)}
    assert (row.state, len(accepted)) in orders
    steps = list(StateTransition.objects.filter(mirror=row).order_by("pk").values_list("from_state", "to_state", "event"))
    assert sorted(step[2] for step in steps) == sorted(accepted)
    assert [step[0] for step in steps] == [S.ACTIVE, *(step[1] for step in steps[:-1])]
    assert AuditEvent.objects.count() == len(accepted)
    _check_consistent(row, accepted, steps)


def _check_consistent(row: MirrorTopic, accepted: list[E], steps: list[Any]) -> None:
    if row.state == S.PENDING_STOPPED:
        assert row.stop_reason == ("failover" if E.FAILOVER in accepted else "promote")
    others = MirrorTopic.objects.exclude(pk=row.pk)
    if row.state == S.PENDING_SYNCHRONIZE:
        assert row.reversal == steps[-1][2]
        assert [other.state for other in others] == [S.PENDING_MIRROR]
