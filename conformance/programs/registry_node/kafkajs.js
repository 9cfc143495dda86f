// The scenarios on @kafkajs/confluent-schema-registry.
'use strict'
const { COMPATIBILITY, SchemaRegistry } = require('@kafkajs/confluent-schema-registry')
const common = require('./common')

const { ENDINGS, KINDS, OF_FORMAT, REFERENCES, orders, same, version } = common

/** Fail unless the request fails with a status and a text. The client keeps no error code. */
async function fails(status, words, promise) {
  await common.fails(status, promise, (error) => {
    if (!error.message.includes(words)) throw error
    return error.status
  })
}

class Scenarios {
  constructor(url, directory) {
    this.url = url
    this.directory = directory
    this.registry = this.fresh('')
  }

  fresh(path) {
    return new SchemaRegistry({ host: this.url + path, retry: { retries: 0 } })
  }

  schema(name, ending, more = {}) {
    const schema = common.text(this.directory, `${name}.${ending}`)
    return { type: KINDS[ending], schema, ...more }
  }

  register(subject, schema, more = {}) {
    return this.registry.register(schema, { subject, ...more })
  }

  async lookups() {
    const [first, second] = [this.schema('order_1', 'avsc'), this.schema('order_2', 'avsc')]
    same('id', (await this.register('orders', first)).id, 1)
    same('id', (await this.register('orders', second)).id, 2)
    same('the same schema', (await this.register('others', first)).id, 1)
    const fresh = this.fresh('')
    same('by id', (await fresh.getSchema(1)).name, 'shop.Order')
    same('id of a version', await fresh.getRegistryId('orders', 1), 1)
    same('id of the latest', await fresh.getRegistryId('orders', 'latest'), 2)
    same('latest id', await fresh.getLatestSchemaId('orders'), 2)
    same('id by schema', await fresh.getRegistryIdBySchema('orders', second), 2)
    // No method calls the other endpoints of the client.
    same('subjects', (await fresh.api.Subject.all()).data(), ['orders', 'others'])
    for (const ending of ['json', 'proto']) {
      const { id } = await this.register(ending, this.schema('order_1', ending))
      await fresh.getSchema(id)
      same('id by schema', await fresh.getRegistryIdBySchema(
        ending, this.schema('order_1', ending)), id)
    }
  }

  async compatibility() {
    for (const ending of ENDINGS) {
      const subject = ending
      const backward = { compatibility: COMPATIBILITY.BACKWARD }
      await this.register(subject, this.schema('order_1', ending), backward)
      await this.register(subject, this.schema('order_2', ending), backward)
      const wrong = this.schema('incompatible', ending)
      const body = { schemaType: KINDS[ending], schema: wrong.schema }
      const checked = await this.registry.api.Subject.compatible({ subject, body })
      same('compatible', checked.data().is_compatible, false)
      await fails(409, 'incompatible', this.register(subject, wrong, backward))
      const other = this.register(subject, wrong, { compatibility: COMPATIBILITY.NONE })
      await fails(undefined, 'Compatibility does not match', other)
      await this.registry.api.Subject.updateConfig({ subject, body: { compatibility: 'NONE' } })
      await this.register(subject, wrong, { compatibility: COMPATIBILITY.NONE })
    }
  }

  async references() {
    for (const ending of ENDINGS) {
      const references = [{ name: REFERENCES[ending], subject: ending, version: 1 }]
      const line = this.schema('line', ending, { references })
      await fails(404, 'not found', this.register(`lines-${ending}`, line))
      await this.register(ending, this.schema('order_1', ending))
      const { id } = await this.register(`lines-${ending}`, line)
      const value = { order: { id: 'one', amount: 1 }, number: 2 }
      const fresh = this.fresh('')
      const { order, number } = await fresh.decode(await fresh.encode(id, value))
      same('value', [order.id, order.amount, number], ['one', 1, 2])
    }
  }

  async errors() {
    const c = this.registry
    await fails(404, "Subject 'unknown' not found", c.getLatestSchemaId('unknown'))
    await fails(404, 'Schema 99 not found', c.getSchema(99))
    await this.register('orders', this.schema('order_1', 'avsc'))
    await fails(404, 'Version 9 not found', c.getRegistryId('orders', 9))
    await fails(422, 'is not a valid version', c.getRegistryId('orders', 0))
    const missing = c.getRegistryIdBySchema('orders', this.schema('order_2', 'avsc'))
    await fails(undefined, 'Schema not found', missing)
    for (const ending of ENDINGS) {
      const { schema } = this.schema('invalid', ending)
      const body = { schemaType: KINDS[ending], schema }
      await fails(422, 'nvalid', c.api.Subject.register({ subject: 'new', body }))
    }
  }

  async contexts() {
    const [first, second] = [this.schema('order_1', 'avsc'), this.schema('order_2', 'avsc')]
    same('id', (await this.register('orders', first)).id, 1)
    const sales = this.fresh('/contexts/.sales')
    same('id', (await sales.register(second, { subject: 'orders' })).id, 1)
    same('latest', await this.registry.getLatestSchemaId(':.sales:orders'), 1)
    const fields = async (client) => (await client.getSchema(1)).fields.length
    same('fields', [await fields(this.fresh('')), await fields(sales)], [2, 3])
  }

  async encode(form, topic, name) {
    const messages = []
    for (const [position, value] of orders(name).entries()) {
      const schema = this.schema(`order_${version(position)}`, OF_FORMAT[form])
      const { id } = await this.register(`${topic}-value`, schema)
      messages.push({ value: await this.registry.encode(id, value) })
    }
    return messages
  }

  decode(form, topic, message) {
    return this.registry.decode(message.value)
  }
}

common.run((url, directory) => new Scenarios(url, directory))
