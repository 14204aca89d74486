"""Empty transactions, which leave one marker each, and how gaps can be filled at a destination. Blocking."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kafka.protocol.admin import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TRANSACTIONAL_ID_PREFIX, GapFiller
from linkengine.domain.producers import TransactionalProducer
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.protocol import BrokerError, KafkaCode
from linkengine.kafka.requests import MARKERS_VERSION

# --- empty transactions --------------------------------------------------------------------------------------------------
# A transaction that adds a partition, writes nothing and ends leaves exactly one marker there. This fills an offset if a
# destination refuses WriteTxnMarkers (KIP-98; its state is read with DescribeTransactions, KIP-664). EndTxn is sent in version
# 3 or older, which keeps the producer epoch (KIP-890 raises it from version 5 on). The coordinator writes a marker after it has
# responded to EndTxn, and once more if the coordinator moves or receives no response. So a marker counts as written when the
# coordinator reports the transaction as complete, not when the log end shows it.


PATIENCE_S = 15.0  # wait for a coordinator to be available and to finish the previous transaction
PAUSE_S = 0.02
COMPLETION_S = 30.0  # wait until the promised marker is written and replicated
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.1
TRANSACTION_TIMEOUT_MS = 60_000  # after which the coordinator aborts a transaction that a dead owner left open
_TRANSACTION = 1  # coordinator type
_FINISHED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
_OPEN = "Ongoing"
_COORDINATOR_MOVED = frozenset(
    {KafkaCode.COORDINATOR_NOT_AVAILABLE, KafkaCode.NOT_COORDINATOR, KafkaCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_RETRIABLE = _COORDINATOR_MOVED | {KafkaCode.CONCURRENT_TRANSACTIONS}
_T = TypeVar("_T")


class EmptyTransactions:
    """The transactions of a transactional id, in sequence."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._coordinator: int | None = None

    def idle_producer(self) -> TransactionalProducer | None:
        """Return the producer if it exists and has no transaction in progress; None otherwise. Changes nothing."""
        state = self._describe()
        if not _is_finished(state) or state.producer_id < 0:
            return None
        return TransactionalProducer(producer_id=state.producer_id, epoch=state.producer_epoch)

    def open_producer(self, *, topic: str, partition: int) -> TransactionalProducer | None:
        """Return the producer if it has an open transaction in the partition, else None. Changes nothing."""
        state = self._describe()
        if state is None or state.transaction_state != _OPEN:
            return None
        has_partition = any(topic_state.topic == topic and partition in topic_state.partitions for topic_state in state.topics)
        return TransactionalProducer(producer_id=state.producer_id, epoch=state.producer_epoch) if has_partition else None

    def commit(self, producer: TransactionalProducer) -> None:
        """Commit the open transaction: a COMMIT marker, while ``fence`` would leave an ABORT marker."""
        self._with_retry(lambda: self._end(producer, commit=True), what="end")

    def _describe(self) -> Any:
        def build(connection: Connection) -> Any:
            version = connection.version_for(DescribeTransactionsRequest.API_KEY, highest=0)
            return DescribeTransactionsRequest(version=version, transactional_ids=[self._id])

        def request() -> tuple[int, Any]:
            return self._send_request(build, response=DescribeTransactionsResponse, read=_read_state)

        try:
            return self._with_retry(request, what="be described")
        except BrokerError as error:
            if error.kafka_code == KafkaCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise

    def fence(self) -> TransactionalProducer:
        """Raise the producer epoch: previous owners are fenced, and transactions that they left open are aborted.

        An open transaction with a partition in it has left an ABORT marker there when this returns.
        """

        def build(connection: Connection) -> Any:
            version = connection.version_for(InitProducerIdRequest.API_KEY, highest=4)
            return InitProducerIdRequest(
                version=version, transactional_id=self._id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
            )

        def request() -> tuple[int, Any]:
            return self._send_request(
                build, response=InitProducerIdResponse, read=lambda response: (response.error_code, response)
            )

        found = self._with_retry(request, what="begin")
        return TransactionalProducer(producer_id=found.producer_id, epoch=found.producer_epoch)

    def write_marker(self, producer: TransactionalProducer, *, topic: str, partition: int, commit: bool) -> None:
        """Write a marker. After any error except a refusal of the first step, the outcome is unknown until ``fence``."""
        self._with_retry(lambda: self._add(producer, topic=topic, partition=partition), what="add a partition")
        self._with_retry(lambda: self._end(producer, commit=commit), what="end")
        self._await_completion()

    def _await_completion(self) -> None:
        """Wait until the marker cannot be written again: until then, a second marker may land between later records."""
        pause_s, deadline = FIRST_PAUSE_S, time.monotonic() + COMPLETION_S
        while not _is_finished(self._describe()):
            if time.monotonic() > deadline:
                raise LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR, "A transaction that fills an offset does not complete. Retrying."
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _add(self, producer: TransactionalProducer, *, topic: str, partition: int) -> tuple[int, None]:
        def build(connection: Connection) -> Any:
            version = connection.version_for(AddPartitionsToTxnRequest.API_KEY, highest=3)
            return AddPartitionsToTxnRequest(
                version=version,
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
            )

        return self._send_request(build, response=AddPartitionsToTxnResponse, read=_read_added), None

    def _end(self, producer: TransactionalProducer, *, commit: bool) -> tuple[int, None]:
        def build(connection: Connection) -> Any:
            version = connection.version_for(EndTxnRequest.API_KEY, highest=3)
            return EndTxnRequest(
                version=version,
                transactional_id=self._id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=commit,
            )

        return self._send_request(build, response=EndTxnResponse, read=_read_error), None

    def _send_request(self, build: Callable[[Connection], Any], *, response: Any, read: Callable[[Any], _T]) -> _T:
        if self._coordinator is None:
            self._coordinator = self._find_coordinator()
        try:
            return self._cluster.call(self._coordinator, build, response=response, read=read)
        except LinkEngineError:
            self._coordinator = None
            raise

    def _with_retry(self, request: Callable[[], tuple[int, _T]], *, what: str) -> _T:
        """Repeat the request until the coordinator is available and idle; raise BrokerError for any other error."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            error, result = request()
            if not error:
                return result
            if error not in _RETRIABLE or time.monotonic() > deadline:
                raise BrokerError(error, f"A transaction that fills an offset cannot {what}")
            if error in _COORDINATOR_MOVED:
                self._coordinator = None
            time.sleep(PAUSE_S)

    def _find_coordinator(self) -> int:
        def build(connection: Connection) -> Any:
            version = connection.version_for(FindCoordinatorRequest.API_KEY, highest=3, lowest=1)
            return FindCoordinatorRequest(version=version, key=self._id, key_type=_TRANSACTION)

        def request() -> tuple[int, int]:
            return self._cluster.call(
                self._any_broker(),
                build,
                response=FindCoordinatorResponse,
                read=lambda found: (found.error_code, found.node_id),
            )

        deadline = time.monotonic() + PATIENCE_S
        while True:  # the first transaction of a cluster creates the coordinators' internal topic
            error, node = request()
            if not error:
                return node
            if error not in _COORDINATOR_MOVED or time.monotonic() > deadline:
                raise BrokerError(error, "The coordinator of a transaction that fills an offset cannot be found")
            time.sleep(PAUSE_S * 5)

    def _any_broker(self) -> int:
        if not self._cluster.brokers():
            self._cluster.topics([])
        return self._cluster.brokers()[0]


def _read_state(response: Any) -> tuple[int, Any]:
    state = response.transaction_states[0]
    for topic in state.topics:  # these fields are read later, outside of the guard
        set(topic.partitions)
    return state.error_code, state


def _read_added(response: Any) -> int:
    code: int = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    return code


def _read_error(response: Any) -> int:
    code: int = response.error_code
    return code


def _is_finished(state: Any) -> bool:
    return state is not None and state.transaction_state in _FINISHED


# --- choice of the gap filler --------------------------------------------------------------------------------------------
# Found by trying; nothing is written to any topic. A marker for a topic that does not exist shows whether WriteTxnMarkers is
# supported and allowed: the broker then returns "unknown topic". Initializing a transactional producer shows whether
# transactions are allowed; its coordinator forgets the id after a week.


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
        version = connection.version_for(WriteTxnMarkersRequest.API_KEY, highest=MARKERS_VERSION, lowest=MARKERS_VERSION)
        return WriteTxnMarkersRequest(version=version, markers=[probe])

    try:
        error_code = cluster.call(cluster.brokers()[0], build, response=WriteTxnMarkersResponse, read=_read_markers_error)
    except LinkEngineError as error:  # unsupported, or the broker closed the connection
        if error.code == ErrorCode.TIMEOUT_ERROR:
            raise
        return error.message
    if error_code in (KafkaCode.NONE, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION):
        return ""
    return "ALTER on the cluster is missing" if error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED else f"error {error_code}"


def _read_markers_error(response: Any) -> int:
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
