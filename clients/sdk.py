"""The scenario of ``clients/sdk``: a Go program that uses Confluent's kafkarest SDK."""

from __future__ import annotations

import json
import os

from clients.environment import ROOT, ClientEnvironment, run_program

FOLDER = ROOT / "clients" / "sdk"


def run(environment: ClientEnvironment) -> None:
    """Build the program (Go fetches the SDK) and run it."""
    program = environment.directory.parent / "clients-sdk"
    run_program(["go", "build", "-o", str(program), "."], folder=FOLDER, environment=os.environ)
    settings = {
        "URL": environment.console.base_url,
        "API_KEY": environment.key["api_key"],
        "API_SECRET": environment.key["api_secret"],
        "CLUSTER": environment.destination.cluster_id,
        "SOURCE_CLUSTER": environment.source.cluster_id,
        "SOURCE_PROPERTIES": json.dumps(environment.source.client_properties("link")),
        "DESTINATION_PROPERTIES": json.dumps(environment.destination.client_properties("link")),
        "TOPIC_PROMOTED": environment.make_topic("sdk-promoted"),
        "TOPIC_FAILED_OVER": environment.make_topic("sdk-failed-over"),
        "TOPIC_REVERSED": environment.make_topic("sdk-reversed"),
    }
    print(run_program([str(program)], folder=FOLDER, environment={**os.environ, **settings}).stdout, end="")
