package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"conformance/common"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/avrov2"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/jsonschema"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/protobuf"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

const away = 150 * time.Second

// serialize returns a record's value. Avro and JSON use the latest version of the subject, and
// Protobuf registers the message's schema.
func (s *scenarios) serialize(
	form, topic string, version int, order common.Order, inHeader bool,
) ([]kafka.Header, []byte) {
	subject := topic + "-value"
	if form == "protobuf" {
		serializer := common.Must(
			protobuf.NewSerializer(s.client, serde.ValueSerde, protobuf.NewSerializerConfig()))
		message := dynamicpb.NewMessage(common.Message(s.directory, version).UnwrapMessage())
		common.Check(protojson.Unmarshal(common.Must(json.Marshal(order)), message))
		headers, data, err := serializer.SerializeWithHeaders(topic, message)
		common.Check(err)
		return headers, data
	}
	s.register(subject, s.schema(fmt.Sprintf("order_%d", version), common.OfFormat[form]))
	if form == "json" {
		config := jsonschema.NewSerializerConfig()
		config.AutoRegisterSchemas, config.UseLatestVersion = false, true
		config.EnableValidation = true
		serializer := common.Must(jsonschema.NewSerializer(s.fresh(""), serde.ValueSerde, config))
		headers, data, err := serializer.SerializeWithHeaders(topic, &order)
		common.Check(err)
		return headers, data
	}
	config := avrov2.NewSerializerConfig()
	config.AutoRegisterSchemas, config.UseLatestVersion = false, true
	serializer := common.Must(avrov2.NewSerializer(s.fresh(""), serde.ValueSerde, config))
	if inHeader {
		serializer.SchemaIDSerializer = serde.HeaderSchemaIDSerializer
	}
	headers, data, err := serializer.SerializeWithHeaders(topic, &order)
	common.Check(err)
	return headers, data
}

func (s *scenarios) write(bootstrap, form, topic, name string) {
	form, _, inHeader := strings.Cut(form, "+")
	producer := common.Must(kafka.NewProducer(&kafka.ConfigMap{
		"bootstrap.servers": bootstrap, "enable.idempotence": true,
	}))
	for position, order := range common.Orders(name) {
		headers, data := s.serialize(form, topic, common.Version(position), order, inHeader)
		delivered := make(chan kafka.Event, 1)
		common.Check(producer.Produce(&kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: 0},
			Value:          data, Headers: headers,
		}, delivered))
		common.Check((<-delivered).(*kafka.Message).TopicPartition.Error)
	}
	producer.Close()
}

// deserializer returns the decoder of a format.
func (s *scenarios) deserializer(form string) func(string, *kafka.Message) common.Order {
	switch form {
	case "avro":
		found := common.Must(avrov2.NewDeserializer(
			s.client, serde.ValueSerde, avrov2.NewDeserializerConfig()))
		return into(found.DeserializeWithHeadersInto)
	case "json":
		// With validation it refuses a struct as the destination.
		found := common.Must(jsonschema.NewDeserializer(
			s.client, serde.ValueSerde, jsonschema.NewDeserializerConfig()))
		return into(found.DeserializeWithHeadersInto)
	}
	found := common.Must(protobuf.NewDeserializer(
		s.client, serde.ValueSerde, protobuf.NewDeserializerConfig()))
	kind := dynamicpb.NewMessageType(common.Message(s.directory, 2).UnwrapMessage())
	common.Check(found.ProtoRegistry.RegisterMessage(kind))
	return func(topic string, message *kafka.Message) (order common.Order) {
		value := common.Must(found.DeserializeWithHeaders(topic, message.Headers, message.Value))
		text := common.Must(protojson.Marshal(value.(proto.Message)))
		common.Check(json.Unmarshal(text, &order))
		return order
	}
}

func into(
	decode func(string, []kafka.Header, []byte, any) error,
) func(string, *kafka.Message) common.Order {
	return func(topic string, message *kafka.Message) (order common.Order) {
		common.Check(decode(topic, message.Headers, message.Value, &order))
		return order
	}
}

func (s *scenarios) read(bootstrap, form string, count int, topic string) {
	form, _, _ = strings.Cut(form, "+")
	consumer := common.Must(kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": bootstrap, "group.id": "unused",
	}))
	common.Check(consumer.Assign([]kafka.TopicPartition{{Topic: &topic, Partition: 0, Offset: 0}}))
	decode := s.deserializer(form)
	for range count {
		common.Print(topic, decode(topic, common.Must(consumer.ReadMessage(away))))
	}
	common.Check(consumer.Close())
}

// generated serializes values with schemas that the serializers make from Go's types.
func (s *scenarios) generated() {
	order := common.Order{ID: "one", Amount: 1, Note: "a note"}
	var found common.Order
	avroSerializer := common.Must(avrov2.NewSerializer(
		s.client, serde.ValueSerde, avrov2.NewSerializerConfig()))
	data := common.Must(avroSerializer.Serialize("avro", &order))
	avroDeserializer := common.Must(avrov2.NewDeserializer(
		s.client, serde.ValueSerde, avrov2.NewDeserializerConfig()))
	common.Check(avroDeserializer.DeserializeInto("avro", data, &found))
	common.Same("Avro", found, order)

	config := jsonschema.NewSerializerConfig()
	config.EnableValidation, config.NormalizeSchemas = true, true
	jsonSerializer := common.Must(jsonschema.NewSerializer(s.client, serde.ValueSerde, config))
	data = common.Must(jsonSerializer.Serialize("json", &order))
	jsonDeserializer := common.Must(jsonschema.NewDeserializer(
		s.client, serde.ValueSerde, jsonschema.NewDeserializerConfig()))
	found = common.Order{}
	common.Check(jsonDeserializer.DeserializeInto("json", data, &found))
	common.Same("JSON", found, order)
	s.registerImports()
}

// registerImports serializes a message whose file imports another one. The serializer registers
// both.
func (s *scenarios) registerImports() {
	kind := common.Event(s.directory).UnwrapMessage()
	event := dynamicpb.NewMessage(kind)
	text := `{"order": {"id": "one"}, "at": "2027-01-15T08:00:00Z", "counts": {"a": "7"},
		"name": "a name", "parts": [{"name": "a part"}], "level": "HIGH"}`
	common.Check(protojson.Unmarshal([]byte(text), event))
	serializer := common.Must(protobuf.NewSerializer(
		s.client, serde.ValueSerde, protobuf.NewSerializerConfig()))
	data := common.Must(serializer.Serialize("events", event))
	deserializer := common.Must(protobuf.NewDeserializer(
		s.client, serde.ValueSerde, protobuf.NewDeserializerConfig()))
	common.Check(deserializer.ProtoRegistry.RegisterMessage(dynamicpb.NewMessageType(kind)))
	found := common.Must(deserializer.Deserialize("events", data)).(proto.Message)
	common.SameJSON("Protobuf", string(common.Must(protojson.Marshal(found))), text)
	latest := must(s.client.GetLatestSchemaMetadata("events-value"))
	common.Same("reference", latest.References[len(latest.References)-1].Name, "order_1.proto")
}
