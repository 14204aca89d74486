"""Losses on their way to the gap ledger, with a real Redis."""

from __future__ import annotations

import secrets

import pytest
import redis

from devcluster.redis import RedisServer
from linkengine import jobs
from linkengine.coordination.losses import forget_losses, note_loss, read_losses
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.signatures import Signer
from linkengine.domain.workers import CoordinationUnavailableError
from tests.signing import OTHER as OTHER_KEY
from tests.signing import SIGNER

FIRST, SECOND = ("7/0", OffsetRange(10, 1_400)), ("7/1", OffsetRange(0, 5))
OTHER = ("70/0", OffsetRange(10, 1_400))


@pytest.fixture
def link_id() -> str:
    return f"link-{secrets.token_hex(6)}"


def test_a_loss_stays_until_it_is_forgotten_however_often_it_is_noted(redis_url: str, link_id: str) -> None:
    for loss in (SECOND, FIRST, FIRST):
        note_loss(redis_url, link_id, SIGNER, loss)
    assert read_losses(redis_url, link_id, SIGNER) == [FIRST, SECOND]

    forget_losses(redis_url, link_id, SIGNER, [FIRST])
    assert read_losses(redis_url, link_id, SIGNER) == [SECOND]
    forget_losses(redis_url, link_id, SIGNER, [])
    assert read_losses(redis_url, link_id, SIGNER) == [SECOND]


def test_losses_are_removed_with_their_mirror_and_their_link(redis_url: str, link_id: str) -> None:
    for loss in (FIRST, OTHER, SECOND):
        note_loss(redis_url, link_id, SIGNER, loss)

    jobs.clear_mirror(redis_url, link_id, mirror_id="7")
    assert jobs.read_losses(redis_url, link_id, SIGNER) == [OTHER]
    jobs.clear_link(redis_url, link_id)
    assert jobs.read_losses(redis_url, link_id, SIGNER) == []


def test_without_redis_every_call_on_losses_raises(own_redis: RedisServer, link_id: str) -> None:
    own_redis.kill()

    with pytest.raises(CoordinationUnavailableError):
        note_loss(own_redis.url, link_id, SIGNER, FIRST)
    with pytest.raises(CoordinationUnavailableError):
        forget_losses(own_redis.url, link_id, SIGNER, [FIRST])
    with pytest.raises(CoordinationUnavailableError):
        read_losses(own_redis.url, link_id, SIGNER)


def test_a_forged_loss_is_not_returned_and_a_loss_signed_with_an_unknown_key_is_kept(redis_url: str, link_id: str) -> None:
    with redis.Redis.from_url(redis_url) as admin:
        note_loss(redis_url, link_id, SIGNER, FIRST)
        note_loss(redis_url, link_id, OTHER_KEY, SECOND)
        note_loss(redis_url, f"{link_id}-other", SIGNER, OTHER)
        admin.sadd(f"losses:{link_id}", "7/0 0 99", "7/0 0 99 " + "0" * 64, "x", *admin.smembers(f"losses:{link_id}-other"))
        before = int(admin.hget("refused", "loss") or 0)

        assert read_losses(redis_url, link_id, SIGNER) == read_losses(redis_url, link_id, SIGNER) == [FIRST]
        assert int(admin.hget("refused", "loss") or 0) == before + 5  # each once

    both = Signer((*OTHER_KEY.keys, *SIGNER.keys))
    assert read_losses(redis_url, link_id, both) == [FIRST, SECOND]
    forget_losses(redis_url, link_id, both, [FIRST, SECOND])
    assert read_losses(redis_url, link_id, both) == []
