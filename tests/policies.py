"""A broker whose policy refuses topic configs by rules that a test may change while the broker runs.

``alter.config.policy.class.name`` needs a class, so one is compiled when it is first needed; where there is no Java compiler
(a JRE only), the tests are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from devcluster import parts
from devcluster.kafka import NEWEST

_CLASS = "RulesPolicy"
_RULES = "test.policy.rules"
_SOURCE = """
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;

/** Refuses topic configs above the limits in a file: one `name=limit` per line; -1 counts as unlimited. */
public class RulesPolicy implements AlterConfigPolicy {
    private Path rules;

    public void configure(Map<String, ?> configs) {
        rules = Path.of(String.valueOf(configs.get("test.policy.rules")));
    }

    public void validate(RequestMetadata request) {
        if (request.resource().type() != ConfigResource.Type.TOPIC) {
            return;
        }
        try {
            for (String line : Files.readAllLines(rules)) {
                String[] rule = line.split("=", 2);
                String value = request.configs().get(rule[0]);
                if (value == null) {
                    continue;
                }
                long limit = Long.parseLong(rule[1]);
                long wanted = Long.parseLong(value);
                if (wanted < 0 || wanted > limit) {
                    throw new PolicyViolationException(rule[0] + " may be " + limit + " at most");
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    public void close() {
    }
}
"""


class Policy:
    """The rules of one cluster, and what its brokers need for them."""

    def __init__(self, folder: Path) -> None:
        """Compile the class into ``folder``; there are no rules at first."""
        compiler = shutil.which("javac")
        if compiler is None:
            pytest.skip("There is no Java compiler: a broker's policy is a class, which is compiled for the test.")
        source = folder / f"{_CLASS}.java"
        source.write_text(_SOURCE)
        classpath = parts.kafka_classpath(version=NEWEST)
        subprocess.run([compiler, "-cp", classpath, "-d", str(folder), str(source)], check=True, timeout=120)
        self.classes, self._rules = folder, folder / "rules"
        self.forget()

    @property
    def settings(self) -> dict[str, object]:
        """Settings of a broker that has the policy."""
        return {"alter.config.policy.class.name": _CLASS, _RULES: self._rules}

    def limit(self, **limits: int) -> None:
        """Refuse higher values from now on; underscores stand for dots."""
        self._rules.write_text("".join(f"{name.replace('_', '.')}={limit}\n" for name, limit in limits.items()))

    def forget(self) -> None:
        """Remove all rules."""
        self._rules.write_text("")
