"""A small live stream: more flights, several per second, until stopped.

The dataset's flights again, a year later. Runs in a thread of the demo; the client library buffers while the source is down, so
a stopped broker does not end the stream.
"""

import itertools
import threading

from confluent_kafka import Producer

from devcluster.demo import dataset
from devcluster.demo.flights import FLIGHTS, PRODUCER, Message, flight_message
from devcluster.kafka import KafkaCluster

PER_SECOND = 20
CLOSE_TIMEOUT_S = 5.0
KEPT = 5_000  # number of flights that are sent in a loop


class LiveFlights:
    """The stream; `start` and `stop` once each."""

    def __init__(self, cluster: KafkaCluster, *, topic: str = FLIGHTS, per_second: int = PER_SECOND) -> None:
        """Prepare the stream."""
        self._topic = topic
        self._producer = Producer({**cluster.client("app"), **PRODUCER, "linger.ms": 5, "compression.type": "lz4"})
        self._pause_s = 1 / per_second
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-flights", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the stream and write the queued records."""
        self._stopped.set()
        self._thread.join(CLOSE_TIMEOUT_S)
        self._producer.flush(CLOSE_TIMEOUT_S)
        self._producer.purge()  # records that the source did not accept in time: closing would wait for them
        self._producer.close()

    def _run(self) -> None:
        messages = [_later(row) for row in itertools.islice(dataset.flights(), KEPT)]
        for message in itertools.cycle(messages):
            if self._stopped.wait(self._pause_s):
                return
            try:
                self._producer.produce(self._topic, message.value, key=message.key)
            except BufferError:
                continue  # the source has been down for hours: drop the record, since a live stream does not wait
            finally:
                self._producer.poll(0)


def _later(row: dataset.Row) -> Message:
    return flight_message({**row, "year": "2014"})
