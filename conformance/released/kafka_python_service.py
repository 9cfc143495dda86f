"""Stands in for `test/service.py`, which kafka-python's source package leaves out.

Its fixtures import two names from there: a service that somebody else runs, which is what a run
against KAFKA_URI uses, and one that they start themselves, which is not.
"""


class ExternalService:
    """A broker that runs already."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    """Not supported here: the fixtures must be told of a broker by KAFKA_URI."""

    def __init__(self, *_args, **_kwargs):
        raise NotImplementedError("set KAFKA_URI")
