"""An ingest for the killer, which writes each of its steps as a line of JSON to stdout.

- ``{"step": "table-committed", "batch": 7}``: a step was reached.
- ``{"stopped": "table-committed", "batch": 7}``: the ingest blocks here and waits for SIGKILL.
- ``{"done": 3}``: the topic's end was reached, after 3 batches.
The ingest blocks when it reaches the step `stop_at` for the n-th time, so that the killer can read
the files. `killer.Killer` runs this module. The plan is JSON in argv.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from odradek.pipeline.jobs.ingest import IngestJob
from odradek.pipeline.jobs.options import IngestOptions
from odradek.pipeline.session import SHORT_LIFE, SessionOptions, open_session
from odradek.pipeline.tables import TableFormat
from tests.pipeline.steps import Step, TableDirWithSteps

SCHEMA = "n BIGINT NOT NULL, pad STRING"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run of the ingest. Without `stop_at` it does not stop.

    With `jars`, Spark does not resolve its packages, which takes some seconds of each run.
    """

    bootstrap_servers: str
    topic: str
    directory: str
    table_format: str
    batch_rows: int
    stop_at: str | None = None
    stop_at_time: int = 1
    forget_transactions: bool = False
    jars: str = ""

    def spark_settings(self) -> dict[str, str]:
        settings = {"spark.sql.codegen.wholeStage": "false"}
        if self.jars:
            settings |= {"spark.jars": self.jars, "spark.jars.packages": ""}
        return settings


class Reporter:
    """Reports each step on stdout, and blocks at the planned step."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._times = 0

    def at_step(self, step: Step, batch_id: int) -> None:
        write_message({"step": step.value, "batch": batch_id})
        if step.value == self._plan.stop_at:
            self._times += 1
            if self._times == self._plan.stop_at_time:
                write_message({"stopped": step.value, "batch": batch_id})
                threading.Event().wait()


def write_message(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


def end_with_the_killer() -> None:
    """Kill the process group when the killer has ended, which closes this process's stdin."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    threading.Thread(target=end_with_the_killer, daemon=True).start()
    plan = Plan(**json.loads(sys.argv[1]))
    log = Path(plan.directory) / "spark.log"
    session = SessionOptions(
        "killed ingest",
        driver_memory="640m",
        shuffle_partitions=2,
        java_options=SHORT_LIFE,
        jvm_log=log,
        iceberg=plan.table_format == TableFormat.ICEBERG,
        extra=plan.spark_settings(),
    )
    options = IngestOptions(
        bootstrap_servers=plan.bootstrap_servers,
        topics=(plan.topic,),
        tables=TableDirWithSteps(
            plan.directory,
            TableFormat(plan.table_format),
            Reporter(plan).at_step,
            plan.forget_transactions,
        ),
        parser="json",
        schema=SCHEMA,
        once=True,
        offsets_per_trigger_max=plan.batch_rows,
    )
    summary = IngestJob(open_session(session), options).run()
    write_message({"done": summary.batches})


if __name__ == "__main__":
    main()
