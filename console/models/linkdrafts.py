"""A cluster link that is being created step by step, and not stored yet."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.urls import reverse

from console.models.fields import EncryptedJSONField


class LinkDraft(models.Model):
    """The draft of a link. It is visible to its user only, and deleted when the link is created or after some days.

    ``values`` are the fields of ``console.links.drafts.DraftValues``, credentials included. ``checks`` are the last connection
    tests, by side. ``listing`` is what the source had at ``listed_at`` (``linkengine.domain.sourcelistings``), empty if it was
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
