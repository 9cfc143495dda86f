"""Clients in Go and Node as released: Sarama, kafka-go and KafkaJS, each in a small program.

The cases cover groups whose members join, leave and are killed. Where the client supports them,
they also cover static members, a producer that is fenced, and transactions that commit offsets
and abort at random.
"""

from __future__ import annotations

import functools
import shutil

from conformance import stacks
from conformance.go_programs import PROGRAMS, go_program
from conformance.harness import Skip, main
from conformance.program_cases import member_case, static_case, transaction_cases
from testkit.peer.artifacts import CACHE


def _node() -> list[str]:
    """Return the command of the Node program. Its only package is installed on first use."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Skip("the program runs on Node: there is no `node` and `npm` on the PATH")
    home = CACHE / "programs-node"
    home.mkdir(parents=True, exist_ok=True)
    for path in (PROGRAMS / "node").iterdir():
        shutil.copy(path, home)
    if not (home / "node_modules").is_dir():
        command = [npm, "ci", "--no-audit", "--no-fund"]
        done = stacks.run(command, cwd=home, timeout_s=300)
        if done.returncode != 0:
            raise Skip(f"npm could not fetch KafkaJS: {done.stderr[-300:]}")
    return [node, str(home / "main.js")]


SARAMA = functools.partial(go_program, "go", "sarama")
KAFKA_GO = functools.partial(go_program, "go", "kafkago")

CASES = (
    member_case("Sarama: ", SARAMA),
    static_case("Sarama: ", SARAMA),
    *transaction_cases("Sarama: ", SARAMA),
    member_case("kafka-go: ", KAFKA_GO),
    member_case("KafkaJS: ", _node),
    *transaction_cases("KafkaJS: ", _node),
)

if __name__ == "__main__":
    main("go_and_node", CASES)
