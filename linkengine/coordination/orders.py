"""Orders to running copy tasks: one control record per link, looked up ten times a second.

The record is a hash ``orders:<link id>`` with the fields ``revision`` and ``digest`` (of all others), one field per mirror
id, "1" (go on) or "0" (stop), and ``life:<mirror id>``: the topics it joins (``PartitionAssignment.life``). A task that was
planned for others ends: after a restore it would find its mirror topic missing, and say so with a lease in its hand.
Readers ask for the digest and read on only where it is another one: a thousand mirrors, ten times a second in each task,
kept a core busy.

It is written from the database and may be lost; whoever reads nothing carries on until its slice ends. That is safe: a stop
is made final by the fence on the broker, not by this record, and copying on is safe because every append is conditional.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from linkengine.coordination.client import client_for, redis_answers
from linkengine.domain.leases import OrdersSnapshot

_REVISION, _DIGEST, _LIFE = "revision", "digest", "life:"  # mirror ids are UUIDs or numbers, never these words
_WRITE = """
local known = tonumber(redis.call('HGET', KEYS[1], 'revision') or '-1')
if known > tonumber(ARGV[2]) then return 0 end
redis.call('DEL', KEYS[1])
for i = 1, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
return 1
"""


def write_orders(
    url: str, link_id: str, *, revision: int, wanted: Mapping[str, bool], lives: Mapping[str, str] = MappingProxyType({})
) -> bool:
    """Replace the record in one step; answer False, changing nothing, where a higher revision is already there.

    Among writers of the same revision the last one counts: they read the database under a lock or write twice.
    """
    for word in {_REVISION, _DIGEST} & wanted.keys():
        raise ValueError(f"{word!r} cannot be the id of a mirror")
    fields = [word for mirror, go_on in wanted.items() for word in (mirror, "1" if go_on else "0")]
    fields += [word for mirror, life in lives.items() for word in (_LIFE + mirror, life)]
    fields += [_DIGEST, sha256(" ".join([str(revision), *fields]).encode()).hexdigest()]
    with redis_answers("take orders"):
        return bool(client_for(url).eval(_WRITE, 1, _name(link_id), _REVISION, revision, *fields))


def clear_orders(url: str, link_id: str) -> None:
    """Remove the record of a link that is gone."""
    with redis_answers("clear orders"):
        client_for(url).delete(_name(link_id))


class RedisOrders:
    """The orders of one link, as a copy task reads them."""

    def __init__(self, url: str, link_id: str) -> None:
        """Read nothing yet."""
        self._redis = client_for(url)
        self._name = _name(link_id)
        self._last: tuple[str, OrdersSnapshot] | None = None  # with its digest

    def read(self) -> OrdersSnapshot | None:
        """Answer the orders of this moment, None where Redis has none; raise CoordinationUnavailableError in an outage."""
        with redis_answers("answer orders"):
            if self._last is not None and self._digest() == self._last[0]:
                return self._last[1]
            record: Any = self._redis.hgetall(self._name)
        if _REVISION not in record:
            return None
        revision, digest = int(record.pop(_REVISION)), record.pop(_DIGEST, None)
        lives = {name.removeprefix(_LIFE): record.pop(name) for name in list(record) if name.startswith(_LIFE)}
        orders = OrdersSnapshot(
            revision=revision, wanted={mirror: value == "1" for mirror, value in record.items()}, lives=lives
        )
        self._last = None if digest is None else (digest, orders)  # none: written by an older version
        return orders

    def _digest(self) -> Any:
        return self._redis.hget(self._name, _DIGEST)


def _name(link_id: str) -> str:
    return f"orders:{link_id}"
