"""A ZooKeeper of one server as a child process, from the jars in PySpark's wheel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from odradek.launcher.child import Child, wait_for
from odradek.launcher.plan import ZooKeeperPlan
from odradek.launcher.programs import ZooKeeperPrograms, find_programs
from odradek.launcher.readiness import zookeeper_serves

START_TIMEOUT_S = 120.0


class ZooKeeperServer:
    """One server. `start` returns when it serves. Owned by its creator.

    Args:
        plan: Port and directory. The directory is created if it is missing.
        programs: Java and the jars. Default: those of this machine.
        keeps: Descriptors that the process inherits.
        prefix: A command that runs the server, such as the one that enters a network namespace.

    Raises:
        ZooKeeperUnavailable: Java or the jars are missing.
    """

    def __init__(
        self,
        plan: ZooKeeperPlan,
        programs: ZooKeeperPrograms | None = None,
        *,
        keeps: Sequence[int] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        programs = programs or find_programs()
        self.plan = plan
        log_file = plan.directory.with_name(f"{plan.directory.name}.log")
        command = [*prefix, *plan.command(programs.java, programs.jars)]
        self.child = Child("ZooKeeper", command, log_file, keeps=keeps)

    @property
    def address(self) -> str:
        return self.plan.address

    @property
    def port(self) -> int:
        return self.plan.port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Write the configuration, start the server, and wait until it serves.

        Raises:
            LaunchFailed: It ended, or does not respond in time. It does not run then.
        """
        self.plan.data.mkdir(parents=True, exist_ok=True)
        for path, text in self.plan.files().items():
            path.write_text(text, encoding="utf-8")
        self.child.start()
        try:
            wait_for(
                lambda: zookeeper_serves(self.plan.host, self.port),
                [self.child],
                "ZooKeeper to serve",
                START_TIMEOUT_S,
                is_cancelled,
            )
        except BaseException:
            self.kill()
            raise

    restart = start
    """Start the server again on the same port and directory, after `stop` or `kill`."""

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if the server does not end."""
        self.child.stop()

    def kill(self) -> None:
        """Send SIGKILL."""
        self.child.kill()
