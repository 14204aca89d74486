"""Which topic configs a mirror takes from its source, which ones the copy itself needs, and what a stop restores.

Three lists follow the documents of cluster linking: always synced, synced unless ``topic.config.sync.include`` leaves them
out, and never synced (everything else). While mirroring, some values differ *physically* from the source's because the copy
needs that (see ``mirror_configs``; for compacted topics ``docs/adr/0002-compacted-mirrors.md``); the source's values are
applied when the mirror is stopped. Knows names and values only, no broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from linkengine.domain.errors import ErrorCode, LinkEngineError

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

# Followed only where ``topic.config.sync.include`` names them. The copy has no use for them, and some cost something: with
# min.insync.replicas above the mirror's replicas nothing can be appended.
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

# The producer's batches are kept as they are: same codec, same timestamps, however old or from the future they are.
PHYSICAL: Mapping[str, str] = {
    COMPRESSION: "producer",
    "message.timestamp.type": "CreateTime",
    BEFORE: UNLIMITED,
    AFTER: UNLIMITED,
}
# Without its own value of one of these a mirror loses records or refuses them; all others are the business of the stop.
NEEDED: frozenset[str] = frozenset({*RETENTION, "cleanup.policy", "max.message.bytes", *PHYSICAL})
# What a source broker once accepted must fit, also where its limit was lowered later, and so must coalesced batches (1 MiB)
# and batches that grow when they are encoded again. The limit protects brokers from clients, and no client can write to a
# mirror; hence the most that any broker takes in one request by default (socket.request.max.bytes).
MIRROR_MAX_MESSAGE_BYTES = 100 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """Configs to set and names to give back to the cluster's default, in one request."""

    values: dict[str, str] = field(default_factory=dict)
    deletions: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self.values, *self.deletions}))

    def __bool__(self) -> bool:
        return bool(self.values or self.deletions)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEdit:
    """A config that somebody changed on the mirror and that was set back."""

    name: str
    found: str | None  # None: it had been deleted
    restored: str


def synced_names(include: Collection[str] | None = None) -> frozenset[str]:
    """Answer the names that follow the source; ``include`` is ``topic.config.sync.include``, None the default list."""
    chosen = DEFAULT_SYNCED if include is None else [name for name in include if name in SYNCABLE]
    return frozenset({*ALWAYS_SYNCED, *chosen})


def follows_start(include: Collection[str] | None = None) -> bool:
    """Tell whether the mirror's log start follows the source's: as long as both retention configs do.

    Otherwise the mirror keeps its own start, and whatever retention it has counts on the mirror itself.
    """
    return set(RETENTION) <= synced_names(include)


def released_names(previous: Collection[str], *, include: Collection[str] | None = None) -> frozenset[str]:
    """Answer the names that followed the source until the include list left them out: the mirror gets its own values back."""
    return frozenset({*DEFAULT_SYNCED, *SYNCED_ON_REQUEST} & set(previous) - synced_names(include))


def check_include(include: Collection[str]) -> None:
    """Raise MISCONFIGURATION_ERROR, naming them, for names that no mirror can sync."""
    brokers = sorted(set(include) & _NAMES_BROKERS)
    if brokers:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"topic.config.sync.include names {', '.join(brokers)}, whose values are brokers of the source. Leave it out.",
        )
    unknown = sorted(set(include) - SYNCABLE)
    if unknown:
        allowed = ", ".join(sorted(SYNCABLE))
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"topic.config.sync.include names {', '.join(unknown)}, which cannot be synced. It may name: {allowed}.",
        )


def check_overrides(overrides: Mapping[str, str], *, include: Collection[str] | None = None) -> None:
    """Raise MISCONFIGURATION_ERROR if an override of a mirror names a config that follows the source."""
    clash = sorted(synced_names(include) & set(overrides))
    if clash:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"{', '.join(clash)} of a mirror topic always has the source's value. Remove it from the configs, or, for "
            "retention and compaction configs, leave it out of the link's topic.config.sync.include.",
        )


def source_values(effective: Mapping[str, str], *, include: Collection[str] | None = None) -> dict[str, str]:
    """Pick the source's synced values out of its effective configs, timestamp limits in the words of Kafka 4."""
    values = {name: effective[name] for name in sorted(synced_names(include)) if name in effective}
    old_limit = values.pop(DIFFERENCE, UNLIMITED)
    if old_limit != UNLIMITED:
        for name in (BEFORE, AFTER):
            if values.get(name, UNLIMITED) == UNLIMITED:
                values[name] = old_limit
    return values


def is_compacted(configs: Mapping[str, str]) -> bool:
    """Tell whether ``cleanup.policy`` lets the log cleaner remove superseded records."""
    return "compact" in configs.get("cleanup.policy", "")


def mirror_configs(
    source_configs: Mapping[str, str],
    *,
    include: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Answer the configs the mirror topic carries while it mirrors.

    ``source_configs`` are the source's effective values. Where the start follows the source (``follows_start``), retention is
    unlimited on the mirror: its log start is moved by DeleteRecords, not by a clock of its own. DeleteRecords is only allowed
    on topics whose policy includes ``delete``, hence ``compact`` becomes ``compact,delete`` (with unlimited retention it
    deletes nothing by itself).
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
    """Answer what makes a topic whose own configs are ``present`` carry ``wanted``, and no longer what is ``released``."""
    return ConfigChange(
        values={name: value for name, value in wanted.items() if not _same(name, value=value, other=present.get(name))},
        deletions=tuple(sorted(name for name in released if name in present and name not in wanted)),
    )


def local_edits(change: ConfigChange, *, previous: Mapping[str, str], present: Mapping[str, str]) -> tuple[LocalEdit, ...]:
    """Pick from a change what the last round (its wishes: ``previous``) had set already: somebody changed it on the mirror."""
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
    """Answer what turns the mirror into an ordinary topic with the source's values.

    Where a value of the source was never known, retention and clean-up policy stay as they are, since a guess could delete
    records; the other physical values go back to the cluster's default.
    """
    values = source_values(source_configs, include=include)
    for name in PHYSICAL:
        if name in (overrides or {}):
            values.setdefault(name, (overrides or {})[name])
    restorable = {*PHYSICAL, "max.message.bytes", *released_names(source_configs, include=include)} - set(overrides or {})
    return ConfigChange(values=values, deletions=tuple(sorted(restorable - set(values))))


def still_due(change: ConfigChange, *, mirror: Mapping[str, str], present: Mapping[str, str]) -> ConfigChange:
    """Return the part of a stop's change that the topic lacks, of the names that still have the mirror's value.

    For an attempt that is repeated: a name with another value was given back before, or a person has set it since.
    """

    def is_mirrors(name: str) -> bool:
        if name == "cleanup.policy":  # the copy switches between both
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
    """Return the part of a change that a topic with these own configs lacks; all of it where none could be read."""
    if not present:
        return change
    values = {name: value for name, value in change.values.items() if not _same(name, value=value, other=present.get(name))}
    return ConfigChange(values=values, deletions=tuple(name for name in change.deletions if name in present))


def looks_like_mirror(configs: Mapping[str, str]) -> bool:
    """Tell whether a topic's own configs carry the marks that only ``mirror_configs`` leaves together."""
    marks = {**PHYSICAL, "max.message.bytes": str(MIRROR_MAX_MESSAGE_BYTES)}
    enough = int(configs.get("max.message.bytes", "0")) >= MIRROR_MAX_MESSAGE_BYTES
    return enough and all(configs.get(name) == value for name, value in marks.items() if name != "max.message.bytes")


def _same(name: str, *, value: str, other: str | None) -> bool:
    if other is not None and name == "cleanup.policy":  # a list; its order has no meaning
        return _parts(value) == _parts(other)
    return value == other


def _parts(value: str) -> set[str]:
    return {part.strip() for part in value.split(",")}
