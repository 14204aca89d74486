"""``register_cluster <name> --properties <file>``: register a Kafka cluster; creates its environment if it does not exist."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone
from django.utils.text import slugify

from console.actors import SYSTEM
from console.clusters.actions import register_cluster
from console.errors import ConsoleError
from console.models import Environment, Organization


class Command(BaseCommand):
    help = (
        "Register a Kafka cluster from a file of Kafka client properties (or '-' for standard input). Needs a running worker."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--properties", required=True, help="file with name=value lines, as for Kafka's command-line tools")
        parser.add_argument("--organization", default="Default organization")
        parser.add_argument("--environment", default="default")

    def handle(self, *_args: Any, **options: Any) -> None:
        environment = _environment(options["organization"], options["environment"])
        properties = read_properties(options["properties"])
        try:
            cluster = register_cluster(
                environment=environment, name=options["name"], properties=properties, by=SYSTEM, now=timezone.now()
            )
        except ConsoleError as error:
            raise CommandError(error.message) from error
        self.stdout.write(json.dumps({"name": cluster.name, "cluster_id": cluster.cluster_id}))


def read_properties(path: str) -> dict[str, str]:
    """Return the properties of a file of name=value lines ("-" for standard input); comments and empty lines are ignored."""
    text = sys.stdin.read() if path == "-" else Path(path).read_text()
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def _environment(organization: str, name: str) -> Environment:
    now = timezone.now()
    root, _ = Organization.objects.get_or_create(name=organization, defaults={"created_at": now})
    defaults = {"created_at": now, "slug": slugify(name) or "environment"}
    environment, _ = Environment.objects.get_or_create(organization=root, name=name, defaults=defaults)
    return environment
