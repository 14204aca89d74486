"""The meaning and the fix of each error code, shown on pages and in docs/operations/troubleshoot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.utils.translation import gettext, gettext_noop

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
    (_E.NO_ERROR, gettext_noop("There is no error."), gettext_noop("No action needed.")),
    (
        _E.AUTHENTICATION_ERROR,
        gettext_noop("The cluster rejected the user name or password, or requires another SASL mechanism."),
        gettext_noop("Enter the correct credentials in the link's configuration. The link is then retried immediately."),
    ),
    (
        _E.AUTHORIZATION_ERROR,
        gettext_noop("The link's principal is authenticated but does not have the required permissions on the cluster."),
        gettext_noop("Grant it READ, DESCRIBE and DESCRIBE_CONFIGS on the topics, and DESCRIBE on the cluster."),
    ),
    (
        _E.UNRESOLVABLE_BOOTSTRAP_ERROR,
        gettext_noop("None of the host names in bootstrap.servers can be resolved."),
        gettext_noop("Check the spelling, or use an address that the worker's network can resolve."),
    ),
    (
        _E.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR,
        gettext_noop("The host name can be resolved, but no broker accepts connections at the address."),
        gettext_noop(
            "Check the port, the firewall and that the brokers are running. With TLS, check that the port is a TLS listener."
        ),
    ),
    (
        _E.TIMEOUT_ERROR,
        gettext_noop("The cluster did not respond in time."),
        gettext_noop("Check the network and the load of the cluster. The request is retried automatically."),
    ),
    (
        _E.MISCONFIGURATION_ERROR,
        gettext_noop("A config of the link has a value that cannot work."),
        gettext_noop("The message names the config. Correct it in the link's configuration."),
    ),
    (
        _E.UNSUPPORTED_VERSION_ERROR,
        gettext_noop("The brokers are too old for the request."),
        gettext_noop("Upgrade the brokers to Kafka 3.1 or newer."),
    ),
    (
        _E.CLUSTER_ID_MISMATCH,
        gettext_noop("The brokers belong to a cluster with another ID than the cluster ID of the link."),
        gettext_noop("Correct the bootstrap servers, or create the link with the ID of the cluster at that address."),
    ),
    (
        _E.UNKNOWN_TOPIC_OR_PARTITION_ERROR,
        gettext_noop("The topic does not exist on the source, or the link's principal may not see it."),
        gettext_noop("Check the topic name, and grant DESCRIBE on the topic."),
    ),
    (
        _E.TOPIC_EXISTS_ERROR,
        gettext_noop("The destination already has a topic with this name that is not a mirror topic. It is not changed."),
        gettext_noop("Delete that topic, or create a link with a prefix so that the names of mirror topics differ."),
    ),
    (
        _E.MIRROR_EXISTS_ERROR,
        gettext_noop(
            "A topic with this name is, or was, a mirror topic of the link that the message names. It is not changed."
        ),
        gettext_noop("Keep the topic on that link. For another copy, create a link with a prefix."),
    ),
    (
        _E.INVALID_TOPIC,
        gettext_noop("The topic name is not allowed in Kafka."),
        gettext_noop("Use letters, digits, dots, underscores and hyphens, at most 249 characters."),
    ),
    (
        _E.INVALID_REQUEST_ERROR,
        gettext_noop("The request is not valid."),
        gettext_noop("Read the message and correct the request."),
    ),
    (
        _E.POLICY_VIOLATION_ERROR,
        gettext_noop("A policy of the destination cluster rejects the topic or one of its configs."),
        gettext_noop("Change the overrides of the topic, or contact the owner of the policy."),
    ),
    (
        _E.TOPIC_DELETION_DISABLED,
        gettext_noop("The cluster does not allow topic deletion: delete.topic.enable is false on its brokers."),
        gettext_noop("Set delete.topic.enable=true on the brokers and controllers, restart them, then try again."),
    ),
    (
        _E.SECURITY_DISABLED_ERROR,
        gettext_noop("The destination has no authorizer, so writes to the mirror topic cannot be denied."),
        gettext_noop("Enable an authorizer on the destination, or make sure that no application writes to the mirror topic."),
    ),
    (
        _E.DESTINATION_UNAVAILABLE,
        gettext_noop("The destination cluster does not respond."),
        gettext_noop("Check its brokers and the network. Copying resumes automatically when a broker responds."),
    ),
    (
        _E.NOT_ENOUGH_REPLICAS_ERROR,
        gettext_noop("Fewer replicas of the topic are in sync than min.insync.replicas requires."),
        gettext_noop("Restart the brokers that are down. Copying then resumes automatically."),
    ),
    (
        _E.MALFORMED_RESPONSE_ERROR,
        gettext_noop(
            "A broker or token endpoint sent a response that cannot be decoded. The message names it and the request."
        ),
        gettext_noop(
            "Check bootstrap.servers, security.protocol, and proxies and load balancers in between. It is retried "
            "automatically."
        ),
    ),
    (
        _E.INTERNAL_ERROR,
        gettext_noop("An unexpected error occurred in the copy engine."),
        gettext_noop("It is retried automatically. If the error persists, report it with the message and the time."),
    ),
    (
        _E.WAITING_FOR_LAG,
        gettext_noop("The promotion waits until all records are copied."),
        gettext_noop("Stop the producers on the source. Fail over if the source will not recover."),
    ),
    (
        _E.WAITING_FOR_CONFIGS,
        gettext_noop("The promotion waits until the topic configs are in sync."),
        gettext_noop("It is retried automatically. The message names the config."),
    ),
    (
        _E.WAITING_FOR_PARTITIONS,
        gettext_noop("The promotion waits until the mirror topic has all partitions of the source topic."),
        gettext_noop("It is retried automatically."),
    ),
    (
        _E.WAITING_FOR_GROUPS,
        gettext_noop("The promotion waits until the consumer offsets are in sync."),
        gettext_noop("The message names the group and what to do. The link's Groups tab lists all groups."),
    ),
    (
        _E.CONSUMER_GROUP_IN_USE_ERROR,
        gettext_noop("Consumers on the destination use a group whose offsets are synced from the source."),
        gettext_noop("Stop them until the promotion is complete, or exclude the group in consumer.offset.group.filters."),
    ),
    (
        _E.WAITING_FOR_TRANSACTIONS,
        gettext_noop("A transaction is still open, so the records of the topic are not final."),
        gettext_noop("Wait: the transaction ends at its timeout at the latest. To continue sooner, end it at its producer."),
    ),
    (
        _E.WAITING_FOR_OTHER_SIDE,
        gettext_noop("The topic becomes a mirror as soon as the topic on the other cluster is stopped."),
        gettext_noop(
            "No action needed: this is a step of each reversal. If it persists, check the paired link; in a disaster, "
            "fail over."
        ),
    ),
    (
        _E.REMOTE_LINK_NOT_FOUND_ERROR,
        gettext_noop("This link requires a paired link on the other cluster, which does not exist."),
        gettext_noop("Create the link with the same name on the other cluster, as described in the message."),
    ),
    (
        _E.REMOTE_MIRROR_NOT_FOUND_ERROR,
        gettext_noop("The mirror topic on the other cluster no longer exists."),
        gettext_noop("Fail over to make this topic writable, then mirror it again."),
    ),
    (
        _E.SIDES_DIVERGED,
        gettext_noop("Each of the two topics has records that the other one does not have."),
        gettext_noop(
            "Decide which topic to keep: fail over here, or restore this topic, which exports its diverged records to a file."
        ),
    ),
    (
        _E.SOURCE_TOPIC_MAY_BE_DELETED,
        gettext_noop("The source topic no longer exists."),
        gettext_noop("Fail over to keep the copied records in a writable topic, or delete the mirror topic."),
    ),
    (
        _E.SOURCE_TOPIC_ID_CHANGED,
        gettext_noop("The source topic was deleted and created again, so its offsets start from 0 again."),
        gettext_noop("Fail over to keep the old records, then mirror the new topic under another name."),
    ),
    (
        _E.SOURCE_PARTITIONS_DECREASED,
        gettext_noop("The source topic has fewer partitions than the mirror topic, so it was created again."),
        gettext_noop("Fail over to keep the old records, or delete the mirror topic and create it again."),
    ),
    (
        _E.UNEXPECTED_TRUNCATION,
        gettext_noop("The source's log ends before the mirror's log: the source has lost records that were copied."),
        gettext_noop("Decide which cluster has the correct records before more are written. A failover keeps the longer copy."),
    ),
    (
        _E.UNSUPPORTED_MESSAGE_FORMAT,
        gettext_noop("The source has records in a format that cannot be copied."),
        gettext_noop(
            "Rewrite the topic with a current client, or mirror it from a later offset. When the source has deleted "
            "them, recover."
        ),
    ),
    (
        _E.CORRUPT_RECORDS,
        gettext_noop(
            "Records do not match their checksum. The message names the first record and the cluster it was read from."
        ),
        gettext_noop(
            "Make an intact replica the leader: stop the broker with the damaged one. Copying resumes; recover a FAILED mirror."
        ),
    ),
    (
        _E.RECORDS_TOO_LARGE,
        gettext_noop("Compressed records exceed the decompression limit. The message names the topic, partition and offset."),
        gettext_noop(
            "To copy them, rewrite them in smaller batches or mirror from a later offset. To verify them, use your "
            "own consumer."
        ),
    ),
    (
        _E.KEYLESS_RECORDS,
        gettext_noop("The mirror topic is compacted and cannot store records without a key, which the source has."),
        gettext_noop(
            "No action needed: cleanup.policy is set to delete until they are copied. Keep topic config sync turned on."
        ),
    ),
    (
        _E.FOREIGN_WRITE,
        gettext_noop("Another producer has written to the mirror topic, so its offsets no longer match the source."),
        gettext_noop("Find the producer in the logs of the destination, delete the mirror topic and create it again."),
    ),
    (
        _E.MARKER_OVERRUN,
        gettext_noop("A gap fill that was written late took the offset of a record, so offsets no longer match the source."),
        gettext_noop("Delete the mirror topic and create it again, or fail over to keep it as it is."),
    ),
    (
        _E.TIMESTAMPS_REPLACED,
        gettext_noop(
            "The mirror topic was changed to LogAppendTime, so records got the timestamps of the broker instead of their own."
        ),
        gettext_noop(
            "Set it to CreateTime and deny ALTER_CONFIGS on the topic to others. Delete the mirror topic and create it again."
        ),
    ),
    (
        _E.MIRROR_TOPIC_MISSING,
        gettext_noop("The mirror topic was deleted on the destination. A topic that has its name now is a different topic."),
        gettext_noop("Delete the mirror here and add it again. A different topic keeps its records and configs."),
    ),
    (
        _E.MIRROR_WAS_STOPPED,
        gettext_noop(
            "The log or the configs of the topic show that it was promoted or failed over, but here it is treated as a mirror."
        ),
        gettext_noop(
            "Applications may use it: fail over to keep it as it is. Delete it and create it again only if it is not needed."
        ),
    ),
    (
        _E.ILLEGAL_STATE,
        gettext_noop("The state of the mirror topic does not allow this operation."),
        gettext_noop("Choose an operation that it allows."),
    ),
)
# Codes of the console that are not engine errors. Pages show meaning and fix below the message.
_CONSOLE_ROWS: tuple[tuple[str, str, str], ...] = (
    (
        "RECORDS_LOST",
        gettext_noop(
            "The source's retention deleted records before they were copied, or a restore could not export all "
            "diverged records."
        ),
        gettext_noop(
            "Set the source's retention longer than the longest outage you expect. See the message or the gap ledger "
            "for details."
        ),
    ),
    (
        "RECORDS_DIFFER",
        gettext_noop("A verification found records that differ between source and mirror. The verification lists them."),
        gettext_noop(
            "Examine the listed offsets before you change either topic. After the fix, verify the whole mirror to "
            "clear the error."
        ),
    ),
    (
        "TOMBSTONES_MISSED",
        gettext_noop(
            "The mirror lagged longer than its compacted source keeps tombstones, so it may still have keys deleted "
            "on the source."
        ),
        gettext_noop(
            "Verify the whole mirror: if it is equal, the error is cleared. Otherwise delete the listed keys on the "
            "source again."
        ),
    ),
    (
        "CONFIGS_REFUSED",
        gettext_noop("The topic is stopped and writable, but the destination rejected some of its configs."),
        gettext_noop("Change what the message names, then retry on the mirror's Failover reports tab; or set them manually."),
    ),
    (
        "DELETION_REFUSED",
        gettext_noop("The destination rejected the deletion of the mirror topic, so the topic continues as before."),
        gettext_noop("The message says why. Enable topic deletion or grant DELETE, then delete it again; or fail over."),
    ),
    (
        "COPY_ENGINE_UNAVAILABLE",
        gettext_noop("No copy job can run. The clusters may be available."),
        gettext_noop("Check Spark and Redis. It is retried automatically, and no data is lost."),
    ),
    (
        "WORKER_UNAVAILABLE",
        gettext_noop("No Celery worker responds to the console."),
        gettext_noop("Start the worker, then try again."),
    ),
    (
        "QUEUE_UNAVAILABLE",
        gettext_noop("The console cannot connect to its task queue."),
        gettext_noop("Start Redis, then try again."),
    ),
    ("LINK_EXISTS", gettext_noop("Link names are unique on a destination cluster."), gettext_noop("Choose another name.")),
    (
        "LINK_IN_USE",
        gettext_noop("The link has mirror topics that are not stopped or are being deleted."),
        gettext_noop("Promote, fail over or delete them first."),
    ),
    (
        "CLUSTER_EXISTS",
        gettext_noop("A cluster can be registered only once."),
        gettext_noop("Use the registered cluster, or choose another name."),
    ),
    (
        "INVALID_CONFIG",
        gettext_noop("A config has a value that is not valid."),
        gettext_noop("The message names the config and its valid values."),
    ),
    (
        "NOT_AUTHORIZED",
        gettext_noop("None of your roles allows this here."),
        gettext_noop("Ask an administrator for the role that the message names."),
    ),
    (
        "SECRET_NEEDED",
        gettext_noop("A stored password or key would be sent to another address, or over another connection."),
        gettext_noop("Enter it again together with the change."),
    ),
)
# Codes of the console whose messages contain meaning and fix. They are listed in the help and the documents only.
_LISTED_ROWS: tuple[tuple[str, str, str], ...] = (
    (
        "DATABASE_UNAVAILABLE",
        gettext_noop("The worker cannot use the database."),
        gettext_noop("Start the database, or correct it as the message says, then try again."),
    ),
    (
        "BROKER_UNAVAILABLE",
        gettext_noop("No broker of the cluster accepts a connection, or its address cannot be resolved."),
        gettext_noop("Start the brokers, or correct the bootstrap servers of the cluster, then try again."),
    ),
    (
        "BROKER_TIMEOUT",
        gettext_noop("The cluster did not respond in time."),
        gettext_noop("Try again. After a change, check on the cluster first whether it was made."),
    ),
    (
        "CLUSTER_IN_USE",
        gettext_noop("The cluster has cluster links, so it cannot be unregistered."),
        gettext_noop("Delete its links first."),
    ),
    (
        "GATE_CLOSED",
        gettext_noop("The link requires the migration gate, and it is not open for the topic."),
        gettext_noop("Run the gate, correct what its checks report, then promote. Or override it with a reason."),
    ),
    (
        "INVALID_MIRROR_NAME",
        gettext_noop("A mirror topic has the name of its source topic, with the link's prefix if it has one."),
        gettext_noop("Use the name in the message."),
    ),
    (
        "MIRROR_RING",
        gettext_noop("The mirrors would form a ring, so a topic would receive its own records."),
        gettext_noop("Mirror the original topic instead, or stop a mirror of this ring first."),
    ),
    (
        "MIRROR_WOULD_RETURN",
        gettext_noop("Auto-create would create the deleted mirror topic again, or a reversal or restore needs the topic."),
        gettext_noop("Exclude the topic with a filter, or wait for the reversal or restore, as the message says."),
    ),
    (
        "NAMESPACE_RESERVED",
        gettext_noop("The topic name is in a reserved namespace that is not attached to the link."),
        gettext_noop("Choose another name, or attach the namespace to the link."),
    ),
    (
        "TASK_NOT_POSSIBLE",
        gettext_noop("The recurring task is disabled, or its link is paused, has failed or cannot reach the source."),
        gettext_noop("Enable the task, resume the link or correct its configs, as the message says."),
    ),
    (
        "NO_RECORDS_SET_ASIDE",
        gettext_noop("The restore has not exported its diverged records yet, or there were none."),
        gettext_noop("The topic's page shows how many records were exported. Try again when the restore has exported them."),
    ),
    (
        "EXPORT_FILE_MISSING",
        gettext_noop("The file with the diverged records of a restore is missing or incomplete. It may be their only copy."),
        gettext_noop("Use the same CLUSTERLINK_EXPORT_DIR for web process and worker, or restore the file from a backup."),
    ),
    (
        "APPROVAL_NEEDED",
        gettext_noop("The environment requires that a second user approves this operation, and no approval is in force."),
        gettext_noop("Request an approval under Access, Approvals. Repeat the operation when another user has approved it."),
    ),
    (
        "TOO_MANY_DRAFTS",
        gettext_noop("A user can have 20 drafts of cluster links."),
        gettext_noop("Continue or discard one of them."),
    ),
    (
        "TOO_MANY_TESTS",
        gettext_noop("A user can start 30 connection tests at once, then one every two seconds."),
        gettext_noop("Wait as long as the message says, then try again."),
    ),
    (
        "TOPIC_NOT_FOUND",
        gettext_noop("The topic does not exist on the cluster, or you may not see it."),
        gettext_noop("Check the name."),
    ),
    (
        "PARTITION_NOT_FOUND",
        gettext_noop("The topic has no partition with this number."),
        gettext_noop("Partitions are numbered from 0."),
    ),
    ("UNKNOWN_API_KEY", gettext_noop("The API key does not exist, or you may not see it."), gettext_noop("List the API keys.")),
    (
        "UNKNOWN_APPROVAL_REQUEST",
        gettext_noop("The link has no approval request with this id, or you may not see it."),
        gettext_noop("List the requests."),
    ),
    (
        "UNKNOWN_BROKER",
        gettext_noop("The cluster has no broker with this id."),
        gettext_noop("List the brokers of the cluster."),
    ),
    (
        "UNKNOWN_CLUSTER",
        gettext_noop("No cluster with this id is registered, or you may not see it."),
        gettext_noop("List the clusters."),
    ),
    (
        "UNKNOWN_CONFIG",
        gettext_noop("The config does not exist, or cannot be changed on the page."),
        gettext_noop("See the list of the link's configs."),
    ),
    (
        "UNKNOWN_DRAFT",
        gettext_noop(
            "You have no draft of a cluster link with this id: its link was created, you discarded it, or it expired."
        ),
        gettext_noop("Continue another draft, or start again."),
    ),
    (
        "UNKNOWN_DRILL",
        gettext_noop("The link has no failover drill with this id."),
        gettext_noop("List the drills of the link."),
    ),
    (
        "UNKNOWN_ENVIRONMENT",
        gettext_noop("The environment does not exist, or you may not see it."),
        gettext_noop("List the environments."),
    ),
    (
        "UNKNOWN_GROUP",
        gettext_noop("The consumer group does not exist on the cluster, or you may not see it."),
        gettext_noop("List the groups."),
    ),
    (
        "UNKNOWN_LINK",
        gettext_noop("The link does not exist on this cluster, was deleted, or you may not see it."),
        gettext_noop("List the links."),
    ),
    (
        "UNKNOWN_MIRROR",
        gettext_noop("The topic is not a mirror topic of the link, was deleted, or you may not see it."),
        gettext_noop("List the mirror topics of the link."),
    ),
    (
        "UNKNOWN_NAMESPACE",
        gettext_noop("The namespace does not exist on this cluster, or was deleted."),
        gettext_noop("List the namespaces."),
    ),
    (
        "UNKNOWN_OPERATION",
        gettext_noop("No operation on several topics has this id, it is older than 90 days, or you may not see it."),
        gettext_noop("List the operations."),
    ),
    (
        "UNKNOWN_REPORT",
        gettext_noop("No failover report has this id, or you may not see it."),
        gettext_noop("List the failover reports. An operation has one when a topic has stopped."),
    ),
    (
        "UNKNOWN_RESTORE",
        gettext_noop("The topic has no restore with this id."),
        gettext_noop("List the restores of the topic."),
    ),
    (
        "UNKNOWN_TASK",
        gettext_noop("Links have no recurring task with this name."),
        gettext_noop("The message lists the tasks."),
    ),
    (
        "UNKNOWN_VERIFY_RUN",
        gettext_noop("The mirror topic has no verification run with this id."),
        gettext_noop("List the runs of the mirror topic."),
    ),
    (
        "BAD_REQUEST",
        gettext_noop("Kafka or a rule of this product does not allow the request."),
        gettext_noop("The message says why."),
    ),
    (
        "INVALID",
        gettext_noop("A value is missing, malformed or out of range."),
        gettext_noop("The message names the field and its valid values."),
    ),
    (
        "NOT_FOUND",
        gettext_noop("The object does not exist, or you may not see it."),
        gettext_noop("Check the address, or look for it in the lists."),
    ),
    (
        "CONFLICT",
        gettext_noop("The current state does not allow the request."),
        gettext_noop("The message says what the state allows."),
    ),
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
    known = help_for(code)
    return ErrorNote(
        code=code,
        message=translated(message),
        meaning=known.meaning,
        fix=known.fix,
        family=Family.BUSY if code in WAITING else Family.BAD,
        since=moment(since, now=now),
    )


def transition_notes(errors: Iterable[StateTransitionError | EndedError], *, now: datetime) -> list[ErrorNote]:
    """Return the notes on state-transition errors, in their order."""
    return [
        ErrorNote(
            code=error.code,
            message=error.message,
            meaning=help_for(error.code).meaning,
            fix=help_for(error.code).fix,
            family=Family.BUSY if error.code in WAITING else Family.BAD,
            since=moment(error.since, now=now),
            last_seen=moment(error.last_seen_at, now=now),
            until=moment(error.until, now=now),
            count=error.count,
        )
        for error in errors
    ]
