"""The scenario of ``clients/sdk``: a Go program that uses Confluent's kafkarest SDK."""

from __future__ import annotations

import json
import os

from clients.stage import ROOT, Stage, run_program

FOLDER = ROOT / "clients" / "sdk"


def run(stage: Stage) -> None:
    """Build the program (Go fetches the SDK) and run it."""
    program = stage.directory.parent / "clients-sdk"
    run_program(["go", "build", "-o", str(program), "."], folder=FOLDER, environment=os.environ)
    settings = {
        "URL": stage.console.base_url,
        "API_KEY": stage.key["api_key"],
        "API_SECRET": stage.key["api_secret"],
        "CLUSTER": stage.destination.cluster_id,
        "SOURCE_CLUSTER": stage.source.cluster_id,
        "SOURCE_PROPERTIES": json.dumps(stage.source.client_properties("link")),
        "DESTINATION_PROPERTIES": json.dumps(stage.destination.client_properties("link")),
        "TOPIC_PROMOTED": stage.make_topic("sdk-promoted"),
        "TOPIC_FAILED_OVER": stage.make_topic("sdk-failed-over"),
        "TOPIC_REVERSED": stage.make_topic("sdk-reversed"),
    }
    print(run_program([str(program)], folder=FOLDER, environment={**os.environ, **settings}).stdout, end="")
