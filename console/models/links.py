"""A cluster link with its configs and filters. The row lives at the destination cluster, as in Confluent's REST."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F, Q
from django.urls import reverse

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
    """A connection from a source cluster to the destination cluster that owns the link.

    On a bidirectional link each side has a row of its own, and ``destination`` is the side the row belongs to. A row of mode
    SOURCE belongs to the source: its ``destination`` is the cluster it lives on, its ``source`` the other one, and it has no
    mirrors. ``console.links.pairs`` finds the rows that belong together.

    ``source`` is the registered cluster behind ``source_cluster_id`` if there is one; a link may also name a cluster that is
    not registered. ``properties`` are the Kafka client properties for the connection to the source (configs bootstrap.servers,
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
    probed_at = models.DateTimeField(null=True)  # last successful probe of the source; null: gap filler not chosen yet
    looked_at = models.DateTimeField(null=True)  # last probe, successful or not
    topics_at = models.DateTimeField(null=True)  # last list of the source's topics; null: they cannot be listed
    # When all partitions that are not ``behind`` were in sync; stored once here, because rows of idle partitions are not stored
    level_at = models.DateTimeField(null=True)
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
        """Return the registered source cluster if the reader may see it; None also without ``access.links_with_sight``."""
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
