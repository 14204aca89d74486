"""Paths of the Kafka REST v3 interface, below /kafka/v3 and /v3: no trailing slashes, a literal colon before a verb.

Order matters once: ``links/-/mirrors`` is about all links and must be found before a link's name is looked for.
"""

from django.urls import path, re_path

from console.api.kafka import clusters, link_configs, links, mirrors, operations, topics
from console.api.views import UnknownEndpointView

_CLUSTER = "clusters/<str:cluster_id>"
_LINK = f"{_CLUSTER}/links/<str:link_name>"

urlpatterns = [
    path("clusters", clusters.ClusterListView.as_view()),
    path(_CLUSTER, clusters.ClusterView.as_view()),
    path(f"{_CLUSTER}/links", links.LinkListView.as_view()),
    path(f"{_CLUSTER}/links/-/mirrors", mirrors.AllMirrorsView.as_view()),
    path(_LINK, links.LinkView.as_view()),
    path(f"{_LINK}/configs", link_configs.LinkConfigListView.as_view()),
    path(f"{_LINK}/configs:alter", link_configs.LinkConfigBatchView.as_view()),
    path(f"{_LINK}/configs/<str:config_name>", link_configs.LinkConfigView.as_view()),
    path(f"{_LINK}/mirrors", mirrors.MirrorListView.as_view()),
    *(path(f"{_LINK}/mirrors:{verb}", view) for verb, view in operations.VERBS.items()),
    path(f"{_LINK}/mirrors/<str:mirror_topic_name>", mirrors.MirrorView.as_view()),
    path(f"{_CLUSTER}/topics", topics.TopicListView.as_view()),
    path(f"{_CLUSTER}/topics/<str:topic_name>", topics.TopicView.as_view()),
    re_path(r"^.*$", UnknownEndpointView.as_view()),
]
