"""Transactional ids of producers in the confirmation of a reversal and in REST previews."""

from __future__ import annotations

from dataclasses import asdict

from django.test import Client

from console.actors import Actor
from console.models import ClusterLink, MirrorTopic
from console.presenters.links import link_url
from linkengine.domain.clusterviews import ReversalRisks, TransactionalWriters
from tests.console.conftest import Engine


def test_transactional_ids_are_shown_before_a_reversal(
    mirror: MirrorTopic, back: ClusterLink, owner: Actor, client: Client, engine: Engine
) -> None:
    writers = TransactionalWriters(ids=("billing-1", "shipping"), open_ids=("shipping",), unnamed_open=0, complete=True)
    engine.answers["find_reversal_risks"] = {mirror.name: asdict(ReversalRisks(unclean_on=(), writers=writers))}
    assert owner.user is not None
    client.force_login(owner.user)

    page = client.get(f"{link_url(mirror.link)}mirrors/{mirror.name}/reverse-and-start/").content.decode()
    previews = f"/api/v1/clusters/{back.source_cluster_id}/links/{mirror.link.name}/previews?operation=reverse-and-start"
    (preview,) = client.get(previews).json()["data"]

    expected = "wrote to &#x27;orders&#x27; recently: shipping (transaction open), billing-1."
    assert expected in page
    assert any("shipping (transaction open), billing-1" in sentence for sentence in preview["warnings"])
