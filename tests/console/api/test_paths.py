"""Names with any characters in REST paths, through a client that sends raw paths (through uvicorn: ``test_end_to_end.py``)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from django.urls import URLResolver, get_resolver
from hypothesis import given
from hypothesis import strategies as st

from console.http.middleware import encode_path, encode_segment
from console.models import Cluster
from tests.console.api.actors import Rest
from tests.console.api.brokers import GROUP, MEMBER, SmallCluster
from tests.linkengine.jobs.test_group_names import NAMES


def sent(rest: Rest, address: str) -> Any:
    """Send a request with the raw path, as a WSGI server does; Django's test client alone decodes the path."""
    path = urlsplit(address).path
    return rest.client.get(path, RAW_URI=path)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_encoding_of_a_segment_is_canonical(name: str) -> None:
    segment = encode_segment(name)

    assert "/" not in segment
    assert segment not in (".", "..")
    assert encode_path(f"/a/{segment}/b") == f"/a/{segment}/b"
    assert encode_path(f"/a/{quote(name, safe='')}/b") == f"/a/{segment}/b"


def test_rest_urls_use_only_the_segment_converters() -> None:
    """Below the REST prefixes paths stay encoded, so Django's own text converters would return ``%2F``."""
    routes = [
        str(pattern.pattern)
        for include in get_resolver().url_patterns
        if isinstance(include, URLResolver) and str(include.pattern) in ("kafka/v3/", "v3/", "api/v1/")
        for pattern in include.url_patterns
    ]

    assert len(routes) > 100
    assert [route for route in routes if "<str:" in route or "<path:" in route or "<slug:" in route] == []


@pytest.mark.django_db
@pytest.mark.parametrize("name", NAMES)
def test_every_url_of_a_group_exists(owner: Rest, destination: Cluster, cluster: SmallCluster, name: str) -> None:
    groups = f"/kafka/v3/clusters/{destination.cluster_id}/consumer-groups"
    cluster.groups = {name: {**GROUP, "group_id": name, "members": [{**MEMBER, "consumer_id": f"{name}/1"}]}}

    (group,) = owner.get(groups).json()["data"]

    assert sent(owner, group["metadata"]["self"]).json() == group
    consumers = sent(owner, group["consumers"]["related"]).json()
    assert consumers["metadata"]["self"] == group["consumers"]["related"]
    (consumer,) = consumers["data"]
    assert consumer["consumer_group_id"] == name
    assert sent(owner, consumer["metadata"]["self"]).json() == consumer
    assert sent(owner, consumer["assignments"]["related"]).json()["data"][0]["consumer_id"] == f"{name}/1"
    summary = sent(owner, group["lag_summary"]["related"]).json()
    assert (summary["consumer_group_id"], summary["metadata"]["self"]) == (name, group["lag_summary"]["related"])
    lag = sent(owner, summary["metadata"]["self"].removesuffix("lag-summary") + "lags").json()["data"][0]
    assert sent(owner, lag["metadata"]["self"]).json() == lag


@pytest.mark.django_db
def test_encoded_and_decoded_slashes_in_paths_are_distinguished(
    owner: Rest, destination: Cluster, cluster: SmallCluster
) -> None:
    groups = f"/kafka/v3/clusters/{destination.cluster_id}/consumer-groups"
    cluster.groups = {"data/lags": {**GROUP, "group_id": "data/lags"}, "data": {**GROUP, "group_id": "data"}}

    assert sent(owner, f"{groups}/data%2Flags").json()["consumer_group_id"] == "data/lags"
    assert sent(owner, f"{groups}/data/lags").json()["kind"] == "KafkaConsumerLagList"
    assert sent(owner, f"{groups}/%64ata").json()["consumer_group_id"] == "data"
    assert sent(owner, f"{groups}/data%252Flags").status_code == 404


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["configs:alter", "configs%3Aalter"])
def test_the_colon_of_a_verb_may_be_encoded(owner: Rest, destination: Cluster, verb: str) -> None:
    path = f"/kafka/v3/clusters/{destination.cluster_id}/topics/plain/{verb}"

    response = owner.client.post(path, {"data": []}, content_type="application/json", RAW_URI=path)

    assert response.status_code in (200, 204)


@pytest.mark.django_db
def test_a_group_that_cannot_be_described_is_listed_with_the_reason(
    owner: Rest, destination: Cluster, cluster: SmallCluster
) -> None:
    groups = f"/kafka/v3/clusters/{destination.cluster_id}/consumer-groups"
    cluster.groups["secret"] = {**GROUP, "group_id": "secret", "state": "UNKNOWN", "coordinator": -1, "error": "Not allowed."}
    cluster.incomplete = "Broker 2 did not respond."

    response = owner.get(groups).json()

    assert response["metadata"]["incomplete"] == "Broker 2 did not respond."
    readers, secret = response["data"]
    assert "error_message" not in readers
    assert (secret["state"], secret["error_message"]) == ("UNKNOWN", "Not allowed.")
    assert secret["coordinator"]["related"].endswith("/brokers")
