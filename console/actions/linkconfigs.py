"""Changes the configs of a link; a request is applied as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db import transaction
from django.db.models import F

from console import audit
from console.access import Permission, check_permission
from console.actions import groups, linkchecks, linkcredentials
from console.actions.row_locks import lock_link
from console.actors import Actor
from console.errors import InvalidInputError
from console.links import pairs
from console.models import ClusterLink, LinkConfig
from console.models.fields import readable
from console.models.links import LinkMode
from console.queue import dispatch
from linkengine.domain.errors import ErrorCode
from linkengine.domain.linkconfigs import LINK_CONFIGS, is_connection
from linkengine.domain.linkrules import PAUSED as PAUSED_CONFIG
from linkengine.domain.linkrules import with_consequences
from linkengine.domain.linktasks import TaskName, concerned_by, switched_off_by
from linkengine.domain.states import LinkState

# Configs that copy workers have to be given, beside those of the connection: log start sync and the bandwidth limit.
KNOWN_TO_COPY_TASKS = {"topic.config.sync.include", "link.throughput.limit.bytes.per.second"}
_ACL_CONFIGS = {linkcredentials.ACL_SYNC, linkcredentials.ACL_FILTERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """A config to set, or to reset to its default (DELETE)."""

    name: str
    value: str | None = None
    operation: Literal["SET", "DELETE"] = "SET"


def alter_configs(
    *, link: ClusterLink, changes: Sequence[ConfigChange], validate_only: bool = False, by: Actor, now: datetime
) -> None:
    """Apply all changes or none; copy workers use the new configs within a second, and the link is probed immediately."""
    check_permission(by, Permission.MANAGE_LINK, link=link)
    wanted = {change.name: change.value if change.operation == "SET" else None for change in changes}
    if len(wanted) != len(changes):
        raise InvalidInputError("A config is named twice. Name each config once.", field="data")
    wanted = linkchecks.canonical(wanted)
    _check(link, wanted, by=by)
    wanted = with_consequences(wanted)
    if validate_only or not wanted:
        return
    with transaction.atomic():
        locked = lock_link(link)
        locked.uses_cluster_credentials = _check(locked, wanted, by=by)
        _write(locked, wanted, now=now)
        other = _update_copying_side(locked, wanted)
        _audit(locked, wanted, by=by, now=now)
    for side in (link, other):
        if side is not None:
            dispatch.send("reconcile_link", link_id=side.pk, probe=True)


def _check(link: ClusterLink, wanted: dict[str, str | None], *, by: Actor) -> bool:
    """Check the changes; return whether the changed link signs in with the registered cluster's credentials.

    The address is checked only if it changes, so that a link whose address does not work can still be paused.
    """
    before, changed = copy(link), copy(link)
    before.properties = dict(readable(link.properties))
    changed.properties = _merged(before.properties, wanted)
    present: dict[str, str | None] = {
        **before.properties,
        **dict(link.configs.values_list("name", "value")),
        "link.mode": link.mode,
    }
    linkchecks.check_values(wanted, present=present)
    linkcredentials.check_secrets(before.properties, {name: v for name, v in wanted.items() if is_connection(name)})
    linkcredentials.choose(changed, by=by, before=before)
    reconnects = changed.properties != before.properties
    if reconnects or _ACL_CONFIGS & set(wanted):
        linkcredentials.check_acl_sync(link, {**present, **wanted}.get, by=by)
    if reconnects:
        linkchecks.check_address(changed)
    return changed.uses_cluster_credentials


def _write(link: ClusterLink, wanted: dict[str, str | None], *, now: datetime) -> None:
    others = {name: value for name, value in wanted.items() if not is_connection(name)}
    link.configs.filter(name__in=[name for name, value in others.items() if value is None]).delete()
    for name, value in others.items():
        if value is not None:
            LinkConfig.objects.update_or_create(link=link, name=name, defaults={"value": value})
    link.properties = _merged(link.properties, wanted)
    if PAUSED_CONFIG in wanted:
        _pause_or_resume(link, paused=wanted[PAUSED_CONFIG] == "true", now=now)
    link.tasks.filter(name__in=concerned_by(wanted)).update(next_run_at=None)
    link.tasks.filter(name__in=switched_off_by(wanted)).update(errors=[], error_count=0, failing_since=None, summary="")
    _switch_groups(link, wanted)
    if any(is_connection(name) or name in KNOWN_TO_COPY_TASKS for name in wanted):
        link.revision = F("revision") + 1  # copy workers reconnect with the new settings
    link.sequence = F("sequence") + 1
    link.save()


def _switch_groups(link: ClusterLink, wanted: dict[str, str | None]) -> None:
    if TaskName.CONSUMER_OFFSETS in switched_off_by(wanted):
        groups.let_wait(link)
    elif groups.ENABLE in wanted:
        groups.clear_waiting_reason(link)


def _update_copying_side(link: ClusterLink, wanted: Iterable[str]) -> ClusterLink | None:
    """Return the destination side of a source-initiated link if its ``local.*`` connection configs change here, or None.

    That side copies with these configs, so its revision is increased and its copy workers reconnect.
    """
    used = link.mode == LinkMode.SOURCE and any(name.startswith("local.") and is_connection(name) for name in wanted)
    other = pairs.other_side(link) if used else None
    if other is not None:
        changes = {"revision": F("revision") + 1, "sequence": F("sequence") + 1}
        ClusterLink.objects.filter(pk=other.pk).update(**changes)
    return other


def _pause_or_resume(link: ClusterLink, *, paused: bool, now: datetime) -> None:
    if paused == (link.state == LinkState.PAUSED):
        return
    link.state, link.state_since = LinkState.PAUSED if paused else LinkState.ACTIVE, now
    link.error_code = link.error_message = ""
    if not paused and pairs.needs_other_side(link) and pairs.other_side(link) is None:  # deleted while the link was paused
        link.state, link.error_code = LinkState.FAILED, ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR
        link.error_message = pairs.missing_side(link)


def _merged(properties: Mapping[str, str], wanted: Mapping[str, str | None]) -> Mapping[str, str]:
    """Return the connection with the changes; without changes the stored value itself, also if no key decrypts it."""
    changes = {name: value for name, value in wanted.items() if is_connection(name)}
    if not changes:
        return properties
    return {name: value for name, value in {**readable(properties), **changes}.items() if value is not None}


def _audit(link: ClusterLink, wanted: dict[str, str | None], *, by: Actor, now: datetime) -> None:
    shown = {name: linkchecks.MASK if value and LINK_CONFIGS[name].sensitive else value for name, value in wanted.items()}
    detail = {"configs": shown, "uses_cluster_credentials": link.uses_cluster_credentials}
    audit.record(by=by, action="AlterClusterLinkConfigs", resource=audit.path_of(link), now=now, detail=detail)
