"""Ask the independent witness whether a mirror equals its source."""

from __future__ import annotations

from dataclasses import replace

from linkengine.domain.configs import is_compacted
from linkengine.domain.plans import VerifyPlan, VerifyReport
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.verifyjob.job import run_verify


def verify(plan: VerifyPlan, *, spark_url: str, tag: str = "verify") -> VerifyReport:
    """Compare source and mirror record by record up to ``plan.ends``, by default the mirror's end now. Blocks."""
    return run_verify(complete(plan), spark_url=spark_url, tag=tag)


def complete(plan: VerifyPlan) -> VerifyPlan:
    """Fill in the ends where the plan names none, and whether either side compacts."""
    source, mirror = ClusterAdmin(plan.source), ClusterAdmin(plan.destination)
    ends = plan.ends or tuple(sorted(mirror.offsets(plan.mirror_topic, OffsetKind.END).items()))
    sides = (source.effective_configs(plan.source_topic), mirror.effective_configs(plan.mirror_topic))
    return replace(plan, ends=ends, compacted=plan.compacted or any(is_compacted(configs) for configs in sides))
