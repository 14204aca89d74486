"""URLs of the Kafka REST v3 interface, below /kafka/v3 and /v3. They have no trailing slash, and a colon before a verb.

``links/-/mirrors`` (all links) must come before the patterns with a link name, which would match ``-``.
"""

from django.urls import path, re_path

import console.api.paths  # noqa: F401 - registers the converters
from console.api.views import UnknownEndpointView
from console.clusters import rest as cluster_rest
from console.clusters import topic_rest
from console.links import rest as link_rest
from console.mirrors import rest as mirror_rest

_CLUSTER = "clusters/<segment:cluster_id>"
_LINK = f"{_CLUSTER}/links/<segment:link_name>"
_BROKER = f"{_CLUSTER}/brokers/<int:broker_id>"
_TOPIC = f"{_CLUSTER}/topics/<segment:topic_name>"
_GROUP = f"{_CLUSTER}/consumer-groups/<any_segment:consumer_group_id>"

# Names of two verbs in clients of 2024: accepted but not documented.
OLDER_VERBS = {
    "promote-local-and-start-remote-mirror": "reverse-and-start-mirror",
    "promote-local-and-pause-remote-mirror": "reverse-and-pause-mirror",
}

app_name = "kafka"  # its default instance is below /kafka/v3
urlpatterns = [
    path("clusters", cluster_rest.ClusterListView.as_view()),
    path(_CLUSTER, cluster_rest.ClusterView.as_view()),
    path(f"{_CLUSTER}/links", link_rest.LinkListView.as_view(), name="links"),
    path(f"{_CLUSTER}/links/-/mirrors", mirror_rest.AllMirrorsView.as_view()),
    path(_LINK, link_rest.LinkView.as_view(), name="link"),
    path(f"{_LINK}/configs", link_rest.LinkConfigListView.as_view()),
    path(f"{_LINK}/configs:alter", link_rest.LinkConfigBatchView.as_view(), name="link-configs"),
    path(f"{_LINK}/configs/<segment:config_name>", link_rest.LinkConfigView.as_view()),
    path(f"{_LINK}/mirrors", mirror_rest.MirrorListView.as_view(), name="mirrors"),
    *(path(f"{_LINK}/mirrors:{verb}", view) for verb, view in mirror_rest.VERBS.items()),
    *(path(f"{_LINK}/mirrors:{old}", mirror_rest.VERBS[verb]) for old, verb in OLDER_VERBS.items()),
    path(f"{_LINK}/mirrors/<segment:mirror_topic_name>", mirror_rest.MirrorView.as_view(), name="mirror"),
    path(f"{_CLUSTER}/brokers", cluster_rest.BrokerListView.as_view()),
    path(_BROKER, cluster_rest.BrokerView.as_view()),
    path(f"{_BROKER}/configs", cluster_rest.BrokerConfigListView.as_view()),
    path(f"{_BROKER}/configs/<segment:name>", cluster_rest.BrokerConfigView.as_view()),
    path(f"{_BROKER}/partition-replicas", cluster_rest.HeldReplicaListView.as_view()),
    path(f"{_CLUSTER}/broker-configs", cluster_rest.ClusterConfigListView.as_view()),
    path(f"{_CLUSTER}/broker-configs/<segment:name>", cluster_rest.ClusterConfigView.as_view()),
    path(f"{_CLUSTER}/topics/-/partitions/-/reassignment", cluster_rest.AllReassignmentsView.as_view()),
    path(f"{_CLUSTER}/topics", topic_rest.TopicListView.as_view()),
    path(_TOPIC, topic_rest.TopicView.as_view(), name="topic"),
    path(f"{_TOPIC}/configs", topic_rest.TopicConfigListView.as_view()),
    path(f"{_TOPIC}/configs:alter", topic_rest.TopicConfigBatchView.as_view()),
    path(f"{_TOPIC}/configs/<segment:name>", topic_rest.TopicConfigView.as_view()),
    path(f"{_TOPIC}/partitions", topic_rest.PartitionListView.as_view()),
    path(f"{_TOPIC}/partitions/-/reassignment", cluster_rest.TopicReassignmentsView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>/reassignment", cluster_rest.ReassignmentView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>", topic_rest.PartitionView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>/replicas", topic_rest.ReplicaListView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>/replicas/<int:broker_id>", topic_rest.ReplicaView.as_view()),
    path(f"{_CLUSTER}/acls", topic_rest.AclListView.as_view()),
    path(f"{_CLUSTER}/acls:batch", topic_rest.AclBatchView.as_view()),
    path(f"{_CLUSTER}/consumer-groups", cluster_rest.GroupListView.as_view()),
    path(_GROUP, cluster_rest.GroupView.as_view()),
    path(f"{_GROUP}/consumers", cluster_rest.ConsumerListView.as_view()),
    path(f"{_GROUP}/consumers/<segment:consumer_id>", cluster_rest.ConsumerView.as_view()),
    path(f"{_GROUP}/consumers/<segment:consumer_id>/assignments", cluster_rest.AssignmentListView.as_view()),
    path(
        f"{_GROUP}/consumers/<segment:consumer_id>/assignments/<segment:topic_name>/partitions/<int:partition_id>",
        cluster_rest.AssignmentView.as_view(),
    ),
    path(f"{_GROUP}/lags", cluster_rest.LagListView.as_view()),
    path(f"{_GROUP}/lags/<segment:topic_name>/partitions/<int:partition_id>", cluster_rest.LagView.as_view()),
    path(f"{_GROUP}/lag-summary", cluster_rest.LagSummaryView.as_view()),
    re_path(r"^[\s\S]*$", UnknownEndpointView.as_view()),
]
