// A replacement of @confluentinc/kafka-javascript, a native package that the released tests import:
// its KafkaJS interface, by KafkaJS itself. The brokers are those of the environment. Each consumer
// gets a group of its own: one test has two members with different topics, and KafkaJS assigns the
// topics of the leader only.
'use strict'
const { randomUUID } = require('node:crypto')
const { CompressionTypes, Kafka, PartitionAssigners, logLevel } = require('kafkajs')

class Replacement {
  constructor() {
    const brokers = process.env.ODRADEK_CONFORMANCE_BROKERS.split(',')
    this.kafka = new Kafka({ clientId: 'js', brokers, logLevel: logLevel.NOTHING })
  }

  producer({ kafkaJS: { acks, compression } }) {
    const producer = this.kafka.producer({ allowAutoTopicCreation: true })
    return {
      connect: () => producer.connect(),
      disconnect: () => producer.disconnect(),
      send: (batch) => producer.send({ ...batch, acks, compression }),
    }
  }

  consumer({ kafkaJS: { groupId, fromBeginning } }) {
    const consumer = this.kafka.consumer({ groupId: `${groupId}-${randomUUID()}` })
    return {
      connect: () => consumer.connect(),
      disconnect: () => consumer.disconnect(),
      subscribe: ({ topic }) => consumer.subscribe({ topics: [topic], fromBeginning }),
      run: (handlers) => consumer.run(handlers),
    }
  }
}

const KafkaJS = { CompressionTypes, Kafka: Replacement, PartitionAssigners }

module.exports = { KafkaJS }
