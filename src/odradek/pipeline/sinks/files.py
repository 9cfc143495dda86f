"""The few file operations that the pipeline needs beside Spark's own, through Hadoop's FileSystem:
on any storage that Spark can reach, with the session's credentials."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class HadoopFiles:
    """Files under any Hadoop path (`/a`, `hdfs://...`, `s3a://...`). Errors: Py4JJavaError."""

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
        """The names in the directory `path`; none when it is not there."""
        fs, jpath = self._open(path)
        if not fs.exists(jpath):
            return []
        return [status.getPath().getName() for status in fs.listStatus(jpath)]

    def delete(self, path: str) -> None:
        """Remove `path` and its content. Do nothing if it does not exist."""
        fs, jpath = self._open(path)
        fs.delete(jpath, True)

    def rename(self, old: str, new: str) -> None:
        """Errors: FileExistsError when `new` is there, OSError when the file system refuses."""
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
        """Writes a whole file or none: beside `path` first, then renamed to it."""
        fs, staged = self._open(f"{path}.tmp")
        stream = fs.create(staged, True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        self.rename(f"{path}.tmp", path)
