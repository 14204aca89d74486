"""Topic configs of a mirror: which follow the source, which copying needs, what a stop restores. Pure functions.

Three lists follow Confluent's documentation of cluster linking: always synced, synced unless ``topic.config.sync.include``
leaves them out, and never synced (all others). While a topic is a mirror, some configs have another value than at the source
because copying needs it (``mirror_configs``). The source's values are applied when the mirror is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from linkengine.domain.errors import ErrorCode, LinkEngineError

# --- sync ----------------------------------------------------------------------------------------------------------------


UNLIMITED = str(2**63 - 1)
DIFFERENCE = "message.timestamp.difference.max.ms"  # removed in Kafka 4.0 in favour of the next two (KIP-937)
COMPRESSION = "compression.type"
BEFORE = "message.timestamp.before.max.ms"
AFTER = "message.timestamp.after.max.ms"

ALWAYS_SYNCED: tuple[str, ...] = (
    "max.message.bytes",
    "cleanup.policy",
    "message.timestamp.type",
    DIFFERENCE,
    BEFORE,
    AFTER,
)
RETENTION: tuple[str, ...] = ("retention.ms", "retention.bytes")
DEFAULT_SYNCED: tuple[str, ...] = (*RETENTION, "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")

# Synced only if ``topic.config.sync.include`` names them. Copying does not need them, and some are harmful: with
# min.insync.replicas above the mirror's replication factor no append succeeds.
SYNCED_ON_REQUEST: tuple[str, ...] = (
    "compression.gzip.level",
    "compression.lz4.level",
    COMPRESSION,
    "compression.zstd.level",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "local.retention.bytes",
    "local.retention.ms",
    "min.cleanable.dirty.ratio",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
)
SYNCABLE: frozenset[str] = frozenset({*ALWAYS_SYNCED, *DEFAULT_SYNCED, *SYNCED_ON_REQUEST})
_NAMES_BROKERS = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})

# A mirror keeps batches as the producer wrote them: same codec and same timestamps, however far in the past or future.
PHYSICAL: Mapping[str, str] = {
    COMPRESSION: "producer",
    "message.timestamp.type": "CreateTime",
    BEFORE: UNLIMITED,
    AFTER: UNLIMITED,
}
# With another value of any of these a mirror loses records or refuses them. A promotion waits for these, even if the
# destination refuses them, and for no other refused config.
NEEDED: frozenset[str] = frozenset({*RETENTION, "cleanup.policy", "max.message.bytes", *PHYSICAL})
# The limit must allow every batch that a source broker once accepted (its limit may have been lowered since), coalesced batches
# (1 MiB) and batches that grow when they are encoded again. It protects brokers from clients, and no client can write to a
# mirror; hence the largest request that a broker accepts by default (socket.request.max.bytes).
MIRROR_MAX_MESSAGE_BYTES = 100 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """Configs to set, and configs to reset to the cluster's default, in a single request."""

    values: dict[str, str] = field(default_factory=dict)
    deletions: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self.values, *self.deletions}))

    def __bool__(self) -> bool:
        return bool(self.values or self.deletions)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEdit:
    """A config that was changed on the mirror by a user and has been reset."""

    name: str
    found: str | None  # None: it had been deleted
    restored: str


def synced_names(include: Collection[str] | None = None) -> frozenset[str]:
    """Return the names that follow the source; ``include`` is ``topic.config.sync.include``, None the default list."""
    chosen = DEFAULT_SYNCED if include is None else [name for name in include if name in SYNCABLE]
    return frozenset({*ALWAYS_SYNCED, *chosen})


def follows_start(include: Collection[str] | None = None) -> bool:
    """Return whether the mirror's log start follows the source's, which it does if both retention configs are synced.

    Otherwise the mirror keeps its own log start and its own retention applies.
    """
    return set(RETENTION) <= synced_names(include)


def released_names(previous: Collection[str], *, include: Collection[str] | None = None) -> frozenset[str]:
    """Return the names that followed the source until the include list left them out; the mirror gets its own values back."""
    return frozenset({*DEFAULT_SYNCED, *SYNCED_ON_REQUEST} & set(previous) - synced_names(include))


def check_include(include: Collection[str]) -> None:
    """Raise MISCONFIGURATION_ERROR, with the names, if ``include`` contains configs that no mirror can sync."""
    brokers = sorted(set(include) & _NAMES_BROKERS)
    if brokers:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"topic.config.sync.include cannot have {', '.join(brokers)}: the value names brokers of the source. Remove it.",
        )
    unknown = sorted(set(include) - SYNCABLE)
    if unknown:
        allowed = ", ".join(sorted(SYNCABLE))
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"topic.config.sync.include cannot have {', '.join(unknown)}: not a config that can be synced. Allowed: {allowed}.",
        )


def check_overrides(overrides: Mapping[str, str], *, include: Collection[str] | None = None) -> None:
    """Raise MISCONFIGURATION_ERROR if an override of a mirror names a config that follows the source."""
    clash = sorted(synced_names(include) & set(overrides))
    if clash:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"A mirror topic cannot override {', '.join(clash)}: it follows the source. Remove it from the configs, or, for "
            "retention and compaction configs, leave it out of the link's topic.config.sync.include.",
        )


def source_values(effective: Mapping[str, str], *, include: Collection[str] | None = None) -> dict[str, str]:
    """Return the synced configs from the source's effective configs, with the names of timestamp limits of Kafka 4."""
    values = {name: effective[name] for name in sorted(synced_names(include)) if name in effective}
    old_limit = values.pop(DIFFERENCE, UNLIMITED)
    if old_limit != UNLIMITED:
        for name in (BEFORE, AFTER):
            if values.get(name, UNLIMITED) == UNLIMITED:
                values[name] = old_limit
    return values


def is_compacted(configs: Mapping[str, str]) -> bool:
    """Return whether ``cleanup.policy`` lets the log cleaner remove superseded records."""
    return "compact" in configs.get("cleanup.policy", "")


def mirror_configs(
    source_configs: Mapping[str, str],
    *,
    include: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the configs of the mirror topic while it mirrors.

    ``source_configs`` are the source's effective values. If the start follows the source (``follows_start``), retention is
    unlimited on the mirror: its log start is moved by DeleteRecords, not by its own retention. DeleteRecords is only allowed
    on topics whose policy includes ``delete``, hence ``compact`` becomes ``compact,delete`` (with unlimited retention,
    ``delete`` removes nothing).
    """
    values = source_values(source_configs, include=include)
    values["cleanup.policy"] = values.get("cleanup.policy") or "delete"
    if follows_start(include):
        values |= dict.fromkeys(RETENTION, "-1")
        values["cleanup.policy"] = "compact,delete" if is_compacted(values) else "delete"
    largest = max(MIRROR_MAX_MESSAGE_BYTES, int(values.get("max.message.bytes", 0)))
    values["max.message.bytes"] = str(largest)
    if "segment.bytes" in values:  # a batch must fit into a segment
        values["segment.bytes"] = str(max(MIRROR_MAX_MESSAGE_BYTES, int(values["segment.bytes"])))
    return {**(overrides or {}), **values, **PHYSICAL}


def config_difference(*, wanted: Mapping[str, str], present: Mapping[str, str], released: Collection[str] = ()) -> ConfigChange:
    """Return the change that gives a topic with configs ``present`` those in ``wanted`` and resets those in ``released``."""
    return ConfigChange(
        values={name: value for name, value in wanted.items() if not _same(name, value=value, other=present.get(name))},
        deletions=tuple(sorted(name for name in released if name in present and name not in wanted)),
    )


def local_edits(change: ConfigChange, *, previous: Mapping[str, str], present: Mapping[str, str]) -> tuple[LocalEdit, ...]:
    """Return the part of a change that the last run (wanted: ``previous``) had already set: a user changed it on the mirror."""
    return tuple(
        LocalEdit(name=name, found=present.get(name), restored=value)
        for name, value in sorted(change.values.items())
        if name in previous and _same(name, value=value, other=previous[name])
    )


def configs_at_stop(
    source_configs: Mapping[str, str],
    *,
    include: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> ConfigChange:
    """Return the change that turns the mirror into an ordinary topic with the source's values.

    If a value of the source was never known, retention and cleanup policy stay as they are, since a guess could delete
    records; the other physical values are reset to the cluster's default.
    """
    values = source_values(source_configs, include=include)
    for name in PHYSICAL:
        if name in (overrides or {}):
            values.setdefault(name, (overrides or {})[name])
    restorable = {*PHYSICAL, "max.message.bytes", *released_names(source_configs, include=include)} - set(overrides or {})
    return ConfigChange(values=values, deletions=tuple(sorted(restorable - set(values))))


def still_due(change: ConfigChange, *, mirror: Mapping[str, str], present: Mapping[str, str]) -> ConfigChange:
    """Return the part of a stop's change that the topic lacks, of the names that still have the mirror's value.

    For repeated attempts: a name with another value was restored by an earlier attempt or set by a user since.
    """

    def is_mirrors(name: str) -> bool:
        if name == "cleanup.policy":  # copying switches between both values
            return _parts(present.get(name, "")) in (_parts(mirror.get(name, "")), {"delete"})
        return name not in mirror or present.get(name) == mirror[name]

    return ConfigChange(
        values={
            name: value
            for name, value in change.values.items()
            if not _same(name, value=value, other=present.get(name)) and is_mirrors(name)
        },
        deletions=tuple(name for name in change.deletions if name in present and is_mirrors(name)),
    )


def lacking(change: ConfigChange, *, present: Mapping[str, str]) -> ConfigChange:
    """Return the part of a change that a topic with these configs lacks; the whole change if no configs could be read."""
    if not present:
        return change
    values = {name: value for name, value in change.values.items() if not _same(name, value=value, other=present.get(name))}
    return ConfigChange(values=values, deletions=tuple(name for name in change.deletions if name in present))


def has_mirror_configs(configs: Mapping[str, str]) -> bool:
    """Return whether a topic's own configs have the combination of values that only ``mirror_configs`` sets."""
    values = {**PHYSICAL, "max.message.bytes": str(MIRROR_MAX_MESSAGE_BYTES)}
    enough = int(configs.get("max.message.bytes", "0")) >= MIRROR_MAX_MESSAGE_BYTES
    return enough and all(configs.get(name) == value for name, value in values.items() if name != "max.message.bytes")


def _same(name: str, *, value: str, other: str | None) -> bool:
    if other is not None and name == "cleanup.policy":  # a list; its order has no meaning
        return _parts(value) == _parts(other)
    return value == other


def _parts(value: str) -> set[str]:
    return {part.strip() for part in value.split(",")}


# --- compaction ----------------------------------------------------------------------------------------------------------
# A compacted topic accepts no record without a key, but may hold some from before it was compacted, until its log cleaner
# removes them. The mirror accepts them as long as its policy is ``delete`` (with unlimited retention it deletes nothing), and
# treats them as the source does once it is compacted (``docs/adr/0002-compacted-mirrors.md``).


POLICY = "cleanup.policy"
OPEN = "delete"
TOMBSTONES_KEPT = "delete.retention.ms"
_DEFAULT_KEPT = "86400000"  # Kafka's default; used if the link does not read the source's value


def with_compaction_in_time(
    change: ConfigChange, *, wanted: Mapping[str, str], present: Mapping[str, str], keyless: bool, copied: Callable[[], bool]
) -> ConfigChange:
    """Return the change with the cleanup policy that copying allows now.

    ``keyless``: the mirror has refused a record without a key. ``copied`` returns whether the mirror holds everything that its
    source had when the source's policy was read; it is called only if that decides.
    """
    if not is_compacted(wanted) or wanted.get("retention.ms") != "-1":  # with its own retention, ``delete`` removes records
        return change
    if is_compacted(present):
        return replace(change, values={**change.values, POLICY: OPEN}) if keyless else change
    if POLICY in change.values and not copied():
        return replace(change, values={name: value for name, value in change.values.items() if name != POLICY})
    return change


def tombstones_kept_ms(source_configs: Mapping[str, str]) -> int | None:
    """Return for how long a source keeps tombstones at least, None if it is not compacted.

    A reader that takes longer than that between two complete states may miss that a key was deleted.
    """
    return tombstones_would_be_kept_ms(source_configs) if is_compacted(source_configs) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """The log cleaning of a source under former configs.

    It may have lasted ``until`` then; ``kept_ms`` is the shortest time for which it kept tombstones.
    """

    until: datetime
    kept_ms: int


def cleaned_before(
    former: Mapping[str, str],
    present: Mapping[str, str],
    *,
    known: Cleaned | None,
    needed: Callable[[Cleaned], bool],
    now: datetime,
) -> Cleaned | None:
    """Return the next value of ``known``, after the configs of a source were read again.

    Between two readings the shorter time of both counts. ``needed`` returns whether ``known`` still matters to a mirror; it is
    called only if that decides.
    """
    times = tombstones_kept_ms(former), tombstones_kept_ms(present)
    if times[0] == times[1]:
        return known
    kept_ms = min(kept for kept in times if kept is not None)
    if known is not None and known.kept_ms < kept_ms and needed(known):
        kept_ms = known.kept_ms
    return Cleaned(until=now, kept_ms=kept_ms)


def kept_since(since: datetime, *, present: Mapping[str, str], known: Cleaned | None) -> int | None:
    """Return for how long a source has kept tombstones at least since then, None if it was not known to be compacted."""
    times = [tombstones_kept_ms(present), known.kept_ms if known is not None and known.until >= since else None]
    return min((kept for kept in times if kept is not None), default=None)


def tombstones_would_be_kept_ms(source_configs: Mapping[str, str]) -> int:
    """Return for how long a source would keep tombstones at least if it were compacted."""
    return int(source_configs.get(TOMBSTONES_KEPT, _DEFAULT_KEPT))
