"""A cluster link with its configs and filters. The row lives at the destination cluster, as in Confluent's REST."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q

from console.models.clusters import Cluster
from console.models.fields import EncryptedJSONField
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import LinkState


class LinkMode(models.TextChoices):
    DESTINATION = "DESTINATION"
    SOURCE = "SOURCE"
    BIDIRECTIONAL = "BIDIRECTIONAL"


class ConnectionMode(models.TextChoices):
    OUTBOUND = "OUTBOUND"
    INBOUND = "INBOUND"


class ClusterLink(models.Model):
    """Connects a source cluster to the destination cluster that owns the link.

    On a bidirectional link each side has a row of its own, and ``destination`` is the side the row belongs to. A row of mode
    SOURCE belongs to the source: its ``destination`` is the cluster it lives on, its ``source`` the other one, and it has no
    mirrors. ``console.links.pairs`` says which rows belong together.

    ``source`` is the registered cluster behind ``source_cluster_id`` if there is one; a link may also name a cluster nobody
    registered. ``properties`` are the Kafka client properties with which the source is reached (configs bootstrap.servers,
    security.*, sasl.*, ssl.*); ``LinkConfig`` holds all other configs that were set. With ``uses_cluster_credentials`` the link
    signs in at its source with the credentials with which ``source`` is registered. Only an action whose actor may use them
    sets it (``console.actions.linkcredentials``); a later change of the registration never does.
    """

    link_uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    pair_uuid = models.UUIDField(null=True, editable=False)  # id that both sides of a pair show; null: the link's own
    name = models.CharField(max_length=249)
    destination = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="links_in")
    source = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="links_out", null=True, blank=True)
    source_cluster_id = models.CharField(max_length=64)
    mode = models.CharField(max_length=20, choices=LinkMode, default=LinkMode.DESTINATION)
    connection_mode = models.CharField(max_length=20, choices=ConnectionMode, default=ConnectionMode.OUTBOUND)
    properties = EncryptedJSONField()
    uses_cluster_credentials = models.BooleanField(default=False)
    gap_filler = models.CharField(max_length=20, choices=[(f.value, f.value) for f in GapFiller], default=GapFiller.MARKERS)
    prefix = models.CharField(max_length=12, blank=True, default="")
    state = models.CharField(max_length=20, choices=[(s.value, s.value) for s in LinkState], default=LinkState.ACTIVE)
    state_since = models.DateTimeField()
    error_code = models.CharField(max_length=60, blank=True, default="")  # explains the state, does not steer
    error_message = models.TextField(blank=True, default="")
    revision = models.PositiveBigIntegerField(default=1)  # of everything a copy worker must know; grows with each change
    sequence = models.PositiveBigIntegerField(default=0)  # grows whenever something a page shows changed
    probed_at = models.DateTimeField(null=True)  # last look at the source that succeeded; null: how to fill gaps is not chosen
    looked_at = models.DateTimeField(null=True)  # last look, whatever came of it
    topics_at = models.DateTimeField(null=True)  # last list of the source's topics; null: they cannot be listed
    # When all partitions that are not ``behind`` were in sync; stored once here, because rows of idle partitions are not stored
    level_at = models.DateTimeField(null=True)
    # Primary key of the last mirror of the last batch that TopicConfigsSync began; the next run starts after it.
    config_sync_position = models.BigIntegerField(null=True)
    error_since = models.DateTimeField(null=True)  # first of an unbroken row of failed looks
    engine_error = models.TextField(blank=True, default="")  # why nothing copies although the source is fine: Spark, Redis
    deletion_requested_at = models.DateTimeField(null=True)  # goes when its last mirror is stopped
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

    def config(self, name: str) -> str:
        """Answer the value of a config that counts, "" where it has none; no query where configs were read with the link."""
        if name == "link.mode":
            return self.mode
        default = LINK_CONFIGS[name].default or ""
        return next((one.value for one in self.configs.all() if one.name == name), default)

    @property
    def known_source(self) -> Cluster | None:
        """Return the registered cluster behind the source if the reader may see it; only ``access.with_sight`` says so."""
        return self.source if getattr(self, "sees_source", False) else None

    @property
    def sync_include(self) -> tuple[str, ...] | None:
        """Answer the names in ``topic.config.sync.include``, None where it is not set."""
        names = self.config("topic.config.sync.include").split(",")
        return tuple(name.strip() for name in names if name.strip()) or None

    @property
    def shown_uuid(self) -> uuid.UUID:
        """The link id as clients see it: one for both sides of a pair."""
        return self.pair_uuid or self.link_uuid


class LinkConfig(models.Model):
    """One config of a link that was set; what was not set has its default (``linkengine.domain.linkconfigs``)."""

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="configs")
    name = models.CharField(max_length=120)
    value = models.TextField(blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["link", "name"], name="link_config_is_set_once")]

    def __str__(self) -> str:
        return self.name


def show_change(*link_ids: int) -> None:
    """Have open pages of these links (by primary key) read again; call it after what they show was changed."""
    ClusterLink.objects.filter(pk__in=link_ids).update(sequence=F("sequence") + 1)
