"""A stub of `test/service.py`, which kafka-python's source package leaves out.

The fixtures import two classes from this module. A run against KAFKA_URI uses `ExternalService`,
and never `SpawnedService`, with which the fixtures would start a broker.
"""


class ExternalService:
    """A broker that is already running."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    """Not supported: KAFKA_URI must name a running broker."""

    def __init__(self, *_args, **_kwargs):
        raise NotImplementedError("set KAFKA_URI")
