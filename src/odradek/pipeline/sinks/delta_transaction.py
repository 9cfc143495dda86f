"""An append to a Delta table in two steps: write the files, then commit them.

Spark's writer does both at once, so the content of the commit must be known before the first row is
read. Here the caller gives the commit after the rows were written: with the counts of that write,
or not at all. `DeltaAppend` does what Delta's own command does for an append
(`WriteIntoDelta.run`), with Delta's classes, and stops before the commit. The classes are not
public: the tests use each of them, so another version of Delta fails there.

A crash, or an append that is not committed, leaves data files that no commit names. Readers do not
see them, and VACUUM removes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from odradek.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFLICT = "io.delta.exceptions.ConcurrentTransactionException"


class DeltaAppend:
    """One append to the Delta table at `path`, which exists.

    Args:
        spark: The session.
        path: The path of the table.
        rows: The rows. Their schema has the fields of the table.
        application_id: The application of the commit (txnAppId).
        version: The number of the commit in the application (txnVersion).
        options: Options of Delta's writer, such as ``mergeSchema``.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        rows: DataFrame,
        application_id: str,
        version: int,
        options: Mapping[str, str] | None = None,
    ) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._delta = self._jvm.org.apache.spark.sql.delta
        # The rows of a streaming batch belong to a session of their own.
        self._session: Any = rows.sparkSession._jsparkSession
        self._path = path
        none = self._none()
        self._log = self._delta.DeltaLog.forTable(self._session, path)
        self._transaction = self._log.startTransaction(none, none)
        self._mode = self._jvm.org.apache.spark.sql.SaveMode.Append
        transaction_options = {"txnAppId": application_id, "txnVersion": str(version)}
        self._options = self._delta_options({**(options or {}), **transaction_options})
        self._no_columns = self._seq()
        self._command = self._delta.commands.WriteIntoDelta(
            self._log,
            self._mode,
            self._options,
            self._no_columns,
            self._map({}),
            rows._jdf,
            none,
            none,
        )
        self._actions: Any = None

    def is_done(self) -> bool:
        """Return whether the application has committed this version, or a later one.

        The commit then fails if another driver commits a version of the application meanwhile.
        """
        return bool(
            self._command.hasBeenExecuted(
                self._transaction, self._session, self._some(self._options)
            )
        )

    def write(self) -> None:
        """Write the rows to files that no commit names yet. Observations of the rows are ready."""
        actions = self._command.write(self._transaction, self._session, self._none(), False)
        set_transaction = self._command.createSetTransaction(
            self._session, self._log, self._some(self._options)
        )
        self._actions = actions.appended(set_transaction.get())

    def commit(self, user_metadata: str) -> int:
        """Commit the files, and return the version of the table.

        Args:
            user_metadata: The text that the commit carries.

        Raises:
            PipelineError: Another driver has committed a version of the application since
                `is_done`.
        """
        assert self._actions is not None, "write comes before commit"
        operation = self._delta.DeltaOperations.Write(
            self._mode, self._some(self._no_columns), self._none(), self._some(user_metadata)
        )
        try:
            return int(self._transaction.commit(self._actions, operation))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != CONFLICT:
                raise
            raise PipelineError(
                f"Another driver has written the same batch to {self._path}. Run one ingest for"
                " each directory, and start this one again."
            ) from error

    def _delta_options(self, options: Mapping[str, str]) -> Any:
        conf = self._session.sessionState().conf()
        return self._delta.DeltaOptions(self._map(options), conf)

    def _none(self) -> Any:
        return self._jvm.scala.Option.empty()

    def _some(self, value: object) -> Any:
        return self._jvm.scala.Some(value)

    def _seq(self) -> Any:
        return self._conversions().toSeq(self._jvm.java.util.ArrayList())

    def _map(self, values: Mapping[str, str]) -> Any:
        found = self._jvm.java.util.HashMap()
        for name, value in values.items():
            found.put(name, value)
        return self._conversions().toScalaMap(found)

    def _conversions(self) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils
