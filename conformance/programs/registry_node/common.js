// Checks, schemas, values and the Kafka client of the scenarios.
// conformance/schema_registry/programs.py describes the command line.
'use strict'
const { deepStrictEqual } = require('node:assert')
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { Kafka, logLevel } = require('kafkajs')

const AWAY_MS = 150_000
const ENDINGS = ['avsc', 'json', 'proto']
const KINDS = { avsc: 'AVRO', json: 'JSON', proto: 'PROTOBUF' }
const OF_FORMAT = { avro: 'avsc', json: 'json', protobuf: 'proto' }
const REFERENCES = { avsc: 'shop.Order', json: 'http://shop.example/order.json', proto: 'order.proto' }

const text = (directory, name) => readFileSync(join(directory, name), 'utf-8')

/** The values to write. The first one has the first schema. */
function orders(name) {
  return [
    { id: `${name}-1`, amount: 1 },
    { id: `${name}-2`, amount: 2, note: 'a note' },
    { id: `${name}-ä€`, amount: -(2 ** 31), note: 'a note' },
  ]
}

const version = (position) => Math.min(position + 1, 2)

function same(what, got, want) {
  deepStrictEqual(got, want, `${what}: ${JSON.stringify(got)} instead of ${JSON.stringify(want)}`)
}

/** Fail unless the promise is rejected with an error that `codeOf` gives a code for. */
async function fails(code, promise, codeOf) {
  let found
  try {
    found = await promise
  } catch (error) {
    same(`code of ${error.message}`, codeOf(error), code)
    return
  }
  throw new Error(`${JSON.stringify(found)} instead of error ${code}`)
}

const kafka = (bootstrap) =>
  new Kafka({ clientId: 'js', brokers: bootstrap.split(','), logLevel: logLevel.ERROR })

async function send(bootstrap, topic, messages) {
  const producer = kafka(bootstrap).producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const message of messages) await producer.send({ topic, messages: [message] })
  await producer.disconnect()
}

/** Return the first messages of a topic. */
async function receive(bootstrap, topic, count) {
  const consumer = kafka(bootstrap).consumer({ groupId: `js-${topic}-${process.pid}` })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const found = []
  await new Promise((resolve, reject) => {
    const limit = setTimeout(() => reject(new Error(`${found.length} of ${count}`)), AWAY_MS)
    consumer.run({
      eachMessage: async ({ message }) => {
        found.push(message)
        if (found.length === count) {
          clearTimeout(limit)
          resolve()
        }
      },
    })
  })
  await consumer.disconnect()
  return found.slice(0, count)
}

/** Run the scenario that the command line names. */
async function main(make) {
  const [scenario, url, directory, ...rest] = process.argv.slice(2)
  const scenarios = make(url, directory)
  if (scenario === 'write') {
    const [bootstrap, form, topic, name] = rest
    await send(bootstrap, topic, await scenarios.encode(form, topic, name))
  } else if (scenario === 'read') {
    const [bootstrap, form, count, ...topics] = rest
    for (const topic of topics) {
      for (const message of await receive(bootstrap, topic, Number(count))) {
        const value = await scenarios.decode(form, topic, message)
        const { id, amount, note } = value
        console.log(JSON.stringify({ topic, id, amount, note }))
      }
    }
  } else {
    await scenarios[scenario]()
  }
}

function run(make) {
  main(make).then(
    () => process.exit(0),
    (error) => {
      console.error(error)
      process.exit(1)
    },
  )
}

module.exports = { ENDINGS, KINDS, OF_FORMAT, REFERENCES, fails, orders, run, same, text, version }
