"""``linkctl namespace``: create, attach, detach, release, reserve, delete."""

from console.models import ClusterLink
from tests.console.api.actors import Boundary
from tests.linkctl.conftest import Run, read_json


def test_a_namespace_is_created_attached_released_and_deleted(run: Run, link: ClusterLink, boundary: Boundary) -> None:
    assert run("namespace", "create", "orders.", "--reserved").exit_code == 0
    assert run("namespace", "attach", "orders.", "--link", "from-source", "--leader-prefix", "orders.").exit_code == 0
    row = run("namespace", "list").stdout.splitlines()[1].split()
    assert row[:6] == [
        "orders.*",
        "CATCHING_UP",
        "from-source",
        "0",
        "unknown",
        "yes",
    ]  # the source's topics have not been listed yet

    assert run("namespace", "detach", "orders.").exit_code == 0
    assert run("namespace", "release", "orders.").exit_code == 0
    assert run("namespace", "reserve", "orders.").exit_code == 0
    assert read_json(run("namespace", "list", "--json"))["data"][0]["reserved"] is True
    assert run("namespace", "delete", "orders.").exit_code == 0
    (left,) = read_json(run("namespace", "list", "--json"))["data"]  # until its ACL is deleted on the cluster
    assert (left["reserved"], left["guarded"]) == (False, None)


def test_an_unknown_namespace_is_reported(run: Run, link: ClusterLink) -> None:
    result = run("namespace", "reserve", "nothing.")

    assert (result.exit_code, "no namespace nothing.*" in result.output) == (3, True)


def test_prefixes_are_completed(run: Run, link: ClusterLink, boundary: Boundary) -> None:
    run("namespace", "create", "orders.")

    found = run(COMP_WORDS="linkctl namespace reserve ord", COMP_CWORD="3", _LINKCTL_COMPLETE="bash_complete")

    assert found.stdout.split() == ["plain,orders."]
