"""File operations on each storage that Spark can reach, with the credentials of the session.

Local paths use `sinks.local_files`. Other paths use Hadoop: FileSystem to read and list, and
FileContext to rename, because FileSystem moves a directory into an existing one. On HDFS these
renames are atomic and never replace anything. An object store may not have atomic renames.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from odradek.pipeline.sinks.local_files import LocalFiles

LOCAL_SCHEME = "file"


class HadoopFiles:
    """Files under any Hadoop path (`/a`, `hdfs://...`, `s3a://...`).

    Each method raises OSError or Py4JJavaError if the file system fails. The methods are those of
    `LocalFiles`, and raise FileExistsError and FileNotFoundError in the same cases.
    """

    def __init__(self, spark: SparkSession, *, always_hadoop: bool = False) -> None:
        context: Any = spark.sparkContext
        self._gateway = context._gateway
        self._jvm = context._jvm
        self._conf = context._jsc.hadoopConfiguration()
        self._local = LocalFiles()
        self._always_hadoop = always_hadoop

    def _open(self, path: str) -> tuple[Any, Any]:
        jpath = self._jvm.org.apache.hadoop.fs.Path(path)
        return jpath.getFileSystem(self._conf), jpath

    def local_path(self, path: str) -> str | None:
        """Return the path for the operating system, or None if the path is on another storage."""
        fs, jpath = self._open(path)
        if self._always_hadoop or fs.getScheme() != LOCAL_SCHEME:
            return None
        return str(jpath.toUri().getPath())

    def exists(self, path: str) -> bool:
        if local := self.local_path(path):
            return self._local.exists(local)
        fs, jpath = self._open(path)
        return bool(fs.exists(jpath))

    def list_names(self, path: str) -> list[str]:
        """Return the names in the directory `path`, or an empty list if it does not exist."""
        if local := self.local_path(path):
            return self._local.list_names(local)
        fs, jpath = self._open(path)
        if not fs.exists(jpath):
            return []
        # One call for all names: a call for each of thousands of files takes seconds.
        paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(fs.listStatus(jpath))
        text = self._jvm.org.apache.commons.lang3.ArrayUtils.toString(paths)[1:-1]
        return [one.rpartition("/")[2] for one in text.split(",")] if text else []

    def delete(self, path: str) -> None:
        """Remove `path` and its content. Do nothing if it does not exist."""
        if local := self.local_path(path):
            self._local.delete(local)
            return
        fs, jpath = self._open(path)
        fs.delete(jpath, True)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents. Do nothing if it exists."""
        if local := self.local_path(path):
            self._local.make_directory(local)
            return
        fs, jpath = self._open(path)
        fs.mkdirs(jpath)

    def rename_directory(self, old: str, new: str) -> None:
        """Rename a directory. The parent of `new` must exist.

        Raises:
            FileExistsError: `new` exists.
            FileNotFoundError: `old` or the parent of `new` does not exist.
        """
        if local := self.local_path(old):
            self._local.rename_directory(local, self.local_path(new) or new)
        else:
            self._rename(old, new)

    def move_file(self, old: str, new: str) -> None:
        """Move a file. The parent of `new` must exist.

        Raises:
            FileExistsError: `new` exists.
            FileNotFoundError: `old` or the parent of `new` does not exist.
        """
        if local := self.local_path(old):
            self._local.move_file(local, self.local_path(new) or new)
        else:
            self._rename(old, new)

    def _rename(self, old: str, new: str, *, overwrite: bool = False) -> None:
        hadoop = self._jvm.org.apache.hadoop.fs
        fs, jold = self._open(old)
        context = hadoop.FileContext.getFileContext(fs.makeQualified(jold).toUri(), self._conf)
        options = self._gateway.new_array(hadoop.Options.Rename, int(overwrite))
        if overwrite:
            options[0] = hadoop.Options.Rename.OVERWRITE
        with _java_errors(new):
            context.rename(jold, hadoop.Path(new), options)

    def read_text(self, path: str) -> str:
        """Return the content of a file. Raise FileNotFoundError if it does not exist."""
        if local := self.local_path(path):
            return self._local.read_text(local)
        fs, jpath = self._open(path)
        with _java_errors(path):
            stream = fs.open(jpath)
        try:
            data = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
        finally:
            stream.close()
        return bytes(data).decode()

    def create_text(self, path: str, text: str) -> None:
        """Create a file with its whole content. Raise FileExistsError if it exists."""
        if local := self.local_path(path):
            self._local.create_text(local, text)
            return
        staged = self._write_beside(path, text)
        try:
            self._rename(staged, path)
        finally:
            self.delete(staged)

    def replace_text(self, path: str, text: str) -> None:
        """Write a file atomically, whether it exists or not."""
        if local := self.local_path(path):
            self._local.replace_text(local, text)
            return
        self._rename(self._write_beside(path, text), path, overwrite=True)

    def _write_beside(self, path: str, text: str) -> str:
        """Write a file with a name of its own into the directory of `path`."""
        directory, _, name = path.rpartition("/")
        staged = f"{directory}/.{name}.{uuid.uuid4().hex}.tmp"
        fs, jpath = self._open(staged)
        stream = fs.create(jpath, False)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        return staged


@contextmanager
def _java_errors(path: str) -> Iterator[None]:
    """Translate Java's errors of files that exist, or do not exist."""
    try:
        yield
    except Py4JJavaError as error:
        name = error.java_exception.getClass().getSimpleName()
        if name == "FileAlreadyExistsException":
            raise FileExistsError(path) from error
        if name == "FileNotFoundException":
            raise FileNotFoundError(path) from error
        raise
