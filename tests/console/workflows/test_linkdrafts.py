"""The hourly task deletes drafts of links that have expired, with their credentials."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from console.links.drafts import KEEP_DRAFTS
from console.models import LinkDraft
from console.tasks.links import forget_old_rows
from tests.console.conftest import MakeActor


@pytest.mark.django_db
def test_expired_drafts_are_deleted(make_actor: MakeActor) -> None:
    user, now = make_actor("owner").user, timezone.now()
    assert user is not None
    facts = {"user": user, "values": {"name": "new"}, "created_at": now - timedelta(days=30)}
    expired = LinkDraft.objects.create(updated_at=now - KEEP_DRAFTS - timedelta(minutes=1), **facts)
    kept = LinkDraft.objects.create(updated_at=now - KEEP_DRAFTS + timedelta(minutes=10), **facts)

    forget_old_rows()

    assert list(LinkDraft.objects.all()) == [kept]
    assert expired.pk != kept.pk


@pytest.mark.django_db
def test_drafts_are_deleted_with_their_user(make_actor: MakeActor) -> None:
    user, now = make_actor("owner").user, timezone.now()
    assert user is not None
    LinkDraft.objects.create(user=user, values={"name": "new"}, created_at=now, updated_at=now)

    user.delete()

    assert not LinkDraft.objects.exists()
