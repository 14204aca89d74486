"""Mirrors that nobody has looked at yet: set-up has not come so far. They have no partitions, and nobody knows their lag.

Whoever adds up partitions counts each of these mirrors as one more whose figures are unknown, or a link would look level
while a topic waits to be made.
"""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q

from console.models import MirrorPartition
from linkengine.domain.states import MirrorState

UNSEEN = Q(~Exists(MirrorPartition.objects.filter(mirror=OuterRef("pk")))) & ~Q(state=MirrorState.STOPPED)
