// The scenarios on @confluentinc/schemaregistry and its serializers.
'use strict'
const { create, createFileRegistry, createMutableRegistry } = require('@bufbuild/protobuf')
const wkt = require('@bufbuild/protobuf/wkt')
const registry = require('@confluentinc/schemaregistry')
const common = require('./common')

const { Compatibility, SchemaRegistryClient, SerdeType } = registry
const { ENDINGS, KINDS, OF_FORMAT, REFERENCES, orders, same, version } = common
const fails = (code, promise) => common.fails(code, promise, (error) => error.errorCode)

const SERIALIZERS = {
  avro: [registry.AvroSerializer, registry.AvroDeserializer],
  json: [registry.JsonSerializer, registry.JsonDeserializer],
  protobuf: [registry.ProtobufSerializer, registry.ProtobufDeserializer],
}

const Type = wkt.FieldDescriptorProto_Type
const Label = wkt.FieldDescriptorProto_Label

/** Return fields with the numbers from 1. */
function fields(...rows) {
  return rows.map(([name, type, more], at) => ({
    name, type, number: at + 1, label: Label.OPTIONAL, jsonName: name, ...more,
  }))
}

/** Return the file with the message Order of a version. */
function orderFile(number) {
  const rows = [['id', Type.STRING], ['amount', Type.INT32], ['note', Type.STRING]]
  return create(wkt.FileDescriptorProtoSchema, {
    name: `order_${number}.proto`, package: 'shop', syntax: 'proto3',
    messageType: [{ name: 'Order', field: fields(...rows.slice(0, number + 1)) }],
  })
}

/** Return the descriptor of the message Order of a version. */
function order(number) {
  return createFileRegistry(orderFile(number), () => undefined).getMessage('shop.Order')
}

/** Return the registry of the message Event, whose file imports two others. */
function events() {
  const timestamp = 'google/protobuf/timestamp.proto'
  const event = {
    name: 'Event',
    field: fields(
      ['order', Type.MESSAGE, { typeName: '.shop.Order' }],
      ['at', Type.MESSAGE, { typeName: '.google.protobuf.Timestamp' }],
      ['name', Type.STRING, { oneofIndex: 0 }],
      ['number', Type.INT32, { oneofIndex: 0 }],
      ['parts', Type.MESSAGE, { typeName: '.shop.Event.Part', label: Label.REPEATED }],
    ),
    oneofDecl: [{ name: 'source' }],
    nestedType: [{ name: 'Part', field: fields(['name', Type.STRING]) }],
  }
  const file = create(wkt.FileDescriptorProtoSchema, {
    name: 'event.proto', package: 'shop', syntax: 'proto3',
    dependency: [timestamp, 'order_1.proto'], messageType: [event],
  })
  const known = { [timestamp]: wkt.file_google_protobuf_timestamp, 'order_1.proto': orderFile(1) }
  return createFileRegistry(file, (name) => known[name])
}

class Scenarios {
  constructor(url, directory) {
    this.url = url
    this.directory = directory
    this.client = this.fresh('')
  }

  fresh(path) {
    return SchemaRegistryClient.newClient({ baseURLs: [this.url + path] })
  }

  schema(name, ending, more = {}) {
    const schema = common.text(this.directory, `${name}.${ending}`)
    return { schema, schemaType: KINDS[ending], ...more }
  }

  async lookups() {
    const [first, second] = [this.schema('order_1', 'avsc'), this.schema('order_2', 'avsc')]
    const c = this.client
    same('id', await c.register('orders', first, false), 1)
    const response = await c.registerFullResponse('orders', second, true)
    same('full response', [response.id, response.version], [2, 2])
    same('the same schema', await c.register('others', first, false), 1)
    const fresh = this.fresh('')
    const found = await fresh.getBySubjectAndId('orders', 1)
    same('by id', JSON.parse(found.schema), JSON.parse(first.schema))
    same('id', await fresh.getId('orders', first, false), 1)
    const full = await fresh.getIdFullResponse('orders', second, false)
    same('id', full.id, 2)
    const byGuid = await fresh.getByGuid(full.guid)
    same('by guid', JSON.parse(byGuid.schema), JSON.parse(second.schema))
    same('latest', (await fresh.getLatestSchemaMetadata('orders')).version, 2)
    same('version 1', (await fresh.getSchemaMetadata('orders', 1, false)).id, 1)
    same('versions', await fresh.getAllVersions('orders'), [1, 2])
    same('version', await fresh.getVersion('orders', second, false, false), 2)
    same('subjects', await fresh.getAllSubjects(), ['orders', 'others'])
    for (const ending of ['json', 'proto']) {
      await c.register(ending, this.schema('order_1', ending), false)
      const kept = await fresh.getLatestSchemaMetadata(ending)
      same('type', kept.schemaType, KINDS[ending])
    }
  }

  async compatibility() {
    const c = this.client
    same('default', await c.getDefaultCompatibility(), 'BACKWARD')
    for (const ending of ENDINGS) {
      const wrong = this.schema('incompatible', ending)
      await c.register(ending, this.schema('order_1', ending), false)
      same('second', await c.testCompatibility(ending, 1, this.schema('order_2', ending)), true)
      same('wrong', await c.testCompatibility(ending, 1, wrong), false)
      same('with the latest', await c.testSubjectCompatibility(ending, wrong), false)
      await fails(409, c.register(ending, wrong, false))
      same('new level', await c.updateCompatibility(ending, Compatibility.NONE), 'NONE')
      same('level', await c.getCompatibility(ending), 'NONE')
      await c.register(ending, wrong, false)
    }
    for (const level of Object.values(Compatibility)) {
      await c.updateDefaultCompatibility(level)
      same('default', await c.getDefaultCompatibility(), level)
    }
  }

  async references() {
    for (const ending of ENDINGS) {
      const subject = `lines-${ending}`
      const references = [{ name: REFERENCES[ending], subject: ending, version: 1 }]
      const line = this.schema('line', ending, { references })
      await fails(42201, this.client.register(subject, line, false))
      await this.client.register(ending, this.schema('order_1', ending), false)
      const id = await this.client.register(subject, line, false)
      const found = await this.fresh('').getBySubjectAndId(subject, id)
      same('references', found.references, references)
      await fails(42206, this.client.deleteSubjectVersion(ending, 1, false))
    }
  }

  async errors() {
    const [c, schema] = [this.client, this.schema('order_1', 'avsc')]
    await fails(40401, c.getAllVersions('unknown'))
    await fails(40401, c.getLatestSchemaMetadata('unknown'))
    await fails(40401, c.getId('unknown', schema, false))
    await fails(40401, c.deleteSubject('unknown', false))
    await fails(40403, c.getBySubjectAndId('unknown', 99))
    await c.register('orders', schema, false)
    await fails(40402, c.getSchemaMetadata('orders', 9, false))
    await fails(42202, c.getSchemaMetadata('orders', 0, false))
    await fails(40403, c.getVersion('orders', this.schema('order_2', 'avsc'), false, false))
    await fails(40408, c.getConfig('orders'))
    await fails(42203, c.updateCompatibility('orders', 'SOME'))
    for (const ending of ENDINGS) {
      await fails(42201, c.register('new', this.schema('invalid', ending), false))
    }
  }

  async deletes() {
    const [c, first] = [this.client, this.schema('order_1', 'avsc')]
    await c.register('orders', first, false)
    await c.register('orders', this.schema('order_2', 'avsc'), false)
    await fails(40407, c.deleteSubjectVersion('orders', 1, true))
    same('deleted', await c.deleteSubjectVersion('orders', 1, false), 1)
    await fails(40406, c.deleteSubjectVersion('orders', 1, false))
    same('versions', await c.getAllVersions('orders'), [2])
    same('deleted', (await this.fresh('').getSchemaMetadata('orders', 1, true)).id, 1)
    same('deleted', await this.fresh('').getVersion('orders', first, false, true), 1)
    same('deleted', await c.deleteSubjectVersion('orders', 1, true), 1)
    await fails(40402, this.fresh('').getSchemaMetadata('orders', 1, true))
    await fails(40405, c.deleteSubject('orders', true))
    same('deleted', await c.deleteSubject('orders', false), [2])
    await fails(40404, c.deleteSubject('orders', false))
    same('subjects', await c.getAllSubjects(), [])
    same('deleted', await c.deleteSubject('orders', true), [2])
    await fails(40401, c.deleteSubject('orders', true))
  }

  async contexts() {
    const schemas = {
      orders: this.schema('order_1', 'avsc'),
      ':.sales:orders': this.schema('order_2', 'avsc'),
    }
    for (const [subject, schema] of Object.entries(schemas)) {
      same('id', await this.client.register(subject, schema, false), 1)
    }
    const prefixed = this.fresh('/contexts/.sales')
    same('subject', (await prefixed.getLatestSchemaMetadata('orders')).subject, ':.sales:orders')
    same('subjects', await prefixed.getAllSubjects(), [':.sales:orders'])
    const fresh = this.fresh('')
    for (const [subject, schema] of Object.entries(schemas)) {
      const found = await fresh.getBySubjectAndId(subject, 1)
      same(subject, JSON.parse(found.schema), JSON.parse(schema.schema))
    }
  }

  async settings() {
    const config = {
      compatibility: Compatibility.FULL, compatibilityGroup: 'major', normalize: true,
    }
    same('new config', await this.client.updateConfig('orders', config), config)
    const { compatibility, ...others } = config
    const kept = { ...others, compatibilityLevel: compatibility }
    same('config', await this.client.getConfig('orders'), kept)
    await this.client.updateDefaultConfig(config)
    same('default', await this.client.getDefaultConfig(), kept)
  }

  async contracts() {
    const metadata = { properties: { owner: 'team' } }
    const rule = {
      name: 'positive', kind: 'CONDITION', mode: 'WRITE', type: 'CEL', expr: 'message.amount > 0',
    }
    const schema = this.schema('order_1', 'avsc', { metadata, ruleSet: { domainRules: [rule] } })
    await this.client.register('orders', schema, false)
    const found = await this.client.getLatestWithMetadata('orders', { owner: 'team' }, false)
    same('metadata', found.metadata.properties, metadata.properties)
    const [kept] = found.ruleSet.domainRules
    same('rule', [kept.name, kept.type, kept.expr], [rule.name, rule.type, rule.expr])
    await fails(40403, this.client.getLatestWithMetadata('orders', { owner: 'others' }, false))
  }

  /** Serialize values with schemas that the serializers make from the values. */
  async generated() {
    for (const format of ['avro', 'json']) {
      const [Serializer, Deserializer] = SERIALIZERS[format]
      const conf = { autoRegisterSchemas: true, normalizeSchemas: true }
      const serializer = new Serializer(this.client, SerdeType.VALUE, conf)
      const deserializer = new Deserializer(this.client, SerdeType.VALUE, {})
      const value = { id: 'one', amount: 1.5, tags: ['a'], inner: { is: true } }
      const data = await serializer.serialize(format, value)
      const found = await deserializer.deserialize(format, data)
      same(format, JSON.parse(JSON.stringify(found)), value)
    }
    await this.registerImports()
  }

  /** Serialize a message whose file imports another one. The serializer registers both. */
  async registerImports() {
    const known = events()
    const conf = { autoRegisterSchemas: true, registry: createMutableRegistry(known) }
    const serializer = new registry.ProtobufSerializer(this.client, SerdeType.VALUE, conf)
    const deserializer = new registry.ProtobufDeserializer(this.client, SerdeType.VALUE, {})
    const event = create(known.getMessage('shop.Event'), {
      order: { id: 'one', amount: 1 }, at: { seconds: 1_800_000_000n },
      source: { case: 'name', value: 'a name' }, parts: [{ name: 'a part' }],
    })
    const found = await deserializer.deserialize(
      'events', await serializer.serialize('events', event))
    same('order', [found.order.id, found.order.amount], ['one', 1])
    same('time', Number(found.at.seconds), 1_800_000_000)
    same('source', found.source, { case: 'name', value: 'a name' })
    same('part', found.parts[0].name, 'a part')
    const latest = await this.client.getLatestSchemaMetadata('events-value')
    same('reference', latest.references.at(-1).name, 'order_1.proto')
  }

  /** Call methods whose endpoints are not implemented. Each gets the error of a path. */
  async unsupported() {
    const c = this.client
    const request = {
      resourceName: 'orders', resourceNamespace: 'cluster', resourceId: '1', resourceType: 'topic',
      associations: [],
    }
    await fails(404, c.createAssociation(request))
    await fails(404, c.getAssociationsByResourceName('orders', 'cluster', null, [], null, 0, -1))
    await fails(404, c.deleteAssociations('1', null, null, false))
    const keys = registry.DekRegistryClient.newClient({ baseURLs: [this.url] })
    await fails(404, keys.getKek('kek', false))
    await fails(404, keys.registerKek('kek', 'local-kms', '1', false))
    await fails(404, keys.getDek('kek', 'orders', 'AES256_GCM', 1, false))
    await fails(404, keys.registerDek('kek', 'orders', 'AES256_GCM', 1, 'material'))
  }

  /** Return the messages. Avro and JSON use the latest version, and Protobuf registers its own. */
  async encode(form, topic, name) {
    const [format, inHeader] = form.split('+')
    const messages = []
    for (const [position, value] of orders(name).entries()) {
      const headers = {}
      const conf = inHeader ? { schemaIdSerializer: registry.HeaderSchemaIdSerializer } : {}
      let message = value
      if (format === 'protobuf') {
        const type = order(version(position))
        Object.assign(conf, { autoRegisterSchemas: true, registry: createMutableRegistry(type) })
        message = create(type, value)
      } else {
        const schema = this.schema(`order_${version(position)}`, OF_FORMAT[format])
        await this.client.register(`${topic}-value`, schema, false)
        Object.assign(conf, { autoRegisterSchemas: false, useLatestVersion: true })
        if (format === 'json') conf.validate = true
      }
      const serializer = new SERIALIZERS[format][0](this.fresh(''), SerdeType.VALUE, conf)
      messages.push({ value: await serializer.serialize(topic, message, headers), headers })
    }
    return messages
  }

  async decode(form, topic, message) {
    const [format] = form.split('+')
    const conf = format === 'json' ? { validate: true } : {}
    this.deserializer ||= new SERIALIZERS[format][1](this.client, SerdeType.VALUE, conf)
    return this.deserializer.deserialize(topic, message.value, message.headers)
  }
}

common.run((url, directory) => new Scenarios(url, directory))
