"""Find out how gaps can be filled at a destination, by trying. Nothing is written to any topic.

A marker for a topic that does not exist shows whether WriteTxnMarkers is supported and allowed: the broker then returns
"unknown topic". Initializing a transactional producer shows whether transactions are allowed; its coordinator forgets the id
after a week.
"""

from __future__ import annotations

import secrets
from typing import Any

from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TRANSACTIONAL_ID_PREFIX, GapFiller
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import KafkaCode
from linkengine.kafka.connection import Connection
from linkengine.kafka.markers import VERSION
from linkengine.kafka.transactions import EmptyTransactions

PROBE_PRODUCER_ID = (1 << 62) - 1  # below the ids of mirrors, above all ids that brokers allocate


def choose_gap_filler(address: ClusterAddress) -> GapFiller:
    """Return the better method that works; raise AUTHORIZATION_ERROR, with both refusals, if none does."""
    cluster = Cluster(address)
    try:
        cluster.topics([])
        refusal = _markers_refused(cluster)
        if not refusal:
            return GapFiller.MARKERS
        try:
            EmptyTransactions(cluster, f"{TRANSACTIONAL_ID_PREFIX}probe").fence()
        except LinkEngineError as error:
            raise _refused_both(address, refusal, error) from error
        return GapFiller.TRANSACTIONS
    finally:
        cluster.close()


def _markers_refused(cluster: Cluster) -> str:
    """Return why a marker is refused, "" if it is accepted."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=f"clusterlink-probe-{secrets.token_hex(8)}", partition_indexes=[0])
    probe = marker(
        producer_id=PROBE_PRODUCER_ID, producer_epoch=0, transaction_result=False, topics=[topic], coordinator_epoch=0
    )

    def build(connection: Connection) -> Any:
        version = connection.version_for(WriteTxnMarkersRequest.API_KEY, highest=VERSION, lowest=VERSION)
        return WriteTxnMarkersRequest(version=version, markers=[probe])

    try:
        error_code = cluster.call(cluster.brokers()[0], build, response=WriteTxnMarkersResponse, read=_read_error)
    except LinkEngineError as error:  # unsupported, or the broker closed the connection
        if error.code == ErrorCode.TIMEOUT_ERROR:
            raise
        return error.message
    if error_code in (KafkaCode.NONE, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION):
        return ""
    return "ALTER on the cluster is missing" if error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED else f"error {error_code}"


def _read_error(response: Any) -> int:
    """Return the error of the marker; brokers without support for markers return none."""
    code: int = response.markers[0].topics[0].partitions[0].error_code if response.markers else KafkaCode.UNSUPPORTED_VERSION
    return code


def _refused_both(address: ClusterAddress, markers: str, transactions: LinkEngineError) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.AUTHORIZATION_ERROR,
        f"User {address.sasl_username or 'ANONYMOUS'!r} cannot preserve offsets at the destination: it may neither append "
        f"transaction markers ({markers}) nor use transactions ({transactions.message.rstrip('.')}). Give it ALTER on the "
        "cluster, preferably as a super user (super.users), or WRITE and DESCRIBE on transactional ids that begin with "
        f"{TRANSACTIONAL_ID_PREFIX}.",
    )
