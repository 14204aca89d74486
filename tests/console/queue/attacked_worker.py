"""The product's Celery app, for a worker that looks for unacknowledged messages every second instead of every 100 seconds."""

from console.celery import app

app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    "unacked_restore_interval": 1,  # s between two calls; 10 by default
    "unacked_restore_throttle": 1,  # calls per look; 10 by default
}
