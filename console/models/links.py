"""Cluster links with configs, filters and recurring tasks, synced ACLs and groups, namespaces, bulk operations, drafts."""

from __future__ import annotations

import uuid
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.urls import reverse

from console.models.clusters import Cluster
from console.models.fields import AnyTextField, EncryptedJSONField, KeyOfField
from linkengine.domain.acls import AclStatus
from linkengine.domain.groups import GroupStatus, OffsetOutcome
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.linktasks import TaskName
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import LinkMode, LinkState

# --- links ------------------------------------------------------------------------------------------------------------
#
# A row lives at the destination cluster, as in Confluent's REST.


class ConnectionMode(models.TextChoices):
    OUTBOUND = "OUTBOUND"
    INBOUND = "INBOUND"


class ClusterLink(models.Model):
    """A connection from a source cluster to the destination cluster that owns the link.

    On a bidirectional link each side has a row of its own, and ``destination`` is the side the row belongs to. A row of mode
    SOURCE belongs to the source: its ``destination`` is the cluster it lives on, its ``source`` the other cluster, and it has
    no mirrors. ``console.links.pairs`` finds the rows that belong together.

    ``source`` is the registered cluster behind ``source_cluster_id`` if there is one; a link may also name a cluster that is
    not registered. ``properties`` are the Kafka client properties for the connection to the source (configs bootstrap.servers,
    security.*, sasl.*, ssl.*); ``LinkConfig`` holds all other configs that were set. With ``uses_cluster_credentials`` the link
    signs in at its source with the credentials with which ``source`` is registered. Only an action whose actor may use them
    sets it (``console.links.checks``); a later change of the registration never does.
    """

    link_uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    pair_uuid = models.UUIDField(null=True, editable=False)  # id that both sides of a pair show; null: the link's own
    name = models.CharField(max_length=249)
    destination = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="links_in")
    source = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="links_out", null=True, blank=True)
    source_cluster_id = models.CharField(max_length=64)
    mode = models.CharField(max_length=20, choices=[(m.value, m.value) for m in LinkMode], default=LinkMode.DESTINATION)
    connection_mode = models.CharField(max_length=20, choices=ConnectionMode, default=ConnectionMode.OUTBOUND)
    properties = EncryptedJSONField()
    uses_cluster_credentials = models.BooleanField(default=False)
    gap_filler = models.CharField(max_length=20, choices=[(f.value, f.value) for f in GapFiller], default=GapFiller.MARKERS)
    prefix = models.CharField(max_length=12, blank=True, default="")
    state = models.CharField(max_length=20, choices=[(s.value, s.value) for s in LinkState], default=LinkState.ACTIVE)
    state_since = models.DateTimeField()
    error_code = models.CharField(max_length=60, blank=True, default="")  # explains the state, does not steer
    error_message = models.TextField(blank=True, default="")
    revision = models.PositiveBigIntegerField(default=1)  # of all settings of copy workers; grows with each change
    sequence = models.PositiveBigIntegerField(default=0)  # grows whenever something a page shows changed
    probed_at = models.DateTimeField(null=True)  # last successful probe of the source; null: gap filler not chosen yet
    probe_tried_at = models.DateTimeField(null=True)  # last probe, successful or not
    topics_at = models.DateTimeField(null=True)  # last list of the source's topics; null: they cannot be listed
    # When all partitions that are not ``behind`` were in sync; stored once here, because rows of idle partitions are not stored
    in_sync_at = models.DateTimeField(null=True)
    # Primary key of the last mirror of the last batch that TopicConfigsSync began; the next run starts after it.
    config_sync_position = models.BigIntegerField(null=True)
    error_since = models.DateTimeField(null=True)  # first of an unbroken series of failed probes
    engine_error = models.TextField(blank=True, default="")  # why nothing copies although the source is fine: Spark, Redis
    deletion_requested_at = models.DateTimeField(null=True)  # the row is deleted once the last mirror is stopped
    deletion_requested_by = models.CharField(max_length=150, blank=True, default="")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["destination", "name"], name="link_name_is_unique"),
            models.CheckConstraint(condition=~Q(source=F("destination")), name="link_joins_two_clusters"),
            models.CheckConstraint(condition=Q(state__in=[s.value for s in LinkState]), name="link_state_is_known"),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """Return the URL of the link's page."""
        return reverse("pages:link", args=self.url_args)

    @property
    def url_args(self) -> tuple[str, str]:
        """Return the arguments of the URL patterns of a link's pages."""
        return (self.destination.cluster_id, self.name)

    def config(self, name: str) -> str:
        """Return the effective value of a config, "" if it has none; no query if the configs are prefetched."""
        if name == "link.mode":
            return self.mode
        default = LINK_CONFIGS[name].default or ""
        return next((config.value for config in self.configs.all() if config.name == name), default)

    @property
    def known_source(self) -> Cluster | None:
        """Return the registered source cluster if ``links_with_sight`` has loaded the link for a reader who may see it."""
        return self.source if getattr(self, "sees_source", False) else None

    @property
    def sync_include(self) -> tuple[str, ...] | None:
        """Return the names in ``topic.config.sync.include``, None if it is not set."""
        names = self.config("topic.config.sync.include").split(",")
        return tuple(name.strip() for name in names if name.strip()) or None

    @property
    def shown_uuid(self) -> uuid.UUID:
        """The link id that clients see: the same on both sides of a pair."""
        return self.pair_uuid or self.link_uuid


class LinkConfig(models.Model):
    """A config that was set on a link; other configs have their defaults (``linkengine.domain.linkconfigs``)."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="configs")
    name = models.CharField(max_length=120)
    value = models.TextField(blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["link", "name"], name="link_config_is_set_once")]

    def __str__(self) -> str:
        return self.name


def show_change(*link_ids: int) -> None:
    """Make open pages of these links (by primary key) refresh; call it after a change of what they show."""
    ClusterLink.objects.filter(pk__in=link_ids).update(sequence=F("sequence") + 1)


# --- recurring tasks --------------------------------------------------------------------------------------------------
#
# As of their last run; and the source topics that auto-create could not mirror.


class LinkTask(models.Model):
    """A recurring task of a link. Created by its first run or request; the status shown is derived from it.

    ``errors`` has the first errors of the last run, as ``{"code", "message"}``; ``error_count`` counts all.
    """

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="tasks")
    name = models.CharField(max_length=40, choices=[(task.value, task.value) for task in TaskName])
    started_at = models.DateTimeField(null=True)  # of the last run
    finished_at = models.DateTimeField(null=True)  # null during the first run
    succeeded_at = models.DateTimeField(null=True)  # end of the last run without an error
    failing_since = models.DateTimeField(null=True)  # first of the latest uninterrupted runs with errors
    next_run_at = models.DateTimeField(null=True)  # null: at once
    requested_at = models.DateTimeField(null=True)  # when a user requested a run
    requested_by = models.CharField(max_length=150, blank=True, default="")
    errors = models.JSONField(default=list, blank=True)
    error_count = models.PositiveIntegerField(default=0)
    summary = models.TextField(blank=True, default="")
    runs = models.PositiveBigIntegerField(default=0)
    failures = models.PositiveBigIntegerField(default=0)  # runs that ended with an error
    changes = models.PositiveBigIntegerField(default=0)  # things changed by all runs

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["link", "name"], name="link_task_is_unique")]

    def __str__(self) -> str:
        return self.name


class AutoCreateFailure(models.Model):
    """The reason why the last automatic creation of a mirror topic failed. Deleted with the cause."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="auto_create_failures")
    source_topic = models.CharField(max_length=249)
    code = models.CharField(max_length=60)
    message = models.TextField()
    since = models.DateTimeField()
    tried_at = models.DateTimeField()

    class Meta:
        ordering = ["source_topic"]
        constraints = [models.UniqueConstraint(fields=["link", "source_topic"], name="auto_create_failure_is_unique")]

    def __str__(self) -> str:
        return f"{self.source_topic}: {self.code}"


# --- the ledger of ACL sync -------------------------------------------------------------------------------------------
#
# The ACLs of the source that a link has created on the destination, and why it skipped others.


class SyncedAclQuerySet(models.QuerySet["SyncedAcl"]):
    """ACLs of a link's source."""

    def matching(self, *, status: str = "", conflicts: bool = False) -> Self:
        """Return those with a status, and those that conflict, as far as these are set."""
        acls = self.filter(status=status) if status else self
        return acls.filter(is_conflict=True) if conflicts else acls


class SyncedAcl(models.Model):
    """An ACL of the source and its status on the destination. Only ACLs that links created are ever deleted there."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="acls")
    resource_type = models.CharField(max_length=30)
    resource_name = models.CharField(max_length=500)
    pattern_type = models.CharField(max_length=20)
    principal = models.CharField(max_length=1000)
    host = models.CharField(max_length=255)
    operation = models.CharField(max_length=30)
    permission = models.CharField(max_length=10)
    status = models.CharField(max_length=20, choices=[(status.value, status.value) for status in AclStatus])
    message = models.TextField(blank=True, default="")
    is_conflict = models.BooleanField(default=False)  # a local ACL or another link has the same or the opposite ACL
    since = models.DateTimeField()  # in the ledger
    objects = SyncedAclQuerySet.as_manager()

    class Meta:
        ordering = ["resource_type", "resource_name", "principal", "operation", "permission"]
        constraints = [
            models.UniqueConstraint(
                fields=[
                    "link", "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission",
                ],
                name="acl_is_unique_on_its_link",
            )
        ]  # fmt: skip
        indexes = [models.Index(fields=["link"], condition=Q(is_conflict=True), name="acl_conflicts")]

    def __str__(self) -> str:
        return f"{self.permission} {self.operation} {self.resource_type} {self.resource_name} {self.principal}"


# --- consumer groups --------------------------------------------------------------------------------------------------
#
# Their status on the destination, and what was done with their offsets.


class SyncedGroup(models.Model):
    """A group that the source lists, synced or skipped. ``message`` says why, unless it is simply synced."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="groups")
    name = AnyTextField()  # Kafka allows 32,767 bytes of any characters, and none
    name_key = KeyOfField(of="name")
    destination_name = AnyTextField()
    kind = models.CharField(
        max_length=20, blank=True, default=""
    )  # classic, consumer, share, …; "": not reported by the broker
    status = models.CharField(max_length=20, choices=[(status.value, status.value) for status in GroupStatus])
    message = models.TextField(blank=True, default="")
    looked_at = models.DateTimeField(null=True)  # when a run over all mirrors last read its offsets
    listed_at = models.DateTimeField()  # when the source last listed it

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["link", "name_key"], name="group_is_unique_on_its_link")]
        indexes = [models.Index(fields=["link", "status"], name="group_by_status")]

    def __str__(self) -> str:
        return self.name


class GroupOffset(models.Model):
    """A partition of a mirror for a group. ``acted_*``: what the last successful run saw and left, for the next run."""

    group = models.ForeignKey(SyncedGroup, on_delete=models.CASCADE, related_name="offsets")
    mirror = models.ForeignKey("MirrorTopic", on_delete=models.CASCADE, related_name="group_offsets")
    partition = models.PositiveIntegerField()
    source_offset = models.BigIntegerField()
    destination_offset = models.BigIntegerField(null=True)  # null: the destination has none
    target = models.BigIntegerField()
    outcome = models.CharField(max_length=20, choices=[(outcome.value, outcome.value) for outcome in OffsetOutcome])
    message = models.TextField(blank=True, default="")
    acted_source = models.BigIntegerField(null=True)
    acted_destination = models.BigIntegerField(null=True)
    acted_at = models.DateTimeField(null=True)  # last commit by a run, or when both were first found equal

    class Meta:
        ordering = ["mirror", "partition"]
        constraints = [models.UniqueConstraint(fields=["group", "mirror", "partition"], name="group_offset_is_unique")]

    def __str__(self) -> str:
        return f"{self.group_id} {self.mirror_id}/{self.partition}"


# --- namespaces -------------------------------------------------------------------------------------------------------
#
# A prefix of topic names on a cluster, whether it is reserved, and the link it is reserved for.


class Namespace(models.Model):
    """All topics of a cluster whose names begin with ``prefix``. If reserved, only its link creates topics in it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="namespaces")
    prefix = models.CharField(max_length=200, blank=True)  # "" means all topics except internal topics
    reserved = models.BooleanField(default=False)
    guarded = models.BooleanField(null=True)  # the cluster has the DENY CREATE ACL; null: no response from the cluster yet
    guard_problem = models.TextField(blank=True, default="")
    link = models.ForeignKey(ClusterLink, on_delete=models.SET_NULL, null=True, related_name="namespaces")  # reserved for it
    leader_prefix = models.CharField(max_length=200, blank=True, default="")  # of the namespace at the source
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    deletion_requested_at = models.DateTimeField(null=True)  # deleted once the cluster has deleted its ACL

    class Meta:
        ordering = ["prefix"]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "prefix"], name="namespace_is_unique"),
            models.CheckConstraint(condition=Q(link=None) | Q(reserved=True), name="a_following_namespace_is_reserved"),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}*"

    @property
    def may_have_rule(self) -> bool:
        """Return whether the cluster may have the DENY CREATE ACL: it has, did not respond, or refused to delete it."""
        return self.guarded is not False or (not self.reserved and self.guard_problem != "")


# --- operations on several mirror topics ------------------------------------------------------------------------------


class BulkOperation(models.Model):
    """An operation on several mirror topics: who requested it, when, and with which options.

    It outlives its link: the keys become null when their rows are deleted; the names stay, and permissions apply to them.

    ``operation`` is a ``MirrorEvent``, ``CREATE`` or ``VERIFY``. A worker checks the permissions of ``user`` for each topic, so
    a role that is revoked after the request no longer counts for the topics that are left.
    """

    CREATE, VERIFY = "create", "verify"

    link = models.ForeignKey(ClusterLink, on_delete=models.SET_NULL, null=True, related_name="bulk_operations")
    destination = models.ForeignKey(Cluster, on_delete=models.SET_NULL, null=True, related_name="bulk_operations")
    link_name = models.CharField(max_length=249)
    destination_cluster_id = models.CharField(max_length=64)
    operation = models.CharField(max_length=30)
    # Of mirrors to be created: replication_factor, start. Of a failover: reason, checklist ({"text", "confirmed"}).
    options = models.JSONField(default=dict)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="bulk_operations")
    requested_by = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    request_id = models.CharField(max_length=64, blank=True, default="")
    client_address = models.CharField(max_length=64, blank=True, default="")
    retry_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="retries")
    canceled_by = models.CharField(max_length=150, blank=True, default="")  # "" if it was not canceled
    finished_at = models.DateTimeField(null=True)  # since then no topic is waiting

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.link_name} {self.operation}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store the operation; a new operation gets the names of its link."""
        if self._state.adding and self.link is not None:
            self.destination, self.link_name = self.link.destination, self.link.name
            self.destination_cluster_id = self.link.destination.cluster_id
        super().save(*args, **kwargs)

    def get_absolute_url(self) -> str:
        """Return the URL of the operation's page."""
        return reverse("pages:operation", args=(self.pk,))


class BulkOperationTopic(models.Model):
    """A topic of a bulk operation: the mirror topic or, for ``CREATE``, the source topic."""

    class Status(models.TextChoices):
        WAITING = "WAITING"
        ACCEPTED = "ACCEPTED"  # as a request for this topic alone would be; ``operation_queries.Outcome`` is what followed
        FAILED = "FAILED"
        CANCELED = "CANCELED"  # before it began

    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, related_name="topics")
    name = models.CharField(max_length=249)
    # The mirror that the confirmation showed or that was created, and its state then (``operation_actions.seen_state``). The
    # operation does not apply to another mirror that was added under its name since. The key stays if the mirror is deleted.
    mirror = models.ForeignKey(
        "MirrorTopic", on_delete=models.DO_NOTHING, null=True, db_constraint=False, db_index=False, related_name="+"
    )
    seen = models.CharField(max_length=80, blank=True, default="")
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)
    error_code = models.CharField(max_length=60, blank=True, default="")
    message = models.TextField(blank=True, default="")
    done_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["operation", "name"], name="bulk_operation_names_a_topic_once")]

    def __str__(self) -> str:
        return f"{self.name} {self.status}"


# --- drafts -----------------------------------------------------------------------------------------------------------
#
# A link that is being created step by step.


class LinkDraft(models.Model):
    """The draft of a link. It is visible to its user only, and deleted when the link is created or after some days.

    ``values`` are the fields of ``console.links.drafts.DraftValues``, credentials included. ``checks`` are the last connection
    tests, by side. ``listing`` is what the source had at ``listed_at`` (``linkengine.domain.clusterviews``), empty if it was
    not listed. All three are encrypted: names of consumer groups may contain characters that a JSON column cannot store.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="link_drafts")
    values = EncryptedJSONField(default=dict)
    checks = EncryptedJSONField(default=dict)
    listing = EncryptedJSONField(default=dict)
    listed_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()  # by the user; drafts expire

    class Meta:
        ordering = ["-updated_at"]

    def __str__(self) -> str:
        return f"draft {self.pk}"

    def get_absolute_url(self) -> str:
        """Return the URL of the first step."""
        return reverse("pages:new-link-step", args=(self.pk, "source"))
