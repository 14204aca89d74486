"""URLs of the Kafka REST v3 interface, below /kafka/v3 and /v3. They have no trailing slash, and a colon before a verb.

``links/-/mirrors`` (all links) must come before the patterns with a link name, which would match ``-``.
"""

from django.urls import path, re_path

import console.api.paths  # noqa: F401 - registers the converters
from console.api.kafka import acls, brokers, clusters, groups, link_configs, links, mirrors, operations, topic_configs, topics
from console.api.views import UnknownEndpointView

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
    path("clusters", clusters.ClusterListView.as_view()),
    path(_CLUSTER, clusters.ClusterView.as_view()),
    path(f"{_CLUSTER}/links", links.LinkListView.as_view(), name="links"),
    path(f"{_CLUSTER}/links/-/mirrors", mirrors.AllMirrorsView.as_view()),
    path(_LINK, links.LinkView.as_view()),
    path(f"{_LINK}/configs", link_configs.LinkConfigListView.as_view()),
    path(f"{_LINK}/configs:alter", link_configs.LinkConfigBatchView.as_view()),
    path(f"{_LINK}/configs/<segment:config_name>", link_configs.LinkConfigView.as_view()),
    path(f"{_LINK}/mirrors", mirrors.MirrorListView.as_view(), name="mirrors"),
    *(path(f"{_LINK}/mirrors:{verb}", view) for verb, view in operations.VERBS.items()),
    *(path(f"{_LINK}/mirrors:{old}", operations.VERBS[verb]) for old, verb in OLDER_VERBS.items()),
    path(f"{_LINK}/mirrors/<segment:mirror_topic_name>", mirrors.MirrorView.as_view(), name="mirror"),
    path(f"{_CLUSTER}/brokers", brokers.BrokerListView.as_view()),
    path(_BROKER, brokers.BrokerView.as_view()),
    path(f"{_BROKER}/configs", brokers.BrokerConfigListView.as_view()),
    path(f"{_BROKER}/configs/<segment:name>", brokers.BrokerConfigView.as_view()),
    path(f"{_BROKER}/partition-replicas", brokers.HeldReplicaListView.as_view()),
    path(f"{_CLUSTER}/broker-configs", brokers.ClusterConfigListView.as_view()),
    path(f"{_CLUSTER}/broker-configs/<segment:name>", brokers.ClusterConfigView.as_view()),
    path(f"{_CLUSTER}/topics/-/partitions/-/reassignment", brokers.AllReassignmentsView.as_view()),
    path(f"{_CLUSTER}/topics", topics.TopicListView.as_view()),
    path(_TOPIC, topics.TopicView.as_view()),
    path(f"{_TOPIC}/configs", topic_configs.TopicConfigListView.as_view()),
    path(f"{_TOPIC}/configs:alter", topic_configs.TopicConfigBatchView.as_view()),
    path(f"{_TOPIC}/configs/<segment:name>", topic_configs.TopicConfigView.as_view()),
    path(f"{_TOPIC}/partitions", topics.PartitionListView.as_view()),
    path(f"{_TOPIC}/partitions/-/reassignment", brokers.TopicReassignmentsView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>/reassignment", brokers.ReassignmentView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>", topics.PartitionView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>/replicas", topics.ReplicaListView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>/replicas/<int:broker_id>", topics.ReplicaView.as_view()),
    path(f"{_CLUSTER}/acls", acls.AclListView.as_view()),
    path(f"{_CLUSTER}/acls:batch", acls.AclBatchView.as_view()),
    path(f"{_CLUSTER}/consumer-groups", groups.GroupListView.as_view()),
    path(_GROUP, groups.GroupView.as_view()),
    path(f"{_GROUP}/consumers", groups.ConsumerListView.as_view()),
    path(f"{_GROUP}/consumers/<segment:consumer_id>", groups.ConsumerView.as_view()),
    path(f"{_GROUP}/consumers/<segment:consumer_id>/assignments", groups.AssignmentListView.as_view()),
    path(
        f"{_GROUP}/consumers/<segment:consumer_id>/assignments/<segment:topic_name>/partitions/<int:partition_id>",
        groups.AssignmentView.as_view(),
    ),
    path(f"{_GROUP}/lags", groups.LagListView.as_view()),
    path(f"{_GROUP}/lags/<segment:topic_name>/partitions/<int:partition_id>", groups.LagView.as_view()),
    path(f"{_GROUP}/lag-summary", groups.LagSummaryView.as_view()),
    re_path(r"^[\s\S]*$", UnknownEndpointView.as_view()),
]
