"""File operations through Hadoop's FileSystem.

They work on each storage that Spark can reach, with the credentials of the session.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class HadoopFiles:
    """Files under any Hadoop path (`/a`, `hdfs://...`, `s3a://...`).

    Each method raises Py4JJavaError if the file system fails.
    """

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._conf = context._jsc.hadoopConfiguration()

    def _open(self, path: str) -> tuple[Any, Any]:
        jpath = self._jvm.org.apache.hadoop.fs.Path(path)
        return jpath.getFileSystem(self._conf), jpath

    def exists(self, path: str) -> bool:
        fs, jpath = self._open(path)
        return bool(fs.exists(jpath))

    def list_names(self, path: str) -> list[str]:
        """Return the names in the directory `path`, or an empty list if it does not exist."""
        fs, jpath = self._open(path)
        if not fs.exists(jpath):
            return []
        return [status.getPath().getName() for status in fs.listStatus(jpath)]

    def delete(self, path: str) -> None:
        """Remove `path` and its content. Do nothing if it does not exist."""
        fs, jpath = self._open(path)
        fs.delete(jpath, True)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory.

        Raises:
            FileExistsError: `new` exists.
            OSError: The file system refused the rename.
        """
        fs, jold = self._open(old)
        jnew = self._jvm.org.apache.hadoop.fs.Path(new)
        if fs.exists(jnew):
            raise FileExistsError(new)
        fs.mkdirs(jnew.getParent())
        if not fs.rename(jold, jnew):
            raise OSError(f"could not rename {old} to {new}")

    def read_text(self, path: str) -> str:
        fs, jpath = self._open(path)
        stream = fs.open(jpath)
        try:
            data = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
        finally:
            stream.close()
        return bytes(data).decode()

    def write_text(self, path: str, text: str) -> None:
        """Write a file atomically: write `path` with the suffix .tmp, then rename it."""
        fs, staged = self._open(f"{path}.tmp")
        stream = fs.create(staged, True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        self.rename(f"{path}.tmp", path)
