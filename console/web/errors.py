"""The meaning and the fix of each error code, shown on pages and in docs/operations/troubleshoot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from console.languages import translated
from console.web.badges import Family
from console.web.numbers import Moment, moment
from linkengine.domain.errors import WAITING, ErrorCode

if TYPE_CHECKING:
    from console.models import EndedError, StateTransitionError


# --- meaning and fix of each code -------------------------------------------------------------------------------------


_E = ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorHelp:
    """The meaning of an error code and what to do about it. The tables are English; ``help_for`` translates."""

    code: str
    meaning: str
    fix: str


_ROWS: tuple[tuple[ErrorCode, str, str], ...] = (
    (_E.NO_ERROR, _("There is no error."), _("No action needed.")),
    (
        _E.AUTHENTICATION_ERROR,
        _("The cluster rejected the user name or password, or requires another SASL mechanism."),
        _("Enter the correct credentials in the link's configuration. The link is then retried immediately."),
    ),
    (
        _E.AUTHORIZATION_ERROR,
        _("The link's principal is authenticated but does not have the required permissions on the cluster."),
        _("Grant it READ, DESCRIBE and DESCRIBE_CONFIGS on the topics, and DESCRIBE on the cluster."),
    ),
    (
        _E.UNRESOLVABLE_BOOTSTRAP_ERROR,
        _("None of the host names in bootstrap.servers can be resolved."),
        _("Check the spelling, or use an address that the worker's network can resolve."),
    ),
    (
        _E.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
        _("The host name can be resolved, but no broker accepts connections at the address."),
        _("Check the port, the firewall and that the brokers are running. With TLS, check that the port is a TLS listener."),
    ),
    (
        _E.TIMEOUT_ERROR,
        _("The cluster did not respond in time."),
        _("Check the network and the load of the cluster. The request is retried automatically."),
    ),
    (
        _E.MISCONFIGURATION_ERROR,
        _("A config of the link has a value that cannot work."),
        _("The message names the config. Correct it in the link's configuration."),
    ),
    (
        _E.UNSUPPORTED_VERSION_ERROR,
        _("The brokers are too old for the request."),
        _("Upgrade the brokers to Kafka 3.1 or newer."),
    ),
    (
        _E.CLUSTER_ID_MISMATCH,
        _("The brokers belong to a cluster with another ID than the cluster ID of the link."),
        _("Correct the bootstrap servers, or create the link with the ID of the cluster at that address."),
    ),
    (
        _E.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
        _("The topic does not exist on the source, or the link's principal may not see it."),
        _("Check the topic name, and grant DESCRIBE on the topic."),
    ),
    (
        _E.TOPIC_EXISTS_ERROR,
        _("The destination already has a topic with this name that is not a mirror topic. It is not changed."),
        _("Delete that topic, or create a link with a prefix so that the names of mirror topics differ."),
    ),
    (
        _E.MIRROR_EXISTS_ERROR,
        _("A topic with this name is, or was, a mirror topic of the link that the message names. It is not changed."),
        _("Keep the topic on that link. For another copy, create a link with a prefix."),
    ),
    (
        _E.INVALID_TOPIC,
        _("The topic name is not allowed in Kafka."),
        _("Use letters, digits, dots, underscores and hyphens, at most 249 characters."),
    ),
    (_E.INVALID_REQUEST_ERROR, _("The request is not valid."), _("Read the message and correct the request.")),
    (
        _E.POLICY_VIOLATION_ERROR,
        _("A policy of the destination cluster rejects the topic or one of its configs."),
        _("Change the overrides of the topic, or contact the owner of the policy."),
    ),
    (
        _E.TOPIC_DELETION_DISABLED,
        _("The cluster does not allow topic deletion: delete.topic.enable is false on its brokers."),
        _("Set delete.topic.enable=true on the brokers and controllers, restart them, then try again."),
    ),
    (
        _E.SECURITY_DISABLED_ERROR,
        _("The destination has no authorizer, so writes to the mirror topic cannot be denied."),
        _("Enable an authorizer on the destination, or make sure that no application writes to the mirror topic."),
    ),
    (
        _E.DESTINATION_UNAVAILABLE,
        _("The destination cluster does not respond."),
        _("Check its brokers and the network. Copying resumes automatically when a broker responds."),
    ),
    (
        _E.NOT_ENOUGH_REPLICAS_ERROR,
        _("Fewer replicas of the topic are in sync than min.insync.replicas requires."),
        _("Restart the brokers that are down. Copying then resumes automatically."),
    ),
    (
        _E.MALFORMED_RESPONSE_ERROR,
        _("A broker or token endpoint sent a response that cannot be decoded. The message names it and the request."),
        _(
            "Check bootstrap.servers, security.protocol, and proxies and load balancers in between. It is retried "
            "automatically."
        ),
    ),
    (
        _E.INTERNAL_ERROR,
        _("An unexpected error occurred in the copy engine."),
        _("It is retried automatically. If the error persists, report it with the message and the time."),
    ),
    (
        _E.WAITING_FOR_LAG,
        _("The promotion waits until all records are copied."),
        _("Stop the producers on the source. Fail over if the source will not recover."),
    ),
    (
        _E.WAITING_FOR_CONFIGS,
        _("The promotion waits until the topic configs are in sync."),
        _("It is retried automatically. The message names the config."),
    ),
    (
        _E.WAITING_FOR_PARTITIONS,
        _("The promotion waits until the mirror topic has all partitions of the source topic."),
        _("It is retried automatically."),
    ),
    (
        _E.WAITING_FOR_GROUPS,
        _("The promotion waits until the consumer offsets are in sync."),
        _("The message names the group and what to do. The link's Groups tab lists all groups."),
    ),
    (
        _E.CONSUMER_GROUP_IN_USE_ERROR,
        _("Consumers on the destination use a group whose offsets are synced from the source."),
        _("Stop them until the promotion is complete, or exclude the group in consumer.offset.group.filters."),
    ),
    (
        _E.WAITING_FOR_TRANSACTIONS,
        _("A transaction is still open, so the records of the topic are not final."),
        _("Wait: the transaction ends at its timeout at the latest. To continue sooner, end it at its producer."),
    ),
    (
        _E.WAITING_FOR_OTHER_SIDE,
        _("The topic becomes a mirror as soon as the topic on the other cluster is stopped."),
        _(
            "No action needed: this is a step of each reversal. If it persists, check the paired link; in a disaster, "
            "fail over."
        ),
    ),
    (
        _E.REMOTE_LINK_NOT_FOUND_ERROR,
        _("This link requires a paired link on the other cluster, which does not exist."),
        _("Create the link with the same name on the other cluster, as described in the message."),
    ),
    (
        _E.REMOTE_MIRROR_NOT_FOUND_ERROR,
        _("The mirror topic on the other cluster no longer exists."),
        _("Fail over to make this topic writable, then mirror it again."),
    ),
    (
        _E.SIDES_DIVERGED,
        _("Each of the two topics has records that the other one does not have."),
        _("Decide which topic to keep: fail over here, or restore this topic, which exports its diverged records to a file."),
    ),
    (
        _E.SOURCE_TOPIC_MAY_BE_DELETED,
        _("The source topic no longer exists."),
        _("Fail over to keep the copied records in a writable topic, or delete the mirror topic."),
    ),
    (
        _E.SOURCE_TOPIC_ID_CHANGED,
        _("The source topic was deleted and created again, so its offsets start from 0 again."),
        _("Fail over to keep the old records, then mirror the new topic under another name."),
    ),
    (
        _E.SOURCE_PARTITIONS_DECREASED,
        _("The source topic has fewer partitions than the mirror topic, so it was created again."),
        _("Fail over to keep the old records, or delete the mirror topic and create it again."),
    ),
    (
        _E.UNEXPECTED_TRUNCATION,
        _("The source's log ends before the mirror's log: the source has lost records that were copied."),
        _("Decide which cluster has the correct records before more are written. A failover keeps the longer copy."),
    ),
    (
        _E.UNSUPPORTED_MESSAGE_FORMAT,
        _("The source has records in a format that cannot be copied."),
        _(
            "Rewrite the topic with a current client, or mirror it from a later offset. When the source has deleted "
            "them, recover."
        ),
    ),
    (
        _E.CORRUPT_RECORDS,
        _("Records do not match their checksum. The message names the first record and the cluster it was read from."),
        _("Make an intact replica the leader: stop the broker with the damaged one. Copying resumes; recover a FAILED mirror."),
    ),
    (
        _E.RECORDS_TOO_LARGE,
        _("Compressed records exceed the decompression limit. The message names the topic, partition and offset."),
        _(
            "To copy them, rewrite them in smaller batches or mirror from a later offset. To verify them, use your "
            "own consumer."
        ),
    ),
    (
        _E.KEYLESS_RECORDS,
        _("The mirror topic is compacted and cannot store records without a key, which the source has."),
        _("No action needed: cleanup.policy is set to delete until they are copied. Keep topic config sync turned on."),
    ),
    (
        _E.FOREIGN_WRITE,
        _("Another producer has written to the mirror topic, so its offsets no longer match the source."),
        _("Find the producer in the logs of the destination, delete the mirror topic and create it again."),
    ),
    (
        _E.MARKER_OVERRUN,
        _("A gap fill that was written late took the offset of a record, so offsets no longer match the source."),
        _("Delete the mirror topic and create it again, or fail over to keep it as it is."),
    ),
    (
        _E.TIMESTAMPS_REPLACED,
        _("The mirror topic was changed to LogAppendTime, so records got the timestamps of the broker instead of their own."),
        _("Set it to CreateTime and deny ALTER_CONFIGS on the topic to others. Delete the mirror topic and create it again."),
    ),
    (
        _E.MIRROR_TOPIC_MISSING,
        _("The mirror topic was deleted on the destination. A topic that has its name now is a different topic."),
        _("Delete the mirror here and add it again. A different topic keeps its records and configs."),
    ),
    (
        _E.MIRROR_WAS_STOPPED,
        _("The log or the configs of the topic show that it was promoted or failed over, but here it is treated as a mirror."),
        _("Applications may use it: fail over to keep it as it is. Delete it and create it again only if it is not needed."),
    ),
    (
        _E.ILLEGAL_STATE,
        _("The state of the mirror topic does not allow this operation."),
        _("Choose an operation that it allows."),
    ),
)
# Codes of the console that are not engine errors. Pages show meaning and fix below the message.
_CONSOLE_ROWS: tuple[tuple[str, str, str], ...] = (
    (
        "RECORDS_LOST",
        _(
            "The source's retention deleted records before they were copied, or a restore could not export all "
            "diverged records."
        ),
        _(
            "Set the source's retention longer than the longest outage you expect. See the message or the gap ledger "
            "for details."
        ),
    ),
    (
        "RECORDS_DIFFER",
        _("A verification found records that differ between source and mirror. The verification lists them."),
        _(
            "Examine the listed offsets before you change either topic. After the fix, verify the whole mirror to "
            "clear the error."
        ),
    ),
    (
        "TOMBSTONES_MISSED",
        _(
            "The mirror lagged longer than its compacted source keeps tombstones, so it may still have keys deleted "
            "on the source."
        ),
        _(
            "Verify the whole mirror: if it is equal, the error is cleared. Otherwise delete the listed keys on the "
            "source again."
        ),
    ),
    (
        "CONFIGS_REFUSED",
        _("The topic is stopped and writable, but the destination rejected some of its configs."),
        _("Change what the message names, then retry on the mirror's Failover reports tab; or set them manually."),
    ),
    (
        "DELETION_REFUSED",
        _("The destination rejected the deletion of the mirror topic, so the topic continues as before."),
        _("The message says why. Enable topic deletion or grant DELETE, then delete it again; or fail over."),
    ),
    (
        "COPY_ENGINE_UNAVAILABLE",
        _("No copy job can run. The clusters may be available."),
        _("Check Spark and Redis. It is retried automatically, and no data is lost."),
    ),
    ("WORKER_UNAVAILABLE", _("No Celery worker responds to the console."), _("Start the worker, then try again.")),
    ("QUEUE_UNAVAILABLE", _("The console cannot connect to its task queue."), _("Start Redis, then try again.")),
    ("LINK_EXISTS", _("Link names are unique on a destination cluster."), _("Choose another name.")),
    (
        "LINK_IN_USE",
        _("The link has mirror topics that are not stopped or are being deleted."),
        _("Promote, fail over or delete them first."),
    ),
    ("CLUSTER_EXISTS", _("A cluster can be registered only once."), _("Use the registered cluster, or choose another name.")),
    ("INVALID_CONFIG", _("A config has a value that is not valid."), _("The message names the config and its valid values.")),
    (
        "NOT_AUTHORIZED",
        _("None of your roles allows this here."),
        _("Ask an administrator for the role that the message names."),
    ),
    (
        "SECRET_NEEDED",
        _("A stored password or key would be sent to another address, or over another connection."),
        _("Enter it again together with the change."),
    ),
)
# Codes of the console whose messages contain meaning and fix. They are listed in the help and the documents only.
_LISTED_ROWS: tuple[tuple[str, str, str], ...] = (
    (
        "DATABASE_UNAVAILABLE",
        _("The worker cannot use the database."),
        _("Start the database, or correct it as the message says, then try again."),
    ),
    (
        "BROKER_UNAVAILABLE",
        _("No broker of the cluster accepts a connection, or its address cannot be resolved."),
        _("Start the brokers, or correct the bootstrap servers of the cluster, then try again."),
    ),
    (
        "BROKER_TIMEOUT",
        _("The cluster did not respond in time."),
        _("Try again. After a change, check on the cluster first whether it was made."),
    ),
    ("CLUSTER_IN_USE", _("The cluster has cluster links, so it cannot be unregistered."), _("Delete its links first.")),
    (
        "GATE_CLOSED",
        _("The link requires the migration gate, and it is not open for the topic."),
        _("Run the gate, correct what its checks report, then promote. Or override it with a reason."),
    ),
    (
        "INVALID_MIRROR_NAME",
        _("A mirror topic has the name of its source topic, with the link's prefix if it has one."),
        _("Use the name in the message."),
    ),
    (
        "MIRROR_RING",
        _("The mirrors would form a ring, so a topic would receive its own records."),
        _("Mirror the original topic instead, or stop a mirror of this ring first."),
    ),
    (
        "MIRROR_WOULD_RETURN",
        _("Auto-create would create the deleted mirror topic again, or a reversal or restore needs the topic."),
        _("Exclude the topic with a filter, or wait for the reversal or restore, as the message says."),
    ),
    (
        "NAMESPACE_RESERVED",
        _("The topic name is in a reserved namespace that is not attached to the link."),
        _("Choose another name, or attach the namespace to the link."),
    ),
    (
        "TASK_NOT_POSSIBLE",
        _("The recurring task is disabled, or its link is paused, has failed or cannot reach the source."),
        _("Enable the task, resume the link or correct its configs, as the message says."),
    ),
    (
        "NO_RECORDS_SET_ASIDE",
        _("The restore has not exported its diverged records yet, or there were none."),
        _("The topic's page shows how many records were exported. Try again when the restore has exported them."),
    ),
    (
        "EXPORT_FILE_MISSING",
        _("The file with the diverged records of a restore is missing or incomplete. It may be their only copy."),
        _("Use the same CLUSTERLINK_EXPORT_DIR for web process and worker, or restore the file from a backup."),
    ),
    (
        "APPROVAL_NEEDED",
        _("The environment requires that a second user approves this operation, and no approval is in force."),
        _("Request an approval under Access, Approvals. Repeat the operation when another user has approved it."),
    ),
    ("TOO_MANY_DRAFTS", _("A user can have 20 drafts of cluster links."), _("Continue or discard one of them.")),
    (
        "TOO_MANY_TESTS",
        _("A user can start 30 connection tests at once, then one every two seconds."),
        _("Wait as long as the message says, then try again."),
    ),
    ("TOPIC_NOT_FOUND", _("The topic does not exist on the cluster, or you may not see it."), _("Check the name.")),
    ("PARTITION_NOT_FOUND", _("The topic has no partition with this number."), _("Partitions are numbered from 0.")),
    ("UNKNOWN_API_KEY", _("The API key does not exist, or you may not see it."), _("List the API keys.")),
    (
        "UNKNOWN_APPROVAL_REQUEST",
        _("The link has no approval request with this id, or you may not see it."),
        _("List the requests."),
    ),
    ("UNKNOWN_BROKER", _("The cluster has no broker with this id."), _("List the brokers of the cluster.")),
    ("UNKNOWN_CLUSTER", _("No cluster with this id is registered, or you may not see it."), _("List the clusters.")),
    (
        "UNKNOWN_CONFIG",
        _("The config does not exist, or cannot be changed on the page."),
        _("See the list of the link's configs."),
    ),
    (
        "UNKNOWN_DRAFT",
        _("You have no draft of a cluster link with this id: its link was created, you discarded it, or it expired."),
        _("Continue another draft, or start again."),
    ),
    ("UNKNOWN_DRILL", _("The link has no failover drill with this id."), _("List the drills of the link.")),
    ("UNKNOWN_ENVIRONMENT", _("The environment does not exist, or you may not see it."), _("List the environments.")),
    ("UNKNOWN_GROUP", _("The consumer group does not exist on the cluster, or you may not see it."), _("List the groups.")),
    ("UNKNOWN_LINK", _("The link does not exist on this cluster, was deleted, or you may not see it."), _("List the links.")),
    (
        "UNKNOWN_MIRROR",
        _("The topic is not a mirror topic of the link, was deleted, or you may not see it."),
        _("List the mirror topics of the link."),
    ),
    ("UNKNOWN_NAMESPACE", _("The namespace does not exist on this cluster, or was deleted."), _("List the namespaces.")),
    (
        "UNKNOWN_OPERATION",
        _("No operation on several topics has this id, it is older than 90 days, or you may not see it."),
        _("List the operations."),
    ),
    (
        "UNKNOWN_REPORT",
        _("No failover report has this id, or you may not see it."),
        _("List the failover reports. An operation has one when a topic has stopped."),
    ),
    ("UNKNOWN_RESTORE", _("The topic has no restore with this id."), _("List the restores of the topic.")),
    ("UNKNOWN_TASK", _("Links have no recurring task with this name."), _("The message lists the tasks.")),
    (
        "UNKNOWN_VERIFY_RUN",
        _("The mirror topic has no verification run with this id."),
        _("List the runs of the mirror topic."),
    ),
    ("BAD_REQUEST", _("Kafka or a rule of this product does not allow the request."), _("The message says why.")),
    ("INVALID", _("A value is missing, malformed or out of range."), _("The message names the field and its valid values.")),
    ("NOT_FOUND", _("The object does not exist, or you may not see it."), _("Check the address, or look for it in the lists.")),
    ("CONFLICT", _("The current state does not allow the request."), _("The message says what the state allows.")),
)
ERROR_HELP: Mapping[str, ErrorHelp] = MappingProxyType(
    {str(code): ErrorHelp(code=str(code), meaning=meaning, fix=fix) for code, meaning, fix in (*_ROWS, *_CONSOLE_ROWS)}
)
CONSOLE_HELP: Mapping[str, ErrorHelp] = MappingProxyType(
    {code: ErrorHelp(code=code, meaning=meaning, fix=fix) for code, meaning, fix in (*_CONSOLE_ROWS, *_LISTED_ROWS)}
)


def help_for(code: str) -> ErrorHelp:
    """Return the help for ``code``, in the language of the page; for a code without a description, only a general fix."""
    found = ERROR_HELP.get(code)
    if found is None:
        return ErrorHelp(code=code, meaning="", fix=gettext("Read the message. It is retried automatically."))
    return ErrorHelp(code=code, meaning=gettext(found.meaning), fix=gettext(found.fix))


# --- an error on a page -----------------------------------------------------------------------------------------------


# Connection errors, which an edit of the link may fix.
_CONNECTION_ERRORS = frozenset(
    {
        ErrorCode.AUTHENTICATION_ERROR,
        ErrorCode.AUTHORIZATION_ERROR,
        ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR,
        ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
        ErrorCode.TIMEOUT_ERROR,
        ErrorCode.MISCONFIGURATION_ERROR,
        ErrorCode.CLUSTER_ID_MISMATCH,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorNote:
    """An error with its meaning and fix."""

    code: str
    message: str
    meaning: str
    fix: str
    family: Family = Family.BAD
    since: Moment | None = None
    last_seen: Moment | None = None
    until: Moment | None = None  # None: it has not ended
    count: int = 1

    @property
    def is_connection_error(self) -> bool:
        """Return True if an edit of the link may fix the error."""
        return self.code in _CONNECTION_ERRORS


def error_note(code: str, message: str, *, now: datetime, since: datetime | None = None) -> ErrorNote | None:
    """Return the note on an error; None if there is no error."""
    if not code or code == ErrorCode.NO_ERROR:
        return None
    return _note(code, translated(message), since=moment(since, now=now))


def transition_notes(errors: Iterable[StateTransitionError | EndedError], *, now: datetime) -> list[ErrorNote]:
    """Return the notes on state-transition errors, in their order."""
    return [
        _note(
            error.code,
            error.message,
            since=moment(error.since, now=now),
            last_seen=moment(error.last_seen_at, now=now),
            until=moment(error.until, now=now),
            count=error.count,
        )
        for error in errors
    ]


def _note(code: str, message: str, **more: Any) -> ErrorNote:
    known = help_for(code)
    family = Family.BUSY if code in WAITING else Family.BAD
    return ErrorNote(code=code, message=message, meaning=known.meaning, fix=known.fix, family=family, **more)
