"""A member of a group, and transactions that abort at random, on aiokafka.

`conformance/program_cases.py` describes the command line and the expected output.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

SESSION_MS = int(os.environ.get("ODRADEK_CONFORMANCE_SESSION_MS", "6000"))


async def consume(bootstrap: str, topic: str, group: str, instance: str = "") -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance or None,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
    )
    async with consumer:
        while not stopped.is_set():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for record in records:
                    print(record.partition, record.offset, flush=True)


async def _producer(bootstrap: str, transactional_id: str) -> AIOKafkaProducer:
    made = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await made.start()
    return made


async def _send(producer: AIOKafkaProducer, topic: str, number: int) -> None:
    await producer.begin_transaction()
    for part in range(5):
        await producer.send_and_wait(topic, b"%d-%d" % (number, part), b"k")


async def transact(
    bootstrap: str, topic: str, name: str, count: str, seed: str, source: str, group: str
) -> None:
    dice = int(seed)
    producer = await _producer(bootstrap, name)
    for number in range(int(count)):
        await _send(producer, topic, number)
        await producer.send_offsets_to_transaction({TopicPartition(source, 0): number + 1}, group)
        dice = (dice * 1103515245 + 12345) % 2147483648
        if dice % 3 == 0:
            await producer.abort_transaction()
            print("abort", number)
        else:
            await producer.commit_transaction()
            print("commit", number)
    await producer.stop()


async def fence(bootstrap: str, topic: str, name: str) -> None:
    old = await _producer(bootstrap, name)
    await _send(old, topic, 0)
    young = await _producer(bootstrap, name)
    await _send(young, topic, 1)
    await young.commit_transaction()
    try:
        await old.commit_transaction()
    except KafkaError as error:
        print("fenced", type(error).__name__)
    await young.stop()


VERBS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "consume": consume,
    "transact": transact,
    "fence": fence,
}

if __name__ == "__main__":
    asyncio.run(VERBS[sys.argv[1]](*sys.argv[2:]))
