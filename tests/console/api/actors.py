"""Helpers of the REST tests: clients with an API key, a fake of the way to the worker, rows of the database."""

import base64
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from console.access.actions import create_api_key
from console.actors import SYSTEM
from console.models import ApiKey, Cluster, Environment, RoleBinding

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
DESTINATION = "4L6g3nShT-eMCtK--X86sw"
SOURCE = "MkU3OEVBNTcwNTJENDM2Qg"
LINK = f"/api/v1/clusters/{DESTINATION}/links/from-source"
ORDERS = f"{LINK}/mirrors/orders"
NEW_LINK: dict[str, Any] = {
    "source_cluster_id": SOURCE,
    "configs": [
        {"name": "bootstrap.servers", "value": "source.test:9092"},
        {"name": "security.protocol", "value": "PLAINTEXT"},
        {"name": "topic.config.sync.ms", "value": "7000"},
    ],
}


class Rest:
    """A test client that signs in with an API key and sends JSON."""

    def __init__(self, key: str, secret: str) -> None:
        self.authorization = "Basic " + base64.b64encode(f"{key}:{secret}".encode()).decode()
        self.client = Client(headers={"authorization": self.authorization}, raise_request_exception=False)
        self.key, self.secret = key, secret

    def call(self, method: str, path: str, body: Any = None) -> Any:
        more = {} if body is None else {"data": body, "content_type": "application/json"}
        return getattr(self.client, method)(path, **more)

    def get(self, path: str) -> Any:
        return self.call("get", path)

    def post(self, path: str, body: Any = None) -> Any:
        return self.call("post", path, body)

    def put(self, path: str, body: Any = None) -> Any:
        return self.call("put", path, body)

    def delete(self, path: str) -> Any:
        return self.call("delete", path)


class Boundary:
    """A fake of ``console.queue.dispatch``: records tasks; returns ``response`` (a value or a function) or raises ``error``."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.response: Any = {}
        self.error: Exception | None = None

    def send(self, task_name: str, **kwargs: Any) -> None:
        self.sent.append((task_name, kwargs))

    def call(self, task_name: str, *, timeout_s: float, **kwargs: Any) -> Any:
        assert timeout_s > 0
        self.called.append((task_name, kwargs))
        if self.error:
            raise self.error
        return self.response(task_name, kwargs) if callable(self.response) else self.response


def make_cluster(environment: Environment, *, name: str, cluster_id: str) -> Cluster:
    properties = {"bootstrap.servers": f"{name.lower()}.test:9092", "security.protocol": "PLAINTEXT"}
    return Cluster.objects.create(
        environment=environment,
        name=name,
        cluster_id=cluster_id,
        bootstrap_servers=properties["bootstrap.servers"],
        properties=properties,
        created_at=NOW,
    )


def make_client(environment: Environment | None, *, name: str, role: str) -> Rest:
    user = User.objects.create_user(name)
    if environment is not None:
        RoleBinding.objects.create(user=user, role=role, environment=environment, granted_at=NOW, granted_by="test")
    api_key, secret = make_key(user)
    return Rest(api_key.key, secret)


def make_key(user: User, *, expires_at: datetime | None = None) -> tuple[ApiKey, str]:
    return create_api_key(user=user, description="test", expires_at=expires_at, by=SYSTEM, now=NOW)
