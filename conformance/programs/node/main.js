// A member of a group, and transactions that abort at random, on KafkaJS. Arguments and output are
// those of go/sarama/main.go.
'use strict'
const { Kafka, logLevel } = require('kafkajs')

const [verb, bootstrap, topic, ...rest] = process.argv.slice(2)
const sessionTimeout = Number(process.env.ODRADEK_CONFORMANCE_SESSION_MS || 6000)
const kafka = new Kafka({ clientId: 'js', brokers: bootstrap.split(','), logLevel: logLevel.ERROR })

async function consume(group) {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout, heartbeatInterval: 1000 })
  process.once('SIGTERM', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommitInterval: 200,
    eachMessage: async ({ partition, message }) => console.log(`${partition} ${message.offset}`),
  })
}

function producer(id) {
  return kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1 })
}

async function send(transaction, n) {
  for (let i = 0; i < 5; i += 1) {
    await transaction.send({ topic, messages: [{ key: 'k', value: `${n}-${i}` }] })
  }
}

async function transact(id, count, seed, source, group) {
  let dice = seed
  const made = producer(id)
  await made.connect()
  for (let n = 0; n < count; n += 1) {
    const transaction = await made.transaction()
    await send(transaction, n)
    await transaction.sendOffsets({
      consumerGroupId: group,
      topics: [{ topic: source, partitions: [{ partition: 0, offset: String(n + 1) }] }],
    })
    dice = (dice * 1103515245 + 12345) % 2147483648
    if (dice % 3 === 0) {
      await transaction.abort()
      console.log(`abort ${n}`)
    } else {
      await transaction.commit()
      console.log(`commit ${n}`)
    }
  }
  await made.disconnect()
}

async function fence(id) {
  const [old, young] = [producer(id), producer(id)]
  await old.connect()
  const first = await old.transaction()
  await send(first, 0)
  await young.connect()
  const second = await young.transaction()
  await send(second, 1)
  await second.commit()
  try {
    await first.commit()
  } catch (error) {
    console.log(`fenced ${error.type || error.message}`)
  }
  await young.disconnect()
  await old.disconnect()
}

const verbs = {
  consume: () => consume(rest[0]),
  transact: () => transact(rest[0], Number(rest[1]), Number(rest[2]), rest[3], rest[4]),
  fence: () => fence(rest[0]),
}
verbs[verb]().catch((error) => {
  console.error(error)
  process.exit(1)
})
