"""The start offsets of the leader epochs of a log (KIP-101).

They are kept in ``leader-epoch-checkpoint`` (format in `checkpoints`). Epochs and offsets are
strictly increasing. The file is written before the first batch of an epoch, and synced before the
recovery point passes that batch.

State after a crash: the file may lack epochs that begin above the recovery point, may have epochs
without a record, and may be torn. `RecoveredLeaderEpochs` compares it with the batches that
recovery reads. A file that is unreadable, or that contradicts a batch, is rebuilt from all batches.
"""

from __future__ import annotations

from bisect import bisect_right

from odradek.environment.files import Files
from odradek.log.state import checkpoints
from odradek.records.batch import BatchHeader

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class LeaderEpochFileCache:
    """The entries of one log, oldest first. `dirty` is True when they differ from the file."""

    __slots__ = ("dirty", "epochs", "starts")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []
        self.dirty = False
        for epoch, start in entries or []:
            self.assign(epoch, start)
        self.dirty = False

    def mark_changed(self) -> None:
        """Note that the entries differ from the file, which was invalid."""
        self.dirty = True

    def write(self, files: Files, directory: str, *, sync: bool, new: bool) -> None:
        """Write ``leader-epoch-checkpoint`` to the log's directory. `new`: no file exists yet."""
        path = f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"
        checkpoints.write_epochs(files, path, self.entries(), sync=sync, new=new)
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self.epochs, self.starts, strict=True))

    @property
    def latest(self) -> int:
        """The latest epoch, or -1 if there is none."""
        return self.epochs[-1] if self.epochs else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`. Return whether that changed the entries.

        Contradicting entries (a later epoch, or one with a start at or above the offset) are
        removed, as in ``LeaderEpochFileCache.assign``. A negative epoch is ignored.

        Unlike in Kafka, an epoch with records keeps its start when a later epoch without records is
        removed. With epochs 0 from 0 and 1 from 5, a batch of epoch 0 at offset 5 leaves epoch 0
        from 0. Kafka moves its start to 5.
        """
        epochs, starts = self.epochs, self.starts
        if epoch < 0 or (epochs and epoch == epochs[-1] and start_offset >= starts[-1]):
            return False
        while epochs and (epochs[-1] > epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        if not epochs or epochs[-1] != epoch:
            epochs.append(epoch)
            starts.append(start_offset)
        self.dirty = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest known epoch <= `epoch`.

        The end is the start of the next epoch, or the log's end for the latest epoch. The result is
        (-1, -1) if the epoch is undefined or above all epochs. For an epoch below all epochs it is
        that epoch and the start of the first one (``LeaderEpochFileCache.endOffsetFor``).
        """
        if epoch == UNDEFINED_EPOCH or not self.epochs:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self.epochs[-1]:
            return epoch, log_end_offset
        at = bisect_right(self.epochs, epoch)
        if at == len(self.epochs):
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if at == 0:
            return epoch, self.starts[0]
        return self.epochs[at - 1], self.starts[at]

    def epoch_for(self, offset: int) -> int:
        """Return the epoch in which `offset` was written, or -1 if it is unknown."""
        at = bisect_right(self.starts, offset)
        return self.epochs[at - 1] if at else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that start at or above the log's new end."""
        while self.starts and self.starts[-1] >= end_offset:
            self.epochs.pop()
            self.starts.pop()
            self.dirty = True

    def clear(self) -> None:
        """Remove all epochs, because the log has no records."""
        self.truncate_from_end(0)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or below the new start.

        The first remaining epoch then starts there.
        """
        at = bisect_right(self.starts, start_offset)
        if at == 0 or (at == 1 and self.starts[0] == start_offset):
            return
        del self.epochs[: at - 1], self.starts[: at - 1]
        self.starts[0] = start_offset
        self.dirty = True


class RecoveredLeaderEpochs:
    """The epochs of a log while recovery reads its batches.

    Attributes:
        cache: The entries of the file, and those of recovered batches.
        agree: False if the file was invalid, or contradicts a batch. Then the entries must be
            rebuilt from all batches.
        last: The epoch of the last batch, or -1.
    """

    def __init__(self, cache: LeaderEpochFileCache | None, log_start_offset: int) -> None:
        self.last = -1
        self.cache = cache or LeaderEpochFileCache()
        self.agree = cache is not None
        self._log_start_offset = log_start_offset

    def check(self, header: BatchHeader) -> None:
        """Compare the file with a batch below the recovery point, whose epoch it must have."""
        epoch = header.partition_leader_epoch
        self.last = max(self.last, epoch)
        if epoch >= 0 and header.last_offset >= self._log_start_offset:
            self.agree &= self.cache.epoch_for(header.last_offset) == epoch

    def add(self, header: BatchHeader) -> None:
        """Add the epoch of a recovered batch. It may be later than all epochs of the file."""
        if header.partition_leader_epoch > self.cache.latest:
            self.last = header.partition_leader_epoch
            self.cache.assign(self.last, header.base_offset)
        else:
            self.check(header)
