"""Orders to running copy tasks: one control record per link, looked up ten times a second.

The record is a hash ``orders:<link id>`` with the fields ``revision``, ``issued`` and ``signature`` (of all others), one field
per mirror id, "1" (go on) or "0" (stop), and ``life:<mirror id>``: the topics it joins (``PartitionAssignment.life``). A task
that was planned for others ends: after a restore it would find its mirror topic missing, and say so with a lease in its hand.
Readers ask for the signature and read on only where it is another one: a thousand mirrors, ten times a second in each task,
kept a core busy.

It is written from the database and may be lost; whoever reads nothing carries on until its slice ends. That is safe: a stop
is made final by the fence on the broker, not by this record, and copying on is safe because every append is conditional.

Readers get the link's keys with their plan. A record that is not valid changes nothing: the last valid one stays in force,
and the next round of the reconciler overwrites it.

| the record | is not valid because |
|---|---|
| was not signed, was altered, is another link's | the signature covers the link, the revision, the time and all fields |
| was issued more than ``LIVES_MS`` ago | the reconciler writes it anew every second, with a new time every ``STEP_MS`` |
| was issued before one that was read | the signed time; not where Redis' clock was set back since |

Within one ``STEP_MS`` an older record of the same task can be put back. It makes the task stop early, or copy a paused mirror
until its slice ends; neither needs the record to be harmless.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from linkengine.coordination.client import client_for, redis_answers
from linkengine.coordination.refusals import report_refused
from linkengine.domain.leases import OrdersSnapshot
from linkengine.domain.signatures import Signer

STEP_MS = 10_000  # readers read all of the record each time
LIVES_MS = 300_000
_PURPOSE = "orders"
_REVISION, _ISSUED, _SIGNATURE, _LIFE = "revision", "issued", "signature", "life:"  # mirror ids are UUIDs or numbers
_RESERVED = {_REVISION, _ISSUED, _SIGNATURE}
# ARGV: the signature of a record that was found to be forged, then fields and values
_WRITE = """
local known = redis.call('HMGET', KEYS[1], 'revision', 'signature')
local forged = ARGV[1] ~= '' and (known[2] or '') == (ARGV[1] == 'unsigned' and '' or ARGV[1])
if not forged and (tonumber(known[1] or '-1') or -1) > tonumber(ARGV[3]) then return 0 end
redis.call('DEL', KEYS[1])
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
return 1
"""
_READ = "return {redis.call('TIME'), redis.call('HGETALL', KEYS[1])}"
_UNSIGNED = "unsigned"  # stands for a signature that is missing or empty


def write_orders(
    url: str,
    link_id: str,
    signer: Signer,
    *,
    revision: int,
    wanted: Mapping[str, bool],
    lives: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Replace the record in one step; answer False, changing nothing, where a higher revision is already there.

    Among writers of the same revision the last one counts: they read the database under a lock or write twice.
    """
    for word in _RESERVED & wanted.keys():
        raise ValueError(f"{word!r} cannot be the id of a mirror")
    fields = {mirror: "1" if go_on else "0" for mirror, go_on in wanted.items()}
    fields |= {_LIFE + mirror: life for mirror, life in lives.items()}
    with redis_answers("take orders"):
        client = client_for(url)
        seconds, _ = client.time()
        fields |= {_REVISION: str(revision), _ISSUED: str(int(seconds) * 1000 // STEP_MS * STEP_MS)}
        fields[_SIGNATURE] = signer.sign(_PURPOSE, *_signed(link_id, fields))
        return _write(url, link_id, fields, forged="") or _overwrite(url, link_id, signer, fields)


def clear_orders(url: str, link_id: str) -> None:
    """Remove the record of a link that is gone."""
    with redis_answers("clear orders"):
        client_for(url).delete(_name(link_id))


class RedisOrders:
    """The orders of one link, as a copy task reads them."""

    def __init__(self, url: str, link_id: str, signer: Signer) -> None:
        """Read nothing yet."""
        self._url, self._link_id, self._signer = url, link_id, signer
        self._redis = client_for(url)
        self._name = _name(link_id)
        self._last: OrdersSnapshot | None = None
        self._issued = -1
        self._seen = ""  # the signature that was read last, valid or not

    def read(self) -> OrdersSnapshot | None:
        """Answer the orders of this moment, None where Redis has none; raise CoordinationUnavailableError in an outage."""
        with redis_answers("answer orders"):
            if self._seen and self._redis.hget(self._name, _SIGNATURE) == self._seen:
                return self._last
            answer: Any = self._redis.eval(_READ, 1, self._name)
        (seconds, _), words = answer
        record = dict(zip(words[::2], words[1::2], strict=True))
        if not record:
            self._last, self._seen = None, ""
            return None
        self._seen = record.get(_SIGNATURE, "")
        if self._is_valid(record, now_ms=int(seconds) * 1000):
            self._last, self._issued = _snapshot(record), int(record[_ISSUED])
        else:
            report_refused(self._url, "orders", self._link_id, repr(sorted(record.items())))
        return self._last

    def _is_valid(self, record: Mapping[str, str], *, now_ms: int) -> bool:
        if not _is_signed(self._link_id, self._signer, record):
            return False
        issued = int(record[_ISSUED])
        was_set_back = now_ms < self._issued  # Redis' clock
        return now_ms - issued <= LIVES_MS and (issued >= self._issued or was_set_back)


def _write(url: str, link_id: str, fields: Mapping[str, str], *, forged: str) -> bool:
    first = [_REVISION, fields[_REVISION]]
    words = first + [word for name, value in fields.items() if name != _REVISION for word in (name, value)]
    return bool(client_for(url).eval(_WRITE, 1, _name(link_id), forged, *words))


def _overwrite(url: str, link_id: str, signer: Signer, fields: dict[str, str]) -> bool:
    """Write over a record of a higher revision if it is forged: otherwise it would keep the true orders out."""
    record: Any = client_for(url).hgetall(_name(link_id))
    if not record or _is_signed(link_id, signer, record):
        return False
    report_refused(url, "orders", link_id, repr(sorted(record.items())))
    return _write(url, link_id, fields, forged=record.get(_SIGNATURE) or _UNSIGNED)


def _is_signed(link_id: str, signer: Signer, record: Mapping[str, str]) -> bool:
    return signer.verifies(record.get(_SIGNATURE), _PURPOSE, *_signed(link_id, record))


def _signed(link_id: str, fields: Mapping[str, str]) -> tuple[str, str]:
    return link_id, json.dumps(sorted(item for item in fields.items() if item[0] != _SIGNATURE))


def _snapshot(record: Mapping[str, str]) -> OrdersSnapshot:
    fields = {name: value for name, value in record.items() if name not in _RESERVED}
    return OrdersSnapshot(
        revision=int(record[_REVISION]),
        wanted={mirror: value == "1" for mirror, value in fields.items() if not mirror.startswith(_LIFE)},
        lives={name.removeprefix(_LIFE): value for name, value in fields.items() if name.startswith(_LIFE)},
    )


def _name(link_id: str) -> str:
    return f"orders:{link_id}"
